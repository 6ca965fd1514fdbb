// The block's side of its trace ring.
#pragma once
#include "device/machine.h"
#include "wire/trace.h"

namespace starling::device {

template <class M>
STARLING_HOST_DEVICE void trace(M& m, TraceRing& ring, TraceEvent event, uint32_t lane, uint64_t sequence,
                                uint64_t detail) {
  if (ring.capacity == 0) return;
  const uint64_t written = m.load_relaxed(&ring.written);
  TraceRecord& record = ring.records[written & (ring.capacity - 1)];
  // Single words, so that a reader that is overrun sees stale or new words, never torn ones.
  m.store_relaxed(&record.ticks, m.now());
  m.store_relaxed(&record.sequence, sequence);
  m.store_relaxed(&record.detail, detail);
  m.store_relaxed(reinterpret_cast<uint64_t*>(&record.lane), uint64_t(lane) | uint64_t(event) << 32);
  // Release: the record before the count; pairs with the reader's acquire.
  m.store_release(&ring.written, written + 1);
}

}  // namespace starling::device
