// machine/registered over the driver: which allocation a buffer is in, CUDA IPC, and views of mapped memory.
#pragma once
#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>

#include "machine/cuda/mapped_memory.h"
#include "machine/registered/own.h"
#include "machine/registered/peers.h"

namespace starling::cuda {

class DriverAllocations final : public Allocations {
 public:
  explicit DriverAllocations(int device) : device_(device), mappings_(device), views_(mappings_) {}
  std::optional<Allocation> find(uint64_t address, uint64_t bytes) override;
  void export_to(const Allocation& allocation, uint8_t (&handle)[kRegistrationHandleBytes]) override;
  void loosen(const Allocation& allocation) override;
  // Could the allocation be found? Any thread.
  bool can_open(const void* memory);
  // A peer's process cannot ask this one for descriptors: mapped memory is none that could be opened from now
  // on.
  void without_views() { views_reach_.store(false, std::memory_order_relaxed); }

 private:
  const int device_;
  // Of cudaMalloc, by the driver's number, which is never used again: operations ask for the same ones.
  std::array<Allocation, 256> known_{};
  std::atomic<bool> views_reach_{true};
  DriverMappings mappings_;
  Views views_;
  std::optional<DescriptorServer> server_;  // from the first view that is published on
};

// Opened for the context's GPU, wherever the memory lies.
class PeerHandles final : public Handles {
 public:
  explicit PeerHandles(int device) : device_(device), views_(device) {}
  uint64_t open(const Registration& registration) override;
  void close(uint64_t base) override;

 private:
  const int device_;
  MappedViews views_;
};

// The driver's number of the allocation that the address is in, never used again; 0: it says none.
uint64_t identity_of(const void* memory);

// False if other processes cannot open the memory: it is not of cudaMalloc. True if the driver does not know.
bool is_ipc_capable(const void* memory);

}  // namespace starling::cuda
