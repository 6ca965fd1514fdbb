// Striping goes by bytes: a transfer takes a path of which no other has fewer that were posted and have not
// landed. The sender (sender.h) counts transfers, and for it those are done that a link has taken: so where
// each large one follows upon a small one, the first path would have all the large ones. A link that knows
// lengths refuses the post, and the sender tries the others. Small ones go by the sender's count: reports of
// them come late, and a path that is idle by then would seem to have something under way.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "link/flow.h"
#include "link/path.h"

namespace starling::link {

inline constexpr uint64_t kEvenBytes = 64 << 10;  // paths that are no further apart are even

// What reports have said, in whatever order they came: all before `done` have landed, and done + k where bit
// k of `landed` is set.
struct HeardLandings {
  uint64_t done;
  uint64_t landed;

  // Reports come by any path, so an older one may come later; what has landed stays so.
  void note(const LinkMessage& report) {
    if (report.done < done) return;
    landed = report.done == done ? landed | report.landed : report.landed;
    done = report.done;
  }
  bool has(uint64_t sequence) const {
    return sequence < done || (sequence - done < kFlowWindow && (landed >> (sequence - done) & 1));
  }
};

// Of the epoch's paths that are open, in bytes that have not landed; paths that are `even_bytes` apart, or
// less, are even. bytes_of(sequence): of a transfer that was posted. One of the paths always has the least.
template <class BytesOf>
bool has_least_under_way(const SenderState& sender, const HeardLandings& heard, PathSet open, uint32_t path,
                         uint64_t even_bytes, BytesOf&& bytes_of) {
  if (std::has_single_bit(sender.use)) return true;
  std::array<uint64_t, kMaxPaths> bytes{};
  for (uint64_t k = std::max(sender.acked, heard.done); k < sender.transmitted; ++k)
    if (!heard.has(k)) bytes[sender.path_of[k % kFlowWindow]] += bytes_of(k);
  for (uint32_t other = 0; other < kMaxPaths; ++other)
    if (sender.use & open & bit(other) && bytes[other] + even_bytes < bytes[path]) return false;
  return true;
}

}  // namespace starling::link
