// machine/registered over the driver: which allocation an address is in, and CUDA IPC.
#pragma once
#include <cuda.h>

#include <cstddef>

#include "machine/registered/own.h"
#include "machine/registered/peers.h"

namespace starling::cuda {

class DriverAllocations final : public Allocations {
 public:
  explicit DriverAllocations(int device) : device_(device) {}
  std::optional<Allocation> find(uint64_t address) override;
  void export_to(const Allocation& allocation, uint8_t (&handle)[kRegistrationHandleBytes]) override;

 private:
  const int device_;
};

// Opened for the context's GPU, wherever the memory lies.
class IpcHandles final : public Handles {
 public:
  explicit IpcHandles(int device) : device_(device) {}
  uint64_t open(const uint8_t (&handle)[kRegistrationHandleBytes]) override;
  void close(uint64_t base) override;

 private:
  const int device_;
};

// The driver's number of the allocation that the address is in, never used again; 0: it says none.
uint64_t identity_of(const void* memory);

// False if other processes cannot open the memory: it is not of cudaMalloc. True if the driver does not know.
bool is_ipc_capable(const void* memory);

}  // namespace starling::cuda
