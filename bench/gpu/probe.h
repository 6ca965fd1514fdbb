// What programs that probe the GPUs with CUDA alone have in common: an error ends them.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CUDA(call)                                                \
  do {                                                            \
    const cudaError_t status = (call);                            \
    if (status != cudaSuccess) {                                  \
      std::printf("%s: %s\n", #call, cudaGetErrorString(status)); \
      std::exit(1);                                               \
    }                                                             \
  } while (false)

template <class T>
T* zeroed(size_t bytes) {
  void* memory;
  CUDA(cudaMalloc(&memory, bytes));
  CUDA(cudaMemset(memory, 0, bytes));
  return static_cast<T*>(memory);
}

// Places that a kernel may store to.
struct Words {
  uint64_t* here;
  uint64_t* host;
  uint64_t* peer;
};

inline __device__ uint64_t now() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
