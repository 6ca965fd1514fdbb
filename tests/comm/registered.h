// Registered all-reduces of two ranks, for tests.
#pragma once
#include <atomic>
#include <thread>
#include <vector>

#include "comm/threads.h"

namespace starling::testing {

inline constexpr uint32_t kBoth[] = {0, 1};

inline starling_operation all_reduce_of(size_t count) {
  starling_operation op = operation(STARLING_ALL_REDUCE);
  op.count = count;
  return op;
}

inline void register_all_reduce(Rank& rank, int64_t id, size_t count) {
  const starling_operation shape = all_reduce_of(count);
  ASSERT_EQ(starling_register(rank.comm, id, kBoth, 2, &shape), STARLING_SUCCESS) << starling_last_error();
}

inline void run_once(Rank& rank, int64_t id, size_t count, bool in_place) {
  std::vector<float> input(count), output(count, -1);
  for (size_t k = 0; k < count; ++k) input[k] = float(rank.rank + k % 501);
  std::vector<float>& result = in_place ? input : output;
  std::atomic<int> ended{-1};
  const auto end = [](starling_status status, const char*, void* user) {
    // Release: the results are there before it; pairs with the look below.
    static_cast<std::atomic<int>*>(user)->store(int(status), std::memory_order_release);
  };
  ASSERT_EQ(starling_run(rank.comm, id, input.data(), result.data(), end, &ended), STARLING_SUCCESS)
      << starling_last_error();
  while (ended.load(std::memory_order_acquire) == -1) std::this_thread::yield();
  ASSERT_EQ(ended.load(), int(STARLING_SUCCESS));
  for (size_t k = 0; k < count; ++k) ASSERT_EQ(result[k], float(1 + 2 * (k % 501))) << k << " of " << count;
}

}  // namespace starling::testing
