// Goal: what a table of choices says for a registered collective fits its lane, which has the channels of its
// first plan alone. Method: a table with narrow and wide rows, built in and of one's own, for in place and
// out of place, which runs take in turn. The table is the library's setting, so it is alone in its program.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "comm/registered.h"
#include "plan/generate.h"
#include "plan/table.h"
#include "plan/text.h"

namespace starling::testing {
namespace {

constexpr uint32_t kBlocks = 8, kNarrow = 256, kWide = 100'000;

std::string lines_behind_bars(const std::string& text) {
  std::string lines = "| ";
  for (size_t at = 0; at < text.size(); ++at) {
    lines += text[at];
    if (text[at] == '\n' && at + 1 < text.size()) lines += "| ";
  }
  return lines;
}

std::string table() {
  const Topology here{false, true, 2, 2, kBlocks, uint32_t(sysconf(_SC_NPROCESSORS_ONLN))};
  const Plan own = generate("ring", {Collective::kAllReduce, 2, 0, kBlocks, false});
  return "starling-table 1\ntopology " + here.name() +
         "\n  to 4096 all_reduce in_place plain built_in ring 1\n"
         "  to 4096 all_reduce separate plain plan ring\n"
         "  to 1000000 all_reduce in_place plain built_in ring 1\n"
         "  to 1000000 all_reduce separate plain built_in ring 8\n"
         "plan ring\n" +
         lines_behind_bars(to_text(own));
}

TEST(RegisteredTable, WhatIsChosenFitsTheLane) {
  const std::string path = ::testing::TempDir() + "table-of-registered-" + std::to_string(getpid());
  std::ofstream(path) << table();
  ASSERT_EQ(setenv("STARLING_TABLE", path.c_str(), 1), 0);
  run_ranks({.size = 2, .blocks = kBlocks}, [&](Rank& rank) {
    uint32_t rows = 0;
    ASSERT_EQ(starling_comm_use_table(rank.comm, path.c_str(), &rows), STARLING_SUCCESS)
        << starling_last_error();
    ASSERT_EQ(rows, 4u) << "it is for another topology than this one";
    int64_t id = 0;
    for (const size_t count : {kNarrow, kWide})
      for (const bool in_place_first : {true, false}) {
        register_all_reduce(rank, ++id, count);
        for (uint32_t round = 0; round < 4; ++round)
          run_once(rank, id, count, (round % 2 == 0) == in_place_first);
      }
  });
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace starling::testing
