// Goal: each of the three completion queues delivers every token once, with what was written before it.
// Method: blocks as threads publish through a small ring, so that it fills and wraps many times; the poller
// sees the payload that belongs to each token. Meant for the sanitizers.
#include "device/completion_queue.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "machine/cpu/machine.h"

namespace starling::device {
namespace {

#ifdef STARLING_SANITIZED
constexpr uint64_t kTokens = 4000;
#else
constexpr uint64_t kTokens = 60000;
#endif
constexpr cpu::WaitPolicy kPolicy{.spins = 4, .idle_spins = 2, .idle_yields = 2, .sleep_ns = 100'000};

struct Queue {
  explicit Queue(uint64_t capacity) : entries(capacity) {
    memory.capacity = capacity;
    memory.entries = entries.data();
    memory.head = &head;
  }
  std::vector<uint64_t> entries;
  uint64_t head = 0;
  CompletionMemory memory{};
};

class EveryCompletionQueue : public ::testing::TestWithParam<std::tuple<CompletionQueueKind, uint32_t>> {};

TEST_P(EveryCompletionQueue, DeliversEveryTokenOnce) {
  const auto [kind, blocks] = GetParam();
  Queue queue(16);
  // Plain memory: the queue alone orders it. Token t carries payload[t].
  std::vector<uint64_t> payload(blocks * kTokens + 1);
  std::vector<std::thread> threads;
  for (uint32_t b = 0; b < blocks; ++b) {
    threads.emplace_back([&, b, kind = kind, blocks = blocks] {
      cpu::CpuMachine machine(b, kPolicy, nullptr, nullptr);
      for (uint64_t k = 0; k < kTokens; ++k) {
        const uint64_t token = k * blocks + b + 1;
        payload[token] = token * 3;
        for (uint32_t attempt = 0; !publish(machine, kind, queue.memory, token, b); ++attempt)
          machine.pause(attempt);
      }
    });
  }
  cpu::CpuMachine poller(0, kPolicy, nullptr, nullptr);
  std::vector<uint8_t> seen(payload.size());
  for (uint64_t count = 0, attempt = 0; count < blocks * kTokens;) {
    uint64_t token = 0;
    if (!pop(poller, kind, queue.memory, token)) {
      poller.pause(uint32_t(++attempt));
      continue;
    }
    attempt = 0;
    ++count;
    ASSERT_GE(token, 1u);
    ASSERT_LT(token, payload.size());
    ASSERT_EQ(seen[token]++, 0) << "token " << token << " came twice";
    ASSERT_EQ(payload[token], token * 3) << "what was written before token " << token << " is not there";
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t token = 0;
  EXPECT_FALSE(pop(poller, kind, queue.memory, token)) << "token " << token << " was never published";
}

INSTANTIATE_TEST_SUITE_P(KindAndBlocks, EveryCompletionQueue,
                         ::testing::Combine(::testing::Values(CompletionQueueKind::kRing,
                                                              CompletionQueueKind::kPackedRing,
                                                              CompletionQueueKind::kSlots),
                                            ::testing::Values(1u, 2u, 4u)));

TEST(CompletionQueue, FullRingRefusesAndTakesAgain) {
  for (auto kind : {CompletionQueueKind::kRing, CompletionQueueKind::kPackedRing}) {
    Queue queue(4);
    cpu::CpuMachine machine(0, kPolicy, nullptr, nullptr);
    for (uint64_t token = 1; token <= 4; ++token) EXPECT_TRUE(publish(machine, kind, queue.memory, token, 0));
    EXPECT_FALSE(publish(machine, kind, queue.memory, 5, 0));
    uint64_t token = 0;
    ASSERT_TRUE(pop(machine, kind, queue.memory, token));
    EXPECT_EQ(token, 1u);
    EXPECT_TRUE(publish(machine, kind, queue.memory, 5, 0));
  }
}

}  // namespace
}  // namespace starling::device
