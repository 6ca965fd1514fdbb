// Goal: an operation that is perhaps waited for, or not at all, is heard of soon, and its callback runs once,
// whoever runs it. Method: chains of messages that callbacks alone continue; waits that give up at all
// moments.
#include <sched.h>

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

// On one core the daemon is often through with an operation before its submitter goes on. The poller sleeps
// as one whose work a waiter does, and has to be rung all the same.
TEST(PerhapsWaited, WhatTheDaemonEndsAtOnceIsHeardOf) {
  constexpr int kTimes = 100;
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // of threads that are made from here on
  int late = 0;
  run_ranks({.size = 1}, [&](Rank& rank) {
    struct Heard {
      std::mutex mutex;
      std::condition_variable changed;
      int count = 0;
    } heard;
    float value = 1;
    starling_operation op = operation(STARLING_ALL_REDUCE);
    op.input = op.output = &value;
    op.count = 1;
    for (int k = 1; k <= kTimes; ++k) {
      op.waited = STARLING_WAITED;
      op.callback = nullptr;
      starling_request* request = nullptr;
      ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
      ASSERT_EQ(starling_wait(request, -1), STARLING_SUCCESS) << starling_last_error();
      starling_request_free(request);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // until all sleep
      op.waited = STARLING_NOT_WAITED;
      op.user = &heard;
      op.callback = [](starling_status, const char*, void* user) {
        auto& heard = *static_cast<Heard*>(user);
        const std::lock_guard lock(heard.mutex);
        ++heard.count;
        heard.changed.notify_one();
      };
      const auto start = std::chrono::steady_clock::now();
      ASSERT_EQ(starling_submit(rank.comm, &op, nullptr), STARLING_SUCCESS) << starling_last_error();
      std::unique_lock lock(heard.mutex);
      ASSERT_TRUE(heard.changed.wait_for(lock, std::chrono::seconds(20), [&] { return heard.count == k; }));
      late += std::chrono::steady_clock::now() - start > std::chrono::milliseconds(50);
    }
  });
  sched_setaffinity(0, sizeof all, &all);
  // A poller that nobody rings looks every tenth of a second.
  EXPECT_LT(late, kTimes / 8);
}

}  // namespace
}  // namespace starling::testing
