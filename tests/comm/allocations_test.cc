// Goal: an operation in steady state allocates nothing. Method: operator new of this
// program counts, thread by thread; callers submit and wait.
#include <cstdlib>
#include <new>

#include "comm/threads.h"

namespace {

thread_local int allocations = 0;

void* counted(size_t bytes) {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

// Not inlined: the compiler would see that what new gave goes to free().
__attribute__((noinline)) void* operator new(size_t bytes) {
  void* memory = counted(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
__attribute__((noinline)) void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace starling::testing {
namespace {

constexpr int kWarm = 100;  // lanes, plans and queues grow
constexpr int kTimes = 1000;
// AddressSanitizer is to find uses of a request that has ended: there each has memory of its own.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kARequest = 1;
#else
constexpr int kARequest = 0;
#endif
constexpr int kGrowth = 20;  // requests that are used again lie with a thread that does not submit just then

// Of all calls of `submit`, which fills two handles or one, and of their waits, once all is warm.
struct Allocated {
  int submitting = 0;
  int waiting = 0;
};

template <class Submit>
Allocated allocated_by(const Submit& submit) {
  Allocated all;
  for (int k = 0; k < kWarm + kTimes; ++k) {
    starling_request* requests[2] = {};
    const int before = allocations;
    EXPECT_EQ(submit(requests), STARLING_SUCCESS) << starling_last_error();
    const int between = allocations;
    for (starling_request* request : requests) {
      if (request == nullptr) continue;
      EXPECT_EQ(starling_wait(request, -1), STARLING_SUCCESS) << starling_last_error();
      starling_request_free(request);
    }
    if (k < kWarm) continue;
    all.submitting += between - before;
    all.waiting += allocations - between;
  }
  return all;
}

struct Messages {
  float sent = 1;
  float received = 0;
  starling_operation ops[2] = {operation(STARLING_SEND), operation(STARLING_RECV)};
  explicit Messages(const Rank& rank) {
    for (starling_operation& op : ops) {
      op.peer = int32_t(1 - rank.rank);
      op.count = 1;
      op.waited = STARLING_WAITED;
    }
    ops[0].input = &sent;
    ops[1].output = &received;
  }
};

TEST(Allocations, ACollectiveAllocatesNothing) {
  for (const char* lane : {static_cast<const char*>(nullptr), "a lane with a name of its own"})
    run_ranks({.size = 2}, [lane](Rank& rank) {
      float values[2] = {1, 2};
      starling_operation op = operation(STARLING_ALL_REDUCE);
      op.input = op.output = values;
      op.count = 2;
      op.reduce_op = STARLING_MAX;
      op.waited = STARLING_WAITED;
      op.lane = lane;
      const Allocated all =
          allocated_by([&](starling_request** request) { return starling_submit(rank.comm, &op, request); });
      EXPECT_LE(all.submitting, kARequest * kTimes + kGrowth);
      EXPECT_EQ(all.waiting, 0);
    });
}

TEST(Allocations, AMessageAllocatesNothing) {
  run_ranks({.size = 2}, [](Rank& rank) {
    const Messages messages(rank);
    const Allocated all = allocated_by([&](starling_request** requests) {
      const starling_status sent = starling_submit(rank.comm, &messages.ops[0], &requests[0]);
      const starling_status received = starling_submit(rank.comm, &messages.ops[1], &requests[1]);
      return sent != STARLING_SUCCESS ? sent : received;
    });
    EXPECT_LE(all.submitting, 2 * kARequest * kTimes + kGrowth);
    EXPECT_EQ(all.waiting, 0);
  });
}

TEST(Allocations, MessagesTogetherAllocateOneList) {
  run_ranks({.size = 2}, [](Rank& rank) {
    const Messages messages(rank);
    const Allocated all = allocated_by([&](starling_request** requests) {
      return starling_submit_together(rank.comm, messages.ops, 2, requests);
    });
    EXPECT_LE(all.submitting, (1 + 2 * kARequest) * kTimes + kGrowth);
    EXPECT_EQ(all.waiting, 0);
  });
}

}  // namespace
}  // namespace starling::testing
