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

// Loads the kernels' module now: a first launch would wait for the whole device.
int preload_start();

}  // namespace starling::cuda
