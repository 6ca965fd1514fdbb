// What a path did, transfer by transfer: a ring with one writer, the proxy that owns the path, and any number
// of readers, also in other processes.
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

inline constexpr uint32_t kPathRecords = 1024;  // a power of two; 10 ms of 100,000 transfers a second

struct TransferRecord {
  uint64_t posted_ns;  // monotonic clock of the host
  uint64_t completed_ns;
  uint64_t bytes;
  uint64_t left_bytes;  // posted on the path and not completed, after this one was
};
static_assert(sizeof(TransferRecord) == 32);

struct alignas(64) PathRing {
  uint64_t written;  // writer: the proxy. Record k is in place k % kPathRecords
  uint64_t reserved[7];
  TransferRecord records[kPathRecords];
};
static_assert(sizeof(PathRing) == 64 + kPathRecords * sizeof(TransferRecord));

}  // namespace starling
