// What the programs that measure on GPUs share: ranks as threads, a store that they meet in, and NCCL beside.
#pragma once
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <starling/starling.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace gpu_bench {

[[noreturn]] inline void die(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}
inline void cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) die(what, cudaGetErrorString(status));
}
inline void ok(starling_status status, const char* what) {
  if (status != STARLING_SUCCESS) die(what, starling_last_error());
}

// The few functions of NCCL that are used; its header is not needed.
struct Nccl {
  using Comm = void*;
  int (*init_all)(Comm*, int, const int*);
  int (*all_reduce)(const void*, void*, size_t, int type, int op, Comm, cudaStream_t);
  int version = 0;
  bool load() {
    void* library = dlopen("libnccl.so.2", RTLD_NOW);
    if (library == nullptr) return false;
    init_all = reinterpret_cast<decltype(init_all)>(dlsym(library, "ncclCommInitAll"));
    all_reduce = reinterpret_cast<decltype(all_reduce)>(dlsym(library, "ncclAllReduce"));
    const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
    if (get_version != nullptr) get_version(&version);
    return init_all != nullptr && all_reduce != nullptr;
  }
};

struct Store {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
};
inline int store_set(void* user, const char* key, const void* value, size_t bytes) {
  auto& store = *static_cast<Store*>(user);
  std::lock_guard lock(store.mutex);
  store.values[key].assign(static_cast<const char*>(value), bytes);
  store.changed.notify_all();
  return 0;
}
inline int store_get(void* user, const char* key, void* value, size_t* bytes, int64_t timeout_ns) {
  auto& store = *static_cast<Store*>(user);
  std::unique_lock lock(store.mutex);
  if (!store.changed.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                              [&] { return store.values.count(key); }))
    return 1;
  const std::string& found = store.values[key];
  std::memcpy(value, found.data(), std::min(*bytes, found.size()));
  *bytes = found.size();
  return 0;
}

using Clock = std::chrono::steady_clock;
inline double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// One rank's context and its communicator of all ranks.
struct Member {
  starling_context* context = nullptr;
  starling_comm* comm = nullptr;

  Member(int rank, int ranks, int device, Store& store) {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    starling_context_options options{};
    options.struct_bytes = sizeof options;
    const std::string name = "cuda:" + std::to_string(device);
    options.device = name.c_str();
    ok(starling_context_create(&options, &context), "context");
    const starling_store functions{&store, store_set, store_get};
    starling_comm_options join{};
    join.struct_bytes = sizeof join;
    join.rank = uint32_t(rank);
    join.size = uint32_t(ranks);
    join.name = "bench";
    join.store = &functions;
    ok(starling_comm_create(context, &join, &comm), "communicator");
  }
  ~Member() {
    ok(starling_comm_destroy(comm), "destroy");
    ok(starling_context_destroy(context), "destroy");
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
};

}  // namespace gpu_bench
