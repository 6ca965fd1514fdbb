// Hunts every planted bug, and prints docs/MUTATIONS.md: mutations_program [SECONDS_EACH] [NAME].
#include <cstdlib>
#include <cstring>

#include "sim/hunt.h"

int main(int argc, char** argv) {
  using namespace starling::sim;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 60;
  std::printf(
      "# Planted bugs\n\n"
      "Each row is an edit of one header of `src/device`, as small as the slip that would make it\n"
      "(`tests/sim/catalogue.py`). The simulator runs the edited core seed after seed, the campaigns dfccl1, "
      "dfccl2,\n"
      "random, death, those with streams and those between hosts in turn, or the one that the catalogue "
      "names,\n"
      "until a check fails that the shipped core passes. For no progress the bound is %llu ms of virtual "
      "time\n"
      "here, not 50 ms as elsewhere. `sim.mutations_test` runs these seeds in every run of the tests, and "
      "hunts\n"
      "again where one shows nothing any more. This page is the output of\n"
      "`build/dev/tests/bin/sim.mutations_program > docs/MUTATIONS.md`, on one core.\n\n"
      "| bug | in | what it is | seeds | seconds | how it shows |\n| --- | --- | --- | --- | --- | --- |\n",
      static_cast<unsigned long long>(kProgressBoundMs));
  uint32_t found = 0, tried = 0;
  double longest = 0;
  for (const Mutant& mutant : mutants()) {
    if (argc > 2 && std::strcmp(argv[2], mutant.name) != 0) continue;
    ++tried;
    const Found result = hunt(&mutant, seconds);
    found += result.found;
    longest = std::max(longest, result.seconds);
    std::printf("| %s | %s | %s | %llu | %.2f | %s |\n", mutant.name, mutant.file, mutant.what,
                static_cast<unsigned long long>(result.seeds), result.seconds,
                result.found ? result.how.c_str() : "**not found**");
    std::fflush(stdout);
  }
  std::printf("\n%u of %u found; the longest hunt took %.2f s.\n", found, tried, longest);
  std::printf(
      "\n## Not seen\n\nNo hunt has seen these; they are not hunted in the tests.\n\n"
      "| bug | in | what it is | why it shows nothing, as far as one knows |\n| --- | --- | --- | --- |\n");
  for (const UnseenMutant& mutant : unseen_mutants())
    std::printf("| %s | %s | %s | %s |\n", mutant.name, mutant.file, mutant.what, mutant.why);
  return found == tried ? 0 : 1;
}
