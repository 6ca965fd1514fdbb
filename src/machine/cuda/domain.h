// The memory synchronization domain of the library's kernels (CUDA C++ Programming Guide).
//
// A kernel that ends waits for all that kernels of its domain have under way. In one domain with ours each
// kernel of the program would wait for what ours write, up to 12 us (docs/design/0025-memory-domain.md). So
// they have the domain that is meant for remote traffic. All of them, since they meet by atomics and fences
// of the GPU's scope, which hold within a domain; and by a map of their own, since the program may have given
// another one to its streams. Between domains, what stands in a stream one behind the other is ordered as
// ever; device/handover.h, fenced_here(), says what else is relied on.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace starling::cuda {

inline constexpr uint8_t kProgramsDomain = 0;
inline constexpr uint8_t kOurDomain = 1;
inline constexpr uint32_t kDomainAttributes = 2;

// How many attributes a launch has for it: none where the current device has one domain only.
inline uint32_t domain_attributes() {
  int device = 0, domains = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&domains, cudaDevAttrMemSyncDomainCount, device) != cudaSuccess)
    (void)cudaGetLastError();
  return domains > kOurDomain ? kDomainAttributes : 0;
}

// Of a launch by the driver's function.
inline void set_domain(CUlaunchAttribute* attributes) {
  attributes[0] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
  attributes[0].value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  attributes[1] = {};
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
  attributes[1].value.memSyncDomainMap = {kProgramsDomain, kOurDomain};
}

// By the runtime's. Asynchronous; the arguments are copied.
template <class... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), uint32_t blocks, uint32_t threads, void* stream,
                          const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchAttribute attributes[kDomainAttributes] = {};
  attributes[0].id = cudaLaunchAttributeMemSyncDomain;
  attributes[0].val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
  attributes[1].id = cudaLaunchAttributeMemSyncDomainMap;
  attributes[1].val.memSyncDomainMap = {kProgramsDomain, kOurDomain};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = domain_attributes();
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status != cudaSuccess) (void)cudaGetLastError();  // it is reported once
  return status;
}

}  // namespace starling::cuda
