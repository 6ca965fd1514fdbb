// The gate of a captured operation: a kernel of one warp that holds its stream until this replay's operation
// is complete (docs/design/0019-cuda-graphs.md). Eager operations have wait values instead, which name a
// number.
#pragma once
#include "device/machine.h"
#include "wire/handover.h"

namespace starling::device {

struct GateArguments {
  const uint64_t* captured;  // StartArguments::captured
  const Done* done;  // Handover::done
};

// By one thread.
template <class M>
STARLING_HOST_DEVICE void hold_captured(M& m, const GateArguments& gate) {
  // Relaxed: the replay has the start kernel before us.
  const uint64_t number = m.load_relaxed(gate.captured);
  const uint64_t* done = &gate.done[number % M::kLaneDepth].done;
  // Acquire: pairs with the release in count_finished(): kernels behind us see what the operation wrote.
  for (uint32_t attempt = 0; !reached(m.load_acquire(done), number + 1); ++attempt) m.pause(attempt);
}

}  // namespace starling::device
