#include "machine/cuda/start.h"

#include "machine/cuda/combine.cuh"
#include "machine/cuda/machine.cuh"
#include "wire/pack.h"

namespace starling::cuda {
namespace {

constexpr uint32_t kStartThreads = 512;
constexpr uint32_t kFewestThreads = 64;

__global__ void __launch_bounds__(kStartThreads, 1)
    start_kernel(const __grid_constant__ device::StartArguments arguments) {
  __shared__ device::StartState state;
  __shared__ alignas(16) std::byte stage[CudaMachine::kStageBytes];
  if (arguments.lane == nullptr) return;  // preload_start()
  device::run_start(CudaMachine(blockDim.x, stage), arguments, state);
}

__global__ void gate_kernel(const __grid_constant__ device::GateArguments gate) {
  CudaMachine machine(1, nullptr);
  device::hold_captured(machine, gate);
}

// A pack of 16 bytes a thread and tile; small operations spare the barriers of more warps.
uint32_t threads_of(const Operation& operation) {
  const uint64_t bytes =
      operation.tile_bytes < operation.chunk_bytes ? operation.tile_bytes : operation.chunk_bytes;
  const uint64_t wanted = (ceil_div<uint64_t>(bytes, sizeof(Pack)) + 31) / 32 * 32;
  if (wanted < kFewestThreads) return kFewestThreads;
  return wanted < kStartThreads ? uint32_t(wanted) : kStartThreads;
}

}  // namespace

int launch_start(const device::StartArguments& arguments, uint32_t blocks, void* stream) {
  // It may be launched while what stands before it in the stream still writes its results back; the kernel
  // waits for that itself (CudaMachine::await_stream).
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads_of(arguments.operation);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &early;
  config.numAttrs = 1;
  return int(cudaLaunchKernelEx(&config, start_kernel, arguments));
}

int launch_gate(const device::GateArguments& gate, void* stream) {
  gate_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(gate);
  return int(cudaGetLastError());
}

int preload_start(void* stream) {
  cudaFuncAttributes attributes;
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, gate_kernel); status != cudaSuccess)
    return int(status);
  device::StartArguments nothing{};
  nothing.operation.tile_bytes = kStartThreads * sizeof(Pack);
  nothing.operation.chunk_bytes = nothing.operation.tile_bytes;
  return launch_start(nothing, 1, stream);
}

}  // namespace starling::cuda
