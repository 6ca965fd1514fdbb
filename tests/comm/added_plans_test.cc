// Goal: from C, plans of one's own run by name and by size, next to the built-in ones; collectives of one's
// own, with slices of several chunks in one message. Method: three ranks, plans as text, results that are
// known; counts for which some chunks are empty, and counts of many tiles. Tables of choices: the same two
// ranks with unequal tables, which must not match.
#include <unistd.h>
#include <starling/plan.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "comm/threads.h"
#include "plan/refusals.h"

namespace starling::testing {
namespace {

// Rank r's four chunks go to rank r + 1 as one message, through scratch, and are put down one by one.
std::string to_next(uint32_t ranks) {
  std::string text = "starling-plan 1\nname to_next\ncollective custom\nranks " + std::to_string(ranks) +
                     "\nroot 0\nin_place 0\nchunks_per_group 4\ngroups 1 1\n";
  for (uint32_t r = 0; r < ranks; ++r) {
    const std::string next = std::to_string((r + 1) % ranks),
                      previous = std::to_string((r + ranks - 1) % ranks);
    text += "rank " + std::to_string(r) + " scratch 4\nblock 0\n0 send input[0:4] -> >" + next +
            ".0 size input[0:4]\n1 recv <" + previous + ".0 -> scratch[0:4] size output[0:4]\n";
    for (int k = 0; k < 4; ++k) {
      const std::string chunk = "[" + std::to_string(k) + "]";
      text += std::to_string(k + 2) + " copy scratch" + chunk + " -> output" + chunk + " size output" +
              chunk + "\n";
    }
  }
  return text;
}

void check_to_next(Rank& rank, size_t count) {
  std::vector<float> input(count), output(count, -1);
  for (size_t k = 0; k < count; ++k) input[k] = float(rank.rank * 1000 + k % 977);
  starling_operation op = operation(STARLING_CUSTOM);
  op.algorithm = "to_next";
  op.lane = "next";
  op.input = input.data();
  op.output = output.data();
  op.count = count;
  starling_request* request = nullptr;
  ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
  expect_done(request);
  const uint32_t from = (rank.rank + rank.size - 1) % rank.size;
  for (size_t k = 0; k < count; ++k)
    ASSERT_EQ(output[k], float(from * 1000 + k % 977)) << k << " of " << count;
}

TEST(AddedPlans, ACollectiveOfOnesOwn) {
  run_ranks({.size = 3}, [](Rank& rank) {
    const std::string text = to_next(rank.size);
    ASSERT_EQ(starling_comm_add_plan(rank.comm, text.c_str(), 1, 0), STARLING_SUCCESS)
        << starling_last_error();
    for (const size_t count : {0u, 1u, 5u, 64u, 1001u, 300001u}) check_to_next(rank, count);
  });
}

// The library's own collective of that kind: nothing was added.
void check_all_to_next(Rank& rank, const char* name, size_t count, bool in_place) {
  std::vector<int64_t> input(count), output(count, -1);
  for (size_t k = 0; k < count; ++k) input[k] = int64_t(rank.rank * 1'000'000 + k);
  std::vector<int64_t>& result = in_place ? input : output;
  starling_operation op = operation(STARLING_CUSTOM);
  op.algorithm = name;
  op.data_type = STARLING_INT64;
  op.input = input.data();
  op.output = result.data();
  op.count = count;
  starling_request* request = nullptr;
  ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
  expect_done(request);
  for (size_t k = 0; k < count; ++k)
    ASSERT_EQ(result[k], rank.rank != 0 ? int64_t((rank.rank - 1) * 1'000'000 + k)
                         : in_place     ? int64_t(k)
                                        : -1)
        << name << ", rank " << rank.rank << ", " << k << " of " << count;
}

TEST(AddedPlans, AllToNextNeedsNone) {
  for (const uint32_t size : {1u, 2u, 4u, 5u}) {
    run_ranks({.size = size, .blocks = 2}, [](Rank& rank) {
      for (const char* name : {"all_to_next", "all_to_next@1024", "all_to_next_direct",
                               "all_to_next_direct_packets", "all_to_next_direct_pull"})
        for (const bool in_place : {false, true})
          for (const size_t count : {0u, 1u, 7u, 1001u, 100'001u})
            check_all_to_next(rank, name, count, in_place);
      if (rank.size == 4)
        for (const char* name : {"all_to_next:2", "all_to_next:4"})
          check_all_to_next(rank, name, 1001, false);
    });
  }
}

TEST(AddedPlans, OnesOwnGoBeforeTheLibrarysOfTheirName) {
  run_ranks({.size = 3}, [](Rank& rank) {
    std::string text = to_next(rank.size);  // a ring: rank 0 gets the last one's
    text.replace(text.find("name to_next"), 12, "name all_to_next");
    ASSERT_EQ(starling_comm_add_plan(rank.comm, text.c_str(), 1, 0), STARLING_SUCCESS)
        << starling_last_error();
    std::vector<float> input(100, float(rank.rank)), output(100, -1);
    starling_operation op = operation(STARLING_CUSTOM);
    op.algorithm = "all_to_next";
    op.input = input.data();
    op.output = output.data();
    op.count = input.size();
    starling_request* request = nullptr;
    ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
    expect_done(request);
    EXPECT_EQ(output, std::vector<float>(100, float((rank.rank + rank.size - 1) % rank.size)));
  });
}

TEST(AddedPlans, NeedNoMoreSlotsThanLanesHave) {
  run_ranks({.size = 2}, [](Rank& rank) {
    const std::string three = text_of(shape_of_exchange(3), exchange(3));
    const std::string two = text_of(shape_of_exchange(2), exchange(2));
    uint32_t slots = 0;
    ASSERT_EQ(starling_plan_verify(three.c_str(), &slots, nullptr), STARLING_SUCCESS)
        << starling_last_error();
    EXPECT_EQ(slots, 3u);
    for (const uint64_t largest : {0u, 4096u}) {  // by name, and by size
      EXPECT_EQ(starling_comm_add_plan(rank.comm, three.c_str(), 1, largest), STARLING_UNSUPPORTED);
      const std::string why = starling_last_error();
      EXPECT_NE(
          why.find("plan 'test' needs 3 slots on a connection to finish; lanes have 2; remedy: compile its "
                   "program with slots=2"),
          std::string::npos)
          << why;
    }
    ASSERT_EQ(starling_comm_add_plan(rank.comm, two.c_str(), 1, 0), STARLING_SUCCESS)
        << starling_last_error();
    for (const size_t count : {1u, 1000u, 300'000u}) {
      std::vector<int32_t> input(2 * count), output(2 * count, -1);
      for (size_t k = 0; k < input.size(); ++k) input[k] = int32_t(rank.rank * 10'000'000 + k);
      starling_operation op = operation(STARLING_ALL_TO_ALL);
      op.data_type = STARLING_INT32;
      op.algorithm = "test";
      op.input = input.data();
      op.output = output.data();
      op.count = count;
      starling_request* request = nullptr;
      ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      expect_done(request);
      for (size_t k = 0; k < output.size(); ++k)
        ASSERT_EQ(output[k], int32_t(k / count * 10'000'000 + rank.rank * count + k % count)) << k;
    }
  });
}

// Each chunk on a channel of its own, by one block.
std::string gathered_by_channels(int channels) {
  std::string body;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string own = std::to_string(rank), peer = std::to_string(1 - rank);
    body += "rank " + own + " scratch 0\nblock 0\n";
    int index = 0;
    for (int c = 0; c < channels; ++c) {
      const std::string chunk = "[" + std::to_string(c) + "]", channel = peer + "." + std::to_string(c);
      body +=
          std::to_string(index++) + " send input" + chunk + " -> >" + channel + " size input" + chunk + "\n";
    }
    for (int c = 0; c < channels; ++c) {
      const auto at = [&](int part) { return "output[" + std::to_string(part * channels + c) + "]"; };
      body += std::to_string(index++) + " recv <" + peer + "." + std::to_string(c) + " -> " + at(1 - rank) +
              " size " + at(1 - rank) + "\n";
      body += std::to_string(index++) + " copy input[" + std::to_string(c) + "] -> " + at(rank) + " size " +
              at(rank) + "\n";
    }
  }
  return text_of({.collective = "all_gather", .chunks_per_group = channels, .groups = "1 2"}, body);
}

// A lane has the channels that its first operation wants, so what goes by name alone may find one that has
// enough.
TEST(AddedPlans, OfMoreChannelsThanEveryLaneHasGoByNameAlone) {
  run_ranks({.size = 2}, [](Rank& rank) {
    const std::string text = gathered_by_channels(3);
    EXPECT_EQ(starling_comm_add_plan(rank.comm, text.c_str(), 1, 4096), STARLING_UNSUPPORTED);
    EXPECT_NE(
        std::string(starling_last_error())
            .find("plan 'test' uses 3 channels; lanes have as many as the daemon has blocks, 1; remedy: "
                  "compile it with blocks=1, or run it by name on a lane of its own"),
        std::string::npos)
        << starling_last_error();
    ASSERT_EQ(starling_comm_add_plan(rank.comm, text.c_str(), 1, 0), STARLING_SUCCESS)
        << starling_last_error();
    std::vector<float> input(100, float(rank.rank)), output(200, -1);
    starling_operation op = operation(STARLING_ALL_GATHER);
    op.input = input.data();
    op.output = output.data();
    op.count = input.size();
    starling_request* request = nullptr;
    ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
    expect_done(request);
    op.algorithm = "test";
    EXPECT_EQ(starling_submit(rank.comm, &op, nullptr), STARLING_UNSUPPORTED);
    EXPECT_NE(std::string(starling_last_error()).find("uses 3 channels; the lane has 1"), std::string::npos)
        << starling_last_error();
    op.lane = "of its own";
    std::fill(output.begin(), output.end(), -1);
    ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
    expect_done(request);
    for (size_t k = 0; k < output.size(); ++k) ASSERT_EQ(output[k], float(k / 100)) << k;
  });
}

TEST(AddedPlans, AreChosenBySizeAndFoundByName) {
  run_ranks({.size = 3}, [](Rank& rank) {
    char* text = nullptr;
    ASSERT_EQ(starling_plan_generate("all_reduce", "ring", rank.size, 0, 1, 0, &text), STARLING_SUCCESS);
    ASSERT_EQ(starling_comm_add_plan(rank.comm, text, 1024, 4096), STARLING_SUCCESS) << starling_last_error();
    starling_plan_free(text);
    for (const size_t count : {10u, 256u, 1024u, 5000u}) {
      std::vector<float> input(count, float(rank.rank + 1)), output(count);
      starling_operation op = operation(STARLING_ALL_REDUCE);
      op.input = input.data();
      op.output = output.data();
      op.count = count;
      starling_request* request = nullptr;
      ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      expect_done(request);
      for (const float value : output) ASSERT_EQ(value, 6.0f);
    }
  });
}

// A rank alone with another plan shows which one was taken: the operation does not match.
TEST(AddedPlans, ATableDecidesForTheGroupItWasMeasuredIn) {
  for (const bool here : {true, false}) {
    run_ranks({.size = 2}, [&](Rank& rank) {
      char* topology = nullptr;
      ASSERT_EQ(starling_comm_topology(rank.comm, &topology), STARLING_SUCCESS);
      const std::string path = ::testing::TempDir() + "table-" + std::to_string(getpid()) + "-" +
                               std::to_string(here) + std::to_string(rank.rank);
      const std::string name = std::string(topology) + (here ? "" : "0");
      EXPECT_NE(name.find("cpu:threads:ranks=2:per_host=2:blocks=1"), std::string::npos) << name;
      starling_plan_free(topology);
      std::ofstream(path) << "starling-table 1\ntopology " << name
                          << "\n  to 4096 all_reduce separate plain built_in "
                          << (rank.rank == 0 ? "ring" : "two_shot") << " 1\n";
      uint32_t rows = 7;
      ASSERT_EQ(starling_comm_use_table(rank.comm, path.c_str(), &rows), STARLING_SUCCESS)
          << starling_last_error();
      EXPECT_EQ(rows, here ? 1u : 0u);
      std::filesystem::remove(path);
      EXPECT_EQ(starling_comm_use_table(rank.comm, path.c_str(), &rows), STARLING_SYSTEM);
      std::vector<float> input(16, 1.0f), output(16);
      starling_operation op = operation(STARLING_ALL_REDUCE);
      op.input = input.data();
      op.output = output.data();
      op.count = input.size();
      starling_request* request = nullptr;
      ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      EXPECT_EQ(starling_wait(request, 20'000'000'000), here ? STARLING_MISMATCH : STARLING_SUCCESS);
      starling_request_free(request);
    });
  }
}

TEST(AddedPlans, WrongOnesAreRefusedWithTheReason) {
  run_ranks({.size = 2}, [](Rank& rank) {
    const auto refused = [&](const std::string& text, const char* why) {
      EXPECT_NE(starling_comm_add_plan(rank.comm, text.c_str(), 1, 0), STARLING_SUCCESS);
      EXPECT_NE(std::string(starling_last_error()).find(why), std::string::npos) << starling_last_error();
    };
    refused(to_next(3), "is for 3 ranks, the communicator has 2");
    refused("no plan", "line 1");
    std::string rooted = to_next(2);
    rooted.replace(rooted.find("root 0"), 6, "root 1");
    refused(rooted, "custom has no root, the plan has 1; write root 0");
    std::string wrong = to_next(2);
    wrong.replace(wrong.find("5 copy scratch[3] -> output[3]"), 30, "5 copy scratch[3] -> output[2]");
    refused(wrong, "(rule operand_length)");
    starling_operation op = operation(STARLING_CUSTOM);
    op.algorithm = "to_next";
    EXPECT_EQ(starling_submit(rank.comm, &op, nullptr), STARLING_INVALID_ARGUMENT);
    EXPECT_NE(std::string(starling_last_error()).find("no plan named 'to_next'"), std::string::npos);
    EXPECT_NE(
        std::string(starling_last_error()).find("one of the library's: all_to_next, all_to_next_direct"),
        std::string::npos)
        << starling_last_error();
    std::vector<float> buffer(20);
    op.algorithm = "all_to_next:3";
    op.input = buffer.data();
    op.output = buffer.data() + 10;
    op.count = 10;
    EXPECT_EQ(starling_submit(rank.comm, &op, nullptr), STARLING_INVALID_ARGUMENT);
    EXPECT_NE(std::string(starling_last_error()).find("which 2 ranks cannot be"), std::string::npos)
        << starling_last_error();
    op.algorithm = "all_to_next";
    op.output = buffer.data() + 5;
    EXPECT_EQ(starling_submit(rank.comm, &op, nullptr), STARLING_INVALID_ARGUMENT);
    EXPECT_NE(std::string(starling_last_error()).find("input and output overlap"), std::string::npos)
        << starling_last_error();
  });
}

}  // namespace
}  // namespace starling::testing
