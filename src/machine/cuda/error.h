// Errors of the CUDA runtime as Starling's.
#pragma once
#include <cuda_runtime.h>

#include <string>

#include "base/error.h"

namespace starling::cuda {

inline void check(cudaError_t status, const char* what,
                  std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // it is told now
  const bool memory = status == cudaErrorMemoryAllocation;
  throw Error(
      memory ? Code::exhausted : Code::system, std::string(what) + " failed: " + cudaGetErrorString(status),
      memory ? "free GPU memory, or make contexts before the program takes it all"
             : "see the driver's log (nvidia-smi, dmesg); a kernel's earlier error ends every later call",
      where);
}

}  // namespace starling::cuda
