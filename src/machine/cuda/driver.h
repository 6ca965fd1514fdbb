// The driver's own functions, found at run time: the library does not link libcuda, which a machine without a
// GPU does not have.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <string>

#include "base/error.h"

namespace starling::cuda {

// As it was in that version of CUDA. Null where this driver does not have it.
template <class Function>
Function find_driver_function(const char* name, unsigned version = 12000) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found);
  if (status == cudaSuccess && found == cudaDriverEntryPointSuccess) return reinterpret_cast<Function>(entry);
  (void)cudaGetLastError();
  return nullptr;
}

template <class Function>
Function driver_function(const char* name) {
  if (const auto function = find_driver_function<Function>(name)) return function;
  throw Error(Code::unsupported, std::string("the driver has no ") + name,
              "install a driver for CUDA 12 or newer");
}

}  // namespace starling::cuda
