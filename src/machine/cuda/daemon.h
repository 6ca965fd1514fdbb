// Launching the daemon kernel. Callable from host code that is not compiled by nvcc.
#pragma once
#include "device/daemon.h"

namespace starling::cuda {

inline constexpr uint32_t kDaemonThreads = 512;

// Asynchronous: the kernel runs until it quits (device/daemon.h). `stream` is a cudaStream_t that is not
// blocking. Returns a cudaError_t; 0 is success.
int launch_daemon(const device::DaemonArguments& arguments, uint32_t blocks, void* stream);

// Loads the kernel's module now: a first launch would wait for the whole device.
int preload_daemon();

}  // namespace starling::cuda
