// Why a daemon's block leaves, and what it leaves behind. By the block's leader.
#pragma once
#include "device/daemon_state.h"
#include "device/machine.h"
#include "wire/handover.h"

namespace starling::device {

// Relaxed: a hint, renewed in every pass.
template <class M>
STARLING_HOST_DEVICE bool none_progresses(M& m, const DaemonMemory& daemon, uint64_t period) {
  for (uint32_t b = 0; b < daemon.block_count; ++b)
    if (!m.expired(m.load_relaxed(&daemon.blocks[b].last_progress), period)) return false;
  return true;
}

// Mostly not, and a look without an order says so. Acquire: pairs with the release in count_finished(), or
// the host's: what stands behind the watch in its stream sees what the operation wrote.
template <class M>
STARLING_HOST_DEVICE bool is_released(M& m, const DaemonArguments& a) {
  if (!watches(a) || !reached(m.load_relaxed(a.awaited), a.until)) return false;
  return reached(m.load_acquire(a.awaited), a.until);
}
// The host ends a kernel, or all. Relaxed: nothing hangs on it.
template <class M>
STARLING_HOST_DEVICE bool is_dismissed(M& m, const DaemonArguments& a) {
  return m.load_relaxed(&a.daemon->parts->dismissed) >= a.launch;
}

// When nothing goes on it gives its place back, and others go on without it: helpers, and a daemon beside who
// has to be there.
template <class M>
STARLING_HOST_DEVICE bool leaves_quietly(M& m, const DaemonArguments& a) {
  if (helps(a) && a.tenured == 0) return true;
  return a.tenured != 0 && a.stays == 0 && m.load_relaxed(&a.daemon->parts->anchors) > 0;
}

// Of a part that nobody serves any more: does it wait for a daemon?
template <class M>
STARLING_HOST_DEVICE bool leaves_work(M& m, const DaemonMemory& daemon, uint32_t part) {
  const BlockMemory& block = daemon.blocks[part];
  if (block.task_count > 0 || block.unpublished_count > 0) return true;
  if (daemon.parked == nullptr) return false;
  // Relaxed: a place that is taken later announces itself. Its entry may not be there yet.
  const ParkedRing& ring = daemon.parked[part];
  return m.load_relaxed(&ring.tail) != ring.head;
}

}  // namespace starling::device
