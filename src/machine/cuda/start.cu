#include "machine/cuda/start.h"

#include <algorithm>
#include <tuple>

#include "machine/cuda/combine.cuh"
#include "machine/cuda/domain.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/machine.cuh"
#include "wire/pack.h"

namespace starling::cuda {

namespace {

template <device::StartWay kWay>
__global__ void __launch_bounds__(kStartThreads, 1)
    start_kernel(const __grid_constant__ device::StartArguments arguments) {
  __shared__ device::StartState state;
  __shared__ CudaMachine::StartStage stage;
  if (arguments.lane == nullptr) return;  // StartKernels::preload()
  device::run_start<kWay>(CudaMachine(blockDim.x, &stage), arguments, state);
}

// The driver copies all of an argument: 1.5 KB an operation.
template <uint32_t kMost>
struct Together {
  device::StartArguments each[kMost];
};

template <uint32_t kMost, device::StartWay kWay = device::StartWay::kGeneral>
__global__ void __launch_bounds__(kStartThreads, 1)
    start_together_kernel(const __grid_constant__ Together<kMost> arguments) {
  __shared__ device::StartState state;
  __shared__ CudaMachine::StartStage stage;
  uint32_t block = blockIdx.x;
  const uint32_t k = device::operation_of_block(arguments.each, block);
  if (arguments.each[k].lane == nullptr) return;  // StartKernels::preload()
  device::run_start<kWay>(StartMachine(blockDim.x, &stage, block), arguments.each[k], state);
}

__global__ void gate_kernel(const __grid_constant__ device::GateArguments gate) {
  CudaMachine machine(1);
  device::hold_captured(machine, gate);
}

uint32_t threads_of(const Operation& operation) {
  return threads_for(std::min(operation.tile_bytes, operation.chunk_bytes));
}

template <class Kernel>
cudaError_t find(Kernel* kernel, CUfunction* function) {
  return cudaGetFuncBySymbol(function, reinterpret_cast<const void*>(kernel));
}

}  // namespace

int StartKernels::load() {
  launch_ = driver_function<Launch>("cuLaunchKernelEx");
  domain_attributes_ = domain_attributes();
  for (const cudaError_t status :
       {find(start_kernel<device::StartWay::kNone>, &ways_[uint32_t(device::StartWay::kNone)]),
        find(start_kernel<device::StartWay::kPackets>, &ways_[uint32_t(device::StartWay::kPackets)]),
        find(start_kernel<device::StartWay::kPacketsOnce>, &ways_[uint32_t(device::StartWay::kPacketsOnce)]),
        find(start_kernel<device::StartWay::kPullsOnce>, &ways_[uint32_t(device::StartWay::kPullsOnce)]),
        find(start_kernel<device::StartWay::kPulls>, &ways_[uint32_t(device::StartWay::kPulls)]),
        find(start_together_kernel<2>, &two_),
        find(start_together_kernel<2, device::StartWay::kPackets>, &two_of_packets_),
        find(start_together_kernel<2, device::StartWay::kPacketsOnce>, &two_once_),
        find(start_together_kernel<device::kMostTogether>, &most_)})
    if (status != cudaSuccess) return status;
  return load_call();
}

template <uint32_t kMost>
int StartKernels::launch_together(CUfunction function, const CUlaunchConfig& config,
                                  const device::StartArguments* const* starts, uint32_t count) const {
  // The driver copies what it points to, and writes nothing there.
  void* arguments[] = {const_cast<device::StartArguments*>(starts[0])};
  Together<kMost> together;
  bool lie_together = count == kMost;
  for (uint32_t k = 0; k < count; ++k) lie_together &= starts[k] == starts[0] + k;
  if (!lie_together) {
    for (uint32_t k = 0; k < count; ++k) together.each[k] = *starts[k];
    arguments[0] = &together;
  }
  return int(launch_(&config, function, arguments, nullptr));
}

CUfunction StartKernels::kernel_of_two(const device::StartArguments* const* starts) const {
  uint32_t once = 0, packets = 0;
  for (uint32_t k = 0; k < 2; ++k) {
    const device::StartWay way = device::way_of(starts[k]->bound);
    once += way == device::StartWay::kPacketsOnce;
    packets += way == device::StartWay::kPackets;
  }
  if (once == 2) return two_once_;
  return once + packets == 2 ? two_of_packets_ : two_;
}

int StartKernels::launch(const device::StartArguments* const* starts, uint32_t count, void* stream) const {
  // It may be launched while what stands before it in the stream still writes its results back; the kernel
  // waits for that itself (CudaMachine::await_stream).
  CUlaunchAttribute attributes[kDomainAttributes + 1];
  set_domain(attributes);
  CUlaunchAttribute& early = attributes[domain_attributes_] = {};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  uint32_t blocks = 0, threads = 0;
  for (uint32_t k = 0; k < count; ++k) {
    blocks += starts[k]->operation.block_count;
    threads = std::max(threads, threads_of(starts[k]->operation));
  }
  config.gridDimX = blocks;
  config.blockDimX = threads;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.hStream = static_cast<CUstream>(stream);
  config.attrs = attributes;
  config.numAttrs = domain_attributes_ + 1;
  if (count == 2) return launch_together<2>(kernel_of_two(starts), config, starts, count);
  if (count > 2) return launch_together<device::kMostTogether>(most_, config, starts, count);
  // The driver copies what it points to, and writes nothing there.
  void* arguments[] = {const_cast<device::StartArguments*>(starts[0])};
  return int(launch_(&config, ways_[uint32_t(device::way_of(starts[0]->bound))], arguments, nullptr));
}

int launch_gate(const device::GateArguments& gate, void* stream) {
  return int(launch_kernel(gate_kernel, 1, 1, stream, gate));
}

// Each kernel that has a stack is launched once: the first of all that needs more local memory than any
// before waits for the whole device (docs/GPU_PROBE.md), which must not be while operations stand there.
int StartKernels::preload(void* stream) const {
  cudaFuncAttributes attributes;
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, gate_kernel); status != cudaSuccess)
    return status;
  device::StartArguments nothing{};
  nothing.operation.tile_bytes = kStartThreads * sizeof(Pack);
  nothing.operation.chunk_bytes = nothing.operation.tile_bytes;
  nothing.operation.block_count = 1;
  const device::StartArguments* const starts[] = {&nothing, &nothing, &nothing};
  for (const auto& [count, bound, pulls, once] : {std::tuple(1, 0, 0, 0),
                                                  {1, 1, 0, 0},
                                                  {1, 1, 1, 0},
                                                  {1, 1, 0, 1},
                                                  {1, 1, 1, 1},
                                                  {2, 0, 0, 0},
                                                  {2, 1, 0, 0},
                                                  {2, 1, 0, 1},
                                                  {3, 0, 0, 0}}) {
    nothing.bound.count = uint32_t(bound);
    nothing.bound.pulls = uint8_t(pulls);
    nothing.bound.once = uint8_t(once);
    if (const int status = launch(starts, uint32_t(count), stream); status != cudaSuccess) return status;
  }
  return preload_call(stream);
}

}  // namespace starling::cuda
