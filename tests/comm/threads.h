// Ranks as threads of one process, for tests: each with its own context, meeting in a store of this process.
#pragma once
#include <gtest/gtest.h>
#include <starling/starling.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace starling::testing {

// A key-value store for starling_store.
class MemoryStore {
 public:
  starling_store functions() { return {this, set, get, nullptr, nullptr}; }

 private:
  static int set(void* user, const char* key, const void* value, size_t bytes) {
    auto* self = static_cast<MemoryStore*>(user);
    std::lock_guard lock(self->mutex_);
    self->values_[key] = std::string(static_cast<const char*>(value), bytes);
    self->changed_.notify_all();
    return 0;
  }
  static int get(void* user, const char* key, void* value, size_t* bytes, int64_t timeout_ns) {
    auto* self = static_cast<MemoryStore*>(user);
    std::unique_lock lock(self->mutex_);
    const bool there = self->changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                                               [&] { return self->values_.count(key) != 0; });
    if (!there) return 1;
    const std::string& text = self->values_[key];
    *bytes = std::min(*bytes, text.size());
    std::memcpy(value, text.data(), *bytes);
    return 0;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

struct Rank {
  starling_context* context;
  starling_comm* comm;
  uint32_t rank;
  uint32_t size;
};

struct RankOptions {
  uint32_t size = 4;
  uint32_t blocks = 1;
  starling_scheduling scheduling{};
  int64_t timeout_ns = 200'000'000'000;
  const char* completion_queue = nullptr;
  uint64_t last_arena_bytes = 0;  // of the last rank's segment; 0: as the others'
  starling_sm_free sm_free = STARLING_SM_FREE_DEFAULT;
};

// Runs `body` on every rank; joins. Failures inside are ordinary test failures.
inline void run_ranks(const RankOptions& options, const std::function<void(Rank&)>& body) {
  MemoryStore store;
  const starling_store functions = store.functions();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < options.size; ++r) {
    threads.emplace_back([&, r] {
      starling_context_options c{};
      c.struct_bytes = sizeof c;
      c.blocks = options.blocks;
      c.scheduling = options.scheduling;
      c.completion_queue = options.completion_queue;
      c.arena_bytes = uint64_t(1) << 30;
      if (r + 1 == options.size && options.last_arena_bytes != 0) {
        c.arena_bytes = options.last_arena_bytes;
        c.pool_bytes = 1 << 16;
      }
      Rank rank{nullptr, nullptr, r, options.size};
      ASSERT_EQ(starling_context_create(&c, &rank.context), STARLING_SUCCESS) << starling_last_error();
      starling_comm_options o{};
      o.struct_bytes = sizeof o;
      o.rank = r;
      o.size = options.size;
      o.name = "world";
      o.store = &functions;
      o.timeout_ns = options.timeout_ns;
      o.sm_free = options.sm_free;
      ASSERT_EQ(starling_comm_create(rank.context, &o, &rank.comm), STARLING_SUCCESS)
          << starling_last_error();
      body(rank);
      EXPECT_EQ(starling_comm_destroy(rank.comm), STARLING_SUCCESS) << starling_last_error();
      EXPECT_EQ(starling_context_destroy(rank.context), STARLING_SUCCESS) << starling_last_error();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline starling_operation operation(starling_collective kind) {
  starling_operation op{};
  op.struct_bytes = sizeof op;
  op.kind = kind;
  op.data_type = STARLING_FLOAT32;
  op.peer = -1;
  return op;
}

inline void expect_done(starling_request* request) {
  EXPECT_EQ(starling_wait(request, 200'000'000'000), STARLING_SUCCESS) << starling_last_error();
  starling_request_free(request);
}

}  // namespace starling::testing
