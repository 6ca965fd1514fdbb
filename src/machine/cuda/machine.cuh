// The cuda machine: a block is a thread block. Nobody sleeps: waiting is polling, then polling less often.
#pragma once
#include <cuda_runtime.h>

#include "device/machine.h"

namespace starling::cuda {

class CudaMachine {
 public:
  static constexpr uint32_t kThreads = 0;
  static constexpr bool kVectorThreads = true;
  static constexpr bool kPlainWrites = true;

  __device__ uint32_t thread_index() const { return threadIdx.x; }
  __device__ uint32_t thread_count() const { return blockDim.x; }
  __device__ uint32_t block_index() const { return blockIdx.x; }

  // System scope throughout: peers and the host look at the same words. On NVLink and within the GPU the
  // scope costs nothing over device scope for these word-sized accesses; fences are where scope would matter.
  __device__ uint64_t load_acquire(const uint64_t* p) const {
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
  }
  __device__ uint64_t load_relaxed(const uint64_t* p) const {
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
  }
  // After a barrier this also releases what the other threads of the block wrote: causality order goes
  // through the barrier (PTX memory model, cumulativity).
  __device__ void store_release(uint64_t* p, uint64_t v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  __device__ void store_relaxed(uint64_t* p, uint64_t v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  __device__ uint64_t fetch_add(uint64_t* p, uint64_t v) {
    uint64_t old;
    asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
  }
  __device__ uint64_t compare_exchange(uint64_t* p, uint64_t expected, uint64_t desired) {
    uint64_t old;
    asm volatile("atom.acq_rel.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(p), "l"(expected), "l"(desired)
                 : "memory");
    return old;
  }
  __device__ void fence() { asm volatile("fence.sc.sys;" ::: "memory"); }

  __device__ bool any(bool value) { return __syncthreads_or(value) != 0; }
  __device__ void barrier() { __syncthreads(); }
  __device__ void write(std::byte* to, const std::byte* from, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; ++i) to[i] = from[i];
  }

  __device__ uint64_t now() const {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
  }
  __device__ bool expired(uint64_t start, uint64_t budget) const { return now() - start >= budget; }

  __device__ void pause(uint32_t attempt) {
    if (attempt > kEagerPolls) __nanosleep(40);
  }
  __device__ void idle(uint32_t pass) { __nanosleep(pass < 16 ? 100 : 1000); }
  __device__ void busy() {}
  __device__ void notify(Doorbell*) {}
  __device__ void notify_host() {}

 private:
  static constexpr uint32_t kEagerPolls = 64;
};

}  // namespace starling::cuda
