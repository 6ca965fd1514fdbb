// Goal: every block reads every submission, in order, with what the host wrote before it; a full ring
// refuses. Method: one producer and up to four blocks as threads over a small ring. Meant for the sanitizers.
#include "device/submission_queue.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "machine/cpu/machine.h"

namespace starling::device {
namespace {

#ifdef STARLING_SANITIZED
constexpr uint64_t kSubmissions = 4000;
#else
constexpr uint64_t kSubmissions = 100000;
#endif
constexpr cpu::WaitPolicy kPolicy{.spins = 4, .idle_spins = 2, .idle_yields = 2, .sleep_ns = 100'000};

struct Ring {
  explicit Ring(uint64_t capacity)
      : entries(capacity), heads(SubmissionRing::kMaxBlocks * SubmissionRing::kHeadStride) {
    ring = {capacity, entries.data(), heads.data(), 0};
  }
  std::vector<uint64_t> entries, heads;
  SubmissionRing ring;
};

class EveryBlockCount : public ::testing::TestWithParam<uint32_t> {};

TEST_P(EveryBlockCount, ReadsAllInOrder) {
  const uint32_t blocks = GetParam();
  Ring storage(8);
  SubmissionRing& ring = storage.ring;
  std::vector<uint64_t> payload(kSubmissions);  // plain memory, as the operation in its lane
  std::vector<std::thread> threads;
  std::vector<uint64_t> wrong(blocks);
  for (uint32_t b = 0; b < blocks; ++b) {
    threads.emplace_back([&, b] {
      cpu::CpuMachine machine(b, kPolicy, nullptr, nullptr);
      uint64_t position = 0;
      for (uint64_t k = 0; k < kSubmissions; ++k) {
        Submission submission;
        for (uint32_t attempt = 0; !fetch_submission(machine, ring, b, position, submission); ++attempt)
          machine.pause(attempt);
        wrong[b] += whole_sequence(k, submission.sequence) != k || submission.priority != -int16_t(k % 3) ||
                    submission.lane != k % 5 || payload[k] != k * 7;
      }
      wrong[b] += has_submissions(machine, ring, position);
    });
  }
  cpu::CpuMachine host(0, kPolicy, nullptr, nullptr);
  for (uint64_t k = 0; k < kSubmissions; ++k) {
    payload[k] = k * 7;
    const Submission submission{uint32_t(k % 5), int16_t(-int16_t(k % 3)), uint8_t(blocks), 0, k};
    for (uint32_t attempt = 0; !push_submission(host, ring, blocks, submission); ++attempt)
      host.pause(attempt);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<uint64_t>(blocks));
}

INSTANTIATE_TEST_SUITE_P(Blocks, EveryBlockCount, ::testing::Values(1u, 2u, 4u));

TEST(SubmissionQueue, OneSlowBlockFillsIt) {
  Ring storage(2);
  SubmissionRing& ring = storage.ring;
  uint64_t positions[2] = {};
  cpu::CpuMachine machine(0, kPolicy, nullptr, nullptr);
  Submission submission{};
  EXPECT_TRUE(push_submission(machine, ring, 2, submission));
  EXPECT_TRUE(push_submission(machine, ring, 2, submission));
  EXPECT_TRUE(fetch_submission(machine, ring, 0, positions[0], submission));
  EXPECT_FALSE(push_submission(machine, ring, 2, submission)) << "block 1 has read nothing";
  EXPECT_TRUE(fetch_submission(machine, ring, 1, positions[1], submission));
  EXPECT_TRUE(push_submission(machine, ring, 2, submission));
}

}  // namespace
}  // namespace starling::device
