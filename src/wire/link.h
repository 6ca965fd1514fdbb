// What the two ends of a flow tell each other (link/flow.h). Each message is a snapshot of what its sender
// knows: everything in it only grows, so a message that is lost, doubled or late does no harm, and "higher
// epoch wins" is a comparison of (epoch, attempt).
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

inline constexpr uint32_t kMaxPaths = 8;  // between two ranks
using PathSet = uint8_t;  // bit p: path p
static_assert(kMaxPaths <= 8 * sizeof(PathSet));

// Transfers of a flow that may be under way at once.
inline constexpr uint32_t kFlowWindow = 64;

enum class LinkMessageKind : uint32_t {
  kProposal = 1,  // sender to receiver: FENCE, or SWITCH when no path is lost: the next epoch and its paths
  kReport = 2,  // receiver to sender: ACK and RESUME; the peer's word on paths that failed there
  kProbe = 3,  // either way: answer on this path
  kAnswer = 4,  // sender to receiver: to its probe. The receiver answers by a report
  kFailed = 5,  // either way: this end gave the flow up
};

struct LinkMessage {
  uint32_t kind;
  uint32_t epoch;  // proposal: the one to come; report: the one whose data is accepted
  uint32_t attempt;  // at this epoch; report: the one that was agreed to
  uint32_t probe;  // number that is asked or answered; 0: none
  uint64_t done;  // report: all transfers before this one are in the receiver's memory
  uint64_t landed;  // report: bit k: transfer done + k is, too
  uint32_t incarnations[kMaxPaths];  // proposal: of the paths to use. Report: below it, nothing is accepted
  PathSet use;  // proposal: the paths that the epoch's data will take
  PathSet survivors;  // proposal: paths of the epoch before that live: the proposal comes behind their data
  uint8_t reserved[2];
  uint32_t held_us;  // report: how long its end kept it to itself, since the last transfer in it came. For
                     // monitors alone
};
static_assert(sizeof(LinkMessage) == 72);

// Behind a report on a socket, for monitors alone: how long before it each transfer came, of s at s % 32. Of
// those from done - 16 on, and before done + 16.
struct ArrivalAges {
  static constexpr uint32_t kCount = 32;
  static constexpr uint16_t kUnknown = 0xffff;  // or longer
  uint16_t us[kCount];

  // Null: not one of those.
  const uint16_t* of(uint64_t sequence, uint64_t done) const {
    return sequence + kCount / 2 >= done && sequence < done + kCount / 2 ? &us[sequence % kCount] : nullptr;
  }
};
static_assert(sizeof(ArrivalAges) == 64);

// 32 bits that travel with a write (verbs: immediate data). The receiver knows both numbers but for their low
// bits: epochs are at most one apart, transfers at most a window.
inline constexpr uint32_t kImmediateSequenceBits = 24;

constexpr uint32_t immediate_of(uint32_t epoch, uint64_t sequence) {
  return epoch << kImmediateSequenceBits | uint32_t(sequence & ((1u << kImmediateSequenceBits) - 1));
}
// The number with these low bits that is nearest to one the receiver knows.
constexpr uint64_t nearest(uint64_t known, uint32_t low, uint32_t bits) {
  const uint32_t difference = (low - uint32_t(known)) << (32 - bits);
  return known + uint64_t(int64_t(int32_t(difference) >> (32 - bits)));
}
constexpr uint64_t sequence_of(uint32_t immediate, uint64_t known) {
  return nearest(known, immediate & ((1u << kImmediateSequenceBits) - 1), kImmediateSequenceBits);
}
constexpr uint32_t epoch_of(uint32_t immediate, uint32_t known) {
  return uint32_t(nearest(known, immediate >> kImmediateSequenceBits, 32 - kImmediateSequenceBits));
}

}  // namespace starling
