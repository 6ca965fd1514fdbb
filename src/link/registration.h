// Memory that this rank's RDMA devices may read, and that peers may write into. It is so until nobody holds
// the registration any more, and a little longer: whoever gave the memory back to its owner has seen to it
// that no peer writes there (docs/design/0015-verbs.md, Straight).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "wire/queue_pairs.h"

namespace starling::link {

// What is to be registered. Of a dma-buf devices know the part by its address all the same.
struct Region {
  std::byte* begin;
  uint64_t bytes;
  int dma_buf = -1;  // from whose beginning on; -1: by its address alone
  bool on_device = false;  // hosts may not touch it
};

struct Registration {
  virtual ~Registration() = default;
  bool on_device = false;  // the region was
  uint32_t local_keys[kMaxRdmaDevices] = {};  // by device; 0: not with that one
  RemoteKeys remote_keys = {};
};

// Null: the memory is not registered.
using RegistrationPtr = std::shared_ptr<const Registration>;

}  // namespace starling::link
