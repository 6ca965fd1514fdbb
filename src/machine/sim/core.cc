#include "machine/sim/core.h"

#include "device/daemon.h"
#include "device/submission_queue.h"

namespace starling::sim {

static_assert(device::Machine<SimMachine>);

// Found by argument-dependent lookup, and better than the template: every move of data passes the shadow.
inline void combine(SimMachine& m, const device::Combine& c) {
  Move move;
  for (uint32_t s = 0; s < c.source_count; ++s) move.sources[s] = c.sources[s];
  for (uint32_t d = 0; d < c.destination_count; ++d) move.destinations[d] = c.destinations[d];
  move.bytes = c.bytes;
  move.source_count = c.source_count;
  move.destination_count = c.destination_count;
  move.scaled_source = c.scaled_source;
  move.divisor = c.divisor;
  move.factor = c.factor;
  move.data_type = c.data_type;
  move.reduce_op = c.reduce_op;
  m.move(move);
}

const Core& shipped_core() {
  static constexpr Core kCore{
      "shipped", sizeof(device::BlockState),
      [](SimMachine& m, const Residency& r) {
        const device::DaemonArguments arguments{
            r.daemon, static_cast<device::CompletionMemory*>(r.completions),
            device::CompletionQueueKind(r.completion_kind), r.launch, r.pool_base};
        return device::Daemon<SimMachine>(m, arguments, *static_cast<device::BlockState*>(r.block_state))
            .run();
      },
      [](SimMachine& m, SubmissionRing& ring, uint32_t block_count, const Submission& submission) {
        return device::push_submission(m, ring, block_count, submission);
      },
      [](SimMachine& m, uint32_t kind, void* completions, uint64_t& token) {
        return device::pop(m, device::CompletionQueueKind(kind),
                           *static_cast<device::CompletionMemory*>(completions), token);
      }};
  return kCore;
}

}  // namespace starling::sim
