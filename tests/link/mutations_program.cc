// Hunts every bug planted in failover, and prints docs/LINK_MUTATIONS.md: mutations_program [NAME].
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "link/hunt.h"

int main(int argc, char** argv) {
  using namespace starling::link;
  std::printf(
      "# Planted bugs of failover\n\n"
      "Each row is an edit of one header of `src/link`, as small as the slip that would make it "
      "(`tests/link/catalogue.py`).\n"
      "Small flows (`tests/link/cases.h`) are explored with the edited code, one after the other, until a "
      "check "
      "fails.\n"
      "`link.mutations_test` repeats that in every run of the tests. This page is the output of\n"
      "`build/dev/tests/bin/link.mutations_program > docs/LINK_MUTATIONS.md`; one core.\n\n"
      "| bug | in | what it is | seconds | how it shows |\n| --- | --- | --- | --- | --- |\n");
  size_t found = 0, tried = 0;
  double longest = 0;
  for (const Mutant& mutant : mutants()) {
    if (argc > 1 && std::strcmp(argv[1], mutant.name) != 0) continue;
    ++tried;
    const Found result = hunt(mutant.core());
    found += result.found;
    longest = std::max(longest, result.seconds);
    std::printf("| %s | %s | %s | %.2f | %s |\n", mutant.name, mutant.file, mutant.what, result.seconds,
                result.found ? result.how.c_str() : "**not found**");
    std::fflush(stdout);
  }
  std::printf("\n%zu of %zu found; the longest hunt took %.2f s.\n", found, tried, longest);
  return found == tried ? 0 : 1;
}
