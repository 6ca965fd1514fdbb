// Goal: an operation that is perhaps waited for begins soon if nobody waits, and its callback runs once,
// whoever runs it. Method: chains of messages that callbacks alone continue; waits that give up at all
// moments.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>

#include "comm/threads.h"

namespace starling::testing {
namespace {

starling_operation message(const Rank& rank, float* value) {
  starling_operation op = operation(rank.rank == 0 ? STARLING_SEND : STARLING_RECV);
  op.peer = int32_t(1 - rank.rank);
  op.input = op.output = value;
  op.count = 1;
  op.waited = STARLING_PERHAPS_WAITED;
  return op;
}

// Submits the next message until there are no more.
struct Chain {
  Rank rank;
  float value;
  int left;
  std::mutex mutex;
  std::condition_variable ended;

  void submit() {
    starling_operation op = message(rank, &value);
    op.callback = [](starling_status status, const char*, void* user) {
      EXPECT_EQ(status, STARLING_SUCCESS);
      static_cast<Chain*>(user)->next();
    };
    op.user = this;
    EXPECT_EQ(starling_submit(rank.comm, &op, nullptr), STARLING_SUCCESS) << starling_last_error();
  }
  void next() {
    std::unique_lock lock(mutex);
    if (--left == 0) return ended.notify_one();
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // until the daemon has left
    submit();
  }
};

TEST(PerhapsWaited, BeginsSoonIfNobodyWaits) {
  constexpr int kMessages = 40;
  const auto start = std::chrono::steady_clock::now();
  run_ranks({.size = 2}, [](Rank& rank) {
    Chain chain{rank, float(rank.rank), kMessages, {}, {}};
    chain.submit();
    std::unique_lock lock(chain.mutex);
    EXPECT_TRUE(chain.ended.wait_for(lock, std::chrono::seconds(100), [&] { return chain.left == 0; }));
  });
  // A daemon that nobody rings looks every half second.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

struct Calls {
  std::atomic<int> count{0};
  std::atomic<std::thread::id> thread{};
};

TEST(PerhapsWaited, TheCallbackRunsOnceWhoeverRunsIt) {
  constexpr int kMessages = 2000;
  std::atomic<int> by_waiters{0};
  std::atomic<int> by_others{0};
  run_ranks({.size = 2}, [&](Rank& rank) {
    std::vector<Calls> calls(kMessages);
    for (int k = 0; k < kMessages; ++k) {
      float value = rank.rank == 0 ? float(k) : -1;
      starling_operation op = message(rank, &value);
      op.callback = [](starling_status, const char*, void* user) {
        auto* mine = static_cast<Calls*>(user);
        mine->thread = std::this_thread::get_id();
        ++mine->count;
      };
      op.user = &calls[k];
      starling_request* request = nullptr;
      ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      if (k % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(k % 120));
      while (starling_wait(request, k % 4 == 0 ? -1 : k % 40 * 1000) == STARLING_TIMEOUT)
        if (k % 3 == 0) std::this_thread::yield();
      EXPECT_EQ(starling_test(request), STARLING_SUCCESS) << starling_last_error();
      starling_request_free(request);
      EXPECT_EQ(value, float(k));
    }
    for (int tries = 0;
         tries < 10'000 && std::any_of(
                               calls.begin(), calls.end(), [](const Calls& c) { return c.count == 0; });
         ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for one that runs twice
    for (const Calls& c : calls) {
      EXPECT_EQ(c.count, 1);
      ++(c.thread.load() == std::this_thread::get_id() ? by_waiters : by_others);
    }
  });
  EXPECT_GT(by_waiters, kMessages / 10);
  EXPECT_GT(by_others, 0);
}

}  // namespace
}  // namespace starling::testing
