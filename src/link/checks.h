// What peers say is held against bounds before it is used: here what flows say, in link/carry/checks.h what
// they carry. Each says what is wrong, in words for the link's error; null: nothing.
#pragma once
#include <cstdint>

#include "link/flow.h"
#include "wire/frame.h"
#include "wire/link.h"

namespace starling::link {

inline const char* wrong_with(const Hello& hello) {
  if (hello.path_count == 0 || hello.path_count > kMaxPaths || hello.path >= hello.path_count)
    return "a hello of a path beyond its paths";
  if (hello.incarnation == 0) return "a hello of no incarnation";
  if (hello.policy > uint32_t(Policy::kStriping)) return "a hello of an unknown policy";
  if (hello.queue_pairs.count > kMaxQueuePairs) return "a hello of more queue pairs than a path has";
  return nullptr;
}

// most_payload_bytes: of what comes in the frame.
inline const char* wrong_with_transfer(const FrameHeader& frame, uint64_t most_payload_bytes) {
  if (frame.kind != FrameKind::kTransfer) return "a frame that is no transfer";
  if (frame.control_bytes > kMostControlBytes || frame.payload_bytes > most_payload_bytes)
    return "a transfer that is longer than any";
  if (frame.placed > Placed::kAsOffered) return "a transfer that is placed nobody knows where";
  return nullptr;
}

inline const char* wrong_with(const LinkMessage& message) {
  const bool known = message.kind >= uint32_t(LinkMessageKind::kProposal) &&
                     message.kind <= uint32_t(LinkMessageKind::kFailed);
  return known ? nullptr : "a message of an unknown kind";
}

// Transfers below `sent` were sent. A report is of those.
inline const char* wrong_with_report(const LinkMessage& report, uint64_t sent) {
  if (report.done > sent) return "a report of transfers that were never sent";
  const uint64_t left = sent - report.done;
  if (left < 64 && report.landed >> left != 0) return "a report of transfers that were never sent";
  return nullptr;
}

}  // namespace starling::link
