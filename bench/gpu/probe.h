// What programs that probe the GPUs with CUDA alone have in common: an error ends them.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
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
