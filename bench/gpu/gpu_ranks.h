// What the programs that measure on GPUs share: ranks as threads, a store that they meet in, and NCCL beside.
#pragma once
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>
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
#include <type_traits>

namespace gpu_bench {

[[noreturn]] inline void die(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::fflush(stdout);
  _exit(1);  // destructors would wait for what goes on
}
inline void cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) die(what, cudaGetErrorString(status));
}
inline void ok(starling_status status, const char* what) {
  if (status != STARLING_SUCCESS) die(what, starling_last_error());
}

// GPUs that `ranks` take in turn: one each, or fewer where RANKS_PER_GPU lets them share one (NCCL does not).
inline int devices_for(int ranks) {
  int found = 0;
  cuda(cudaGetDeviceCount(&found), "cudaGetDeviceCount");
  const char* text = std::getenv("RANKS_PER_GPU");
  const int per_gpu = text != nullptr ? std::max(1, std::atoi(text)) : 1;
  if (found * per_gpu < ranks) die("gpus", "so many are not there; RANKS_PER_GPU=2 lets two ranks share one");
  return std::min(found, ranks);
}

// The functions of NCCL that are used; its header is not needed. They return 0 for success.
struct Nccl {
  using Comm = void*;
  struct UniqueId {
    char bytes[128];
  };
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*init_rank)(Comm*, int ranks, UniqueId, int rank) = nullptr;
  int (*init_all)(Comm*, int, const int*) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int type, int op, Comm, cudaStream_t) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int type, Comm, cudaStream_t) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int type, int op, Comm, cudaStream_t) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int type, int root, Comm, cudaStream_t) = nullptr;
  int (*reduce)(const void*, void*, size_t, int type, int op, int root, Comm, cudaStream_t) = nullptr;
  int (*all_to_all)(const void*, void*, size_t, int type, Comm, cudaStream_t) = nullptr;  // from 2.28 on
  int (*send)(const void*, size_t, int type, int peer, Comm, cudaStream_t) = nullptr;
  int (*receive)(void*, size_t, int type, int peer, Comm, cudaStream_t) = nullptr;
  // For its better modes (nccl_rank.h), null where this NCCL does not have them.
  int (*init_rank_config)(Comm*, int ranks, UniqueId, int rank, void* config) = nullptr;
  int (*mem_alloc)(void**, size_t) = nullptr;
  int (*comm_register)(Comm, void*, size_t, void** handle) = nullptr;
  int (*window_register)(Comm, void*, size_t, void** window, int flags) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*get_version)(int*) = nullptr;
  int version = 0;

  // libnccl.so.2 as the loader finds it; false: it is not there, or lacks a function.
  bool load() {
    void* library = dlopen("libnccl.so.2", RTLD_NOW);
    if (library == nullptr) return false;
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    find(all_to_all, "ncclAlltoAll");
    find(init_rank_config, "ncclCommInitRankConfig");
    find(mem_alloc, "ncclMemAlloc");
    find(comm_register, "ncclCommRegister");
    find(window_register, "ncclCommWindowRegister");
    all &= find(get_unique_id, "ncclGetUniqueId") && find(init_rank, "ncclCommInitRank");
    all &= find(init_all, "ncclCommInitAll") && find(all_reduce, "ncclAllReduce");
    all &= find(all_gather, "ncclAllGather") && find(reduce_scatter, "ncclReduceScatter");
    all &= find(broadcast, "ncclBroadcast") && find(reduce, "ncclReduce");
    all &= find(send, "ncclSend") && find(receive, "ncclRecv");
    all &= find(group_start, "ncclGroupStart") && find(group_end, "ncclGroupEnd");
    if (find(get_version, "ncclGetVersion")) get_version(&version);
    return all;
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

// One rank's context and its communicator of all ranks, which meet in the store; null: in the job that
// STARLING_JOB names.
struct Member {
  starling_context* context = nullptr;
  starling_comm* comm = nullptr;

  Member(int rank, int ranks, int device, Store* store) {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    starling_context_options options{};
    options.struct_bytes = sizeof options;
    const std::string name = "cuda:" + std::to_string(device);
    options.device = name.c_str();
    ok(starling_context_create(&options, &context), "context");
    const starling_store functions{store, store_set, store_get, nullptr, nullptr};
    starling_comm_options join{};
    join.struct_bytes = sizeof join;
    join.rank = uint32_t(rank);
    join.size = uint32_t(ranks);
    join.name = "bench";
    join.store = store != nullptr ? &functions : nullptr;
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
