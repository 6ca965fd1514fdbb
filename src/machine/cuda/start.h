// Launching start kernels, and gates of captured operations. Callable from host code that is not compiled by
// nvcc.
#pragma once
#include "device/gate.h"
#include "device/start.h"

namespace starling::cuda {

// One kernel for `count` operations, device::kMostTogether at most. Asynchronous. `stream` is any stream of
// the device; the arguments are copied. Returns a cudaError_t; 0 is success.
int launch_start(const device::StartArguments* const* starts, uint32_t count, void* stream);

// Likewise.
int launch_gate(const device::GateArguments& gate, void* stream);

// Runs the kernel once with nothing to do (daemon.h says why), and loads the others.
int preload_start(void* stream);

}  // namespace starling::cuda
