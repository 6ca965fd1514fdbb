// The block's side of its trace ring.
#pragma once
#include "device/machine.h"
#include "wire/trace.h"

namespace starling::device {

// `ticks`: when it happened; a clock may cost more than all the rest.
template <class M>
STARLING_HOST_DEVICE void trace_at(M& m, TraceRing& ring, uint64_t ticks, TraceEvent event, uint32_t lane,
                                   uint64_t sequence, uint64_t detail) {
  if (ring.capacity == 0) return;
  const uint64_t written = m.load_relaxed(&ring.written);
  TraceRecord& record = ring.records[written & (ring.capacity - 1)];
  // Single words, so that a reader that is overrun sees stale or new words, never torn ones.
  m.store_relaxed(&record.ticks, ticks);
  m.store_relaxed(&record.sequence, sequence);
  m.store_relaxed(&record.detail, detail);
  m.store_relaxed(reinterpret_cast<uint64_t*>(&record.lane), uint64_t(lane) | uint64_t(event) << 32);
  // Release: the record before the count; pairs with the reader's acquire.
  m.store_release(&ring.written, written + 1);
}

template <class M>
STARLING_HOST_DEVICE void trace(M& m, TraceRing& ring, TraceEvent event, uint32_t lane, uint64_t sequence,
                                uint64_t detail) {
  if (ring.capacity != 0) trace_at(m, ring, m.now(), event, lane, sequence, detail);
}

}  // namespace starling::device
