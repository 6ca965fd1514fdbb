// Programs with streams: every rank puts kernels and operations into its streams in an order of its own. Only
// what can be survived is drawn: no rank's own waits form a cycle with another's. What a kind may hold is
// said there.
#pragma once
#include <cstdint>

#include "machine/sim/program.h"

namespace starling::sim {

enum class StreamKind : uint8_t {
  kDisorder,  // disordered operations on several streams; at most one lane of a stream holds it at birth
  kSynchronized,  // the same with device synchronizations at any place; nothing is held but by waits at the
                  // end
  kOneQueue,  // one hardware queue: a stream that stands stops all launches behind it; likewise, and
              // operations that are held at birth where the host has filled the input of an idle stream
  kFullQueue,  // a launch queue of a few entries
  kFewSms,  // as kDisorder, on SMs that the program's own kernels fill
  kOneStream,  // one stream for all
  kGraphs,  // as kDisorder, and graphs that are replayed among them, in any order; or device synchronizations
            // at any place, and graphs in one order
  kInDriver,  // calls that wait for a stream, or for the GPU, inside of the driver; what is held at birth
              // comes in one order on all ranks, or in any where no such call is made
};
inline constexpr uint32_t kStreamKindCount = 8;

Program stream_program(StreamKind kind, uint64_t seed, const Options& machine, PlanCache& plans);
// random_options() and a GPU that goes with the kind.
Options stream_options(StreamKind kind, uint64_t seed);

}  // namespace starling::sim
