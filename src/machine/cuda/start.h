// Launching start kernels, and gates of captured operations. Callable from host code that is not compiled by
// nvcc.
#pragma once
#include "device/gate.h"
#include "device/start.h"

namespace starling::cuda {

// Asynchronous. `stream` is any stream of the device; `arguments` are copied. Returns a cudaError_t; 0 is
// success.
int launch_start(const device::StartArguments& arguments, uint32_t blocks, void* stream);

// Likewise.
int launch_gate(const device::GateArguments& gate, void* stream);

// Runs the kernel once with nothing to do (daemon.h says why), and loads the other.
int preload_start(void* stream);

}  // namespace starling::cuda
