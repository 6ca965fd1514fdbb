// Goal: while a rank has receives from any source without a sender, and only then, messages ring there
// (wire/doorbell.h, `unmatched`). Method: two ranks, of which one looks at its own word while it receives
// from any source: what nobody has sent yet, what is there already, what nobody ever sends.
#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>

#include "comm/communicator.h"
#include "comm/store.h"
#include "comm/threads.h"

namespace starling::testing {
namespace {

constexpr int64_t kBoundNs = 200'000'000'000;

struct Ranked {
  Context context;
  std::unique_ptr<Store> store;
  std::unique_ptr<Communicator> comm;

  Ranked(uint32_t rank, const starling_store& functions)
      : context(options()), store(user_store(functions)), comm(join(rank)) {}

  static starling_context_options options() {
    starling_context_options o{};
    o.struct_bytes = sizeof o;
    o.blocks = 1;
    o.arena_bytes = uint64_t(1) << 30;
    return o;
  }
  std::unique_ptr<Communicator> join(uint32_t rank) {
    return Communicator::join(context, {rank, 2, "world", kBoundNs}, *store);
  }
  RequestPtr submit(starling_collective kind, int32_t peer, float* value, int64_t timeout_ns = kBoundNs) {
    starling_operation op = operation(kind);
    op.peer = peer;
    op.input = op.output = value;
    op.count = 1;
    op.tag = 3;
    op.timeout_ns = timeout_ns;
    return comm->submit(op);
  }
  starling_status end(const RequestPtr& request) {
    EXPECT_TRUE(context.wait(*request, kBoundNs));
    return request->status();
  }
  uint32_t unmatched() {
    return std::atomic_ref<uint32_t>(context.arena().header()->host.unmatched)
        .load(std::memory_order_relaxed);
  }
  // A receive ends before it is counted off, by the thread that has found its sender.
  bool counts_down() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kBoundNs);
    while (unmatched() != 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return unmatched() == 0;
  }
};

TEST(AnySource, MessagesRingWhileOneWaits) {
  MemoryStore store;
  const starling_store functions = store.functions();
  std::barrier meet(2);
  std::thread sender([&] {
    Ranked own(0, functions);
    float values[] = {1, 2, 3};
    meet.arrive_and_wait();  // two wait for it
    EXPECT_EQ(own.end(own.submit(STARLING_SEND, 1, &values[0])), STARLING_SUCCESS);
    EXPECT_EQ(own.end(own.submit(STARLING_SEND, 1, &values[1])), STARLING_SUCCESS);
    const RequestPtr early = own.submit(STARLING_SEND, 1, &values[2]);
    meet.arrive_and_wait();  // it was sent
    EXPECT_EQ(own.end(early), STARLING_SUCCESS);
    meet.arrive_and_wait();
  });
  Ranked own(1, functions);
  float values[] = {0, 0, 0, 0};
  EXPECT_EQ(own.unmatched(), 0u);
  const RequestPtr first = own.submit(STARLING_RECV, -1, &values[0]);
  EXPECT_EQ(own.unmatched(), 1u);
  const RequestPtr second = own.submit(STARLING_RECV, -1, &values[1]);
  EXPECT_EQ(own.unmatched(), 1u) << "a communicator counts once";
  meet.arrive_and_wait();
  EXPECT_EQ(own.end(first), STARLING_SUCCESS);
  EXPECT_EQ(own.end(second), STARLING_SUCCESS);
  EXPECT_TRUE(own.counts_down());
  meet.arrive_and_wait();
  const RequestPtr third = own.submit(STARLING_RECV, -1, &values[2]);
  EXPECT_EQ(own.unmatched(), 0u) << "its message was there";
  EXPECT_EQ(own.end(third), STARLING_SUCCESS);
  EXPECT_EQ(own.end(own.submit(STARLING_RECV, -1, &values[3], 20'000'000)), STARLING_TIMEOUT);
  EXPECT_TRUE(own.counts_down());
  for (int k = 0; k < 3; ++k) EXPECT_EQ(values[k], float(k + 1));
  const RequestPtr never = own.submit(STARLING_RECV, -1, &values[3]);
  EXPECT_EQ(own.unmatched(), 1u);
  own.comm->end_operations();
  EXPECT_EQ(own.end(never), STARLING_ABORTED);
  EXPECT_EQ(own.unmatched(), 0u);
  meet.arrive_and_wait();
  sender.join();
}

// Looks, in vain or not.
struct Counted final : PollHook {
  const bool could_look;
  std::atomic<int> looks{0};
  explicit Counted(bool could) : could_look(could) {}
  bool poll() override {
    ++looks;
    return could_look;
  }
  // Until so many looks more.
  std::chrono::nanoseconds time_of(int count) const {
    const int last = looks.load() + count;
    const auto begin = std::chrono::steady_clock::now();
    while (looks.load() < last) std::this_thread::sleep_for(std::chrono::microseconds(20));
    return std::chrono::steady_clock::now() - begin;
  }
};

// A submission that holds its communicator's lock while a message rings.
TEST(AnySource, WhoCouldNotLookLooksAgainSoon) {
  constexpr int kLooks = 50;
  Context context(Ranked::options());
  const auto time_of = [&](bool could_look) {
    Counted hook(could_look);
    context.add_hook(&hook);
    const auto time = hook.time_of(kLooks);
    context.remove_hook(&hook);
    return time;
  };
  const auto idle = time_of(true), busy = time_of(false);
  EXPECT_LT(busy * 4, idle) << "both look as often";
}

}  // namespace
}  // namespace starling::testing
