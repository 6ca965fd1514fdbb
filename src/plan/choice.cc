#include "plan/choice.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/assert.h"
#include "plan/generate.h"

namespace starling {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kAnySize = UINT64_MAX;
// Of what is pulled on CPUs. Larger outputs are stored past the caches, which no copy out of another process
// does.
constexpr std::uint64_t kPulled = 4096 * kKiB;

struct Row {
  Collective collective;
  std::uint64_t largest_bytes;
  std::string_view algorithm;
  std::uint32_t block_count;  // cut to the daemon's
};

using enum Collective;
// The first row that fits and whose algorithm takes the request; the last row of each collective fits always.
// Measured on the cpu machine. Pulled is what all ranks send and receive alike, and no message that the slots
// of a send could take before its receive is there (docs/design/0009-large-messages-between-processes.md).
constexpr Row kCpuTable[] = {
    {kAllReduce, 32 * kKiB, "one_shot", 1},
    {kAllReduce, 256 * kKiB, "two_shot", 1},
    {kAllReduce, kAnySize, "ring", 64},
    {kAllGather, 64 * kKiB, "all_pairs", 1},
    {kAllGather, kPulled, "all_pairs_pull", 64},
    {kAllGather, kAnySize, "ring", 64},
    {kReduceScatter, 64 * kKiB, "all_pairs", 1},
    {kReduceScatter, kAnySize, "ring", 64},
    {kBroadcast, 32 * kKiB, "direct", 1},
    {kBroadcast, kAnySize, "chain", 64},
    {kReduce, 32 * kKiB, "direct", 1},
    {kReduce, kAnySize, "chain", 64},
    {kAllToAll, 64 * kKiB, "pairwise", 1},
    {kAllToAll, kPulled, "pairwise_pull", 64},
    {kAllToAll, kAnySize, "pairwise", 64},
    {kGather, 64 * kKiB, "direct", 1},
    {kGather, kAnySize, "direct", 64},
    {kScatter, 64 * kKiB, "direct", 1},
    {kScatter, kAnySize, "direct", 64},
    {kSendRecv, 64 * kKiB, "direct", 1},
    {kSendRecv, 128 * kKiB, "direct", 64},
    {kSendRecv, kPulled, "direct_pull", 64},
    {kSendRecv, kAnySize, "direct", 64},
    {kBarrier, kAnySize, "one_shot", 1},
    {kBarrier, kAnySize, "ring", 1},
};

// Measured on H200s that NVLink joins. A block is no core that others need: it pays early to have several.
constexpr Row kGpuTable[] = {
    {kAllReduce, 8 * kKiB, "one_shot_packets", 1},
    {kAllReduce, 64 * kKiB, "one_shot_packets", 8},
    {kAllReduce, 512 * kKiB, "two_shot_packets", 16},
    {kAllReduce, kAnySize, "two_shot_pull", 64},
    {kAllReduce, kAnySize, "ring", 64},
    {kAllGather, 8 * kKiB, "all_pairs_packets", 1},
    {kAllGather, 256 * kKiB, "all_pairs_packets", 16},
    {kAllGather, kAnySize, "all_pairs_pull", 64},
    {kAllGather, kAnySize, "ring", 64},
    {kReduceScatter, 8 * kKiB, "all_pairs_packets", 1},
    {kReduceScatter, 256 * kKiB, "all_pairs_packets", 16},
    {kReduceScatter, kAnySize, "all_pairs_pull", 64},
    {kReduceScatter, kAnySize, "ring", 64},
    {kBroadcast, 8 * kKiB, "direct_packets", 1},
    {kBroadcast, 128 * kKiB, "direct_packets", 16},
    {kBroadcast, kAnySize, "direct_pull", 64},
    {kBroadcast, kAnySize, "chain", 64},
    {kReduce, 8 * kKiB, "direct_packets", 1},
    {kReduce, 128 * kKiB, "direct_packets", 16},
    {kReduce, kAnySize, "direct_pull", 64},
    {kReduce, kAnySize, "chain", 64},
    {kAllToAll, 8 * kKiB, "pairwise_packets", 1},
    {kAllToAll, 256 * kKiB, "pairwise_packets", 16},
    {kAllToAll, kAnySize, "pairwise_pull", 64},
    {kAllToAll, kAnySize, "pairwise", 64},
    {kGather, 8 * kKiB, "direct", 1},
    {kGather, 256 * kKiB, "direct", 8},
    {kGather, kAnySize, "direct_pull", 64},
    {kGather, kAnySize, "direct", 64},
    {kScatter, 8 * kKiB, "direct", 1},
    {kScatter, 256 * kKiB, "direct", 8},
    {kScatter, kAnySize, "direct_pull", 64},
    {kScatter, kAnySize, "direct", 64},
    {kSendRecv, 8 * kKiB, "direct_packets", 1},
    {kSendRecv, 128 * kKiB, "direct_packets", 16},
    {kSendRecv, kAnySize, "direct_pull", 64},
    {kSendRecv, kAnySize, "direct", 64},
    {kBarrier, kAnySize, "one_shot_packets", 1},
    {kBarrier, kAnySize, "ring", 1},
};

bool fits(const Row& row, const ChoiceRequest& request) {
  return row.collective == request.collective && request.bytes <= row.largest_bytes &&
         algorithm_takes(row.algorithm, request.collective, request.rank_count) &&
         (request.pulls || without_pull(row.algorithm) == row.algorithm);
}

}  // namespace

Choice choose(const ChoiceRequest& request) {
  const std::span<const Row> table = request.on_gpu ? std::span<const Row>(kGpuTable) : kCpuTable;
  for (const Row& row : table) {
    if (!fits(row, request)) continue;
    return {row.algorithm, std::clamp(row.block_count, 1u, std::max(request.block_limit, 1u))};
  }
  STARLING_ASSERT(false, "the table of choices has no row that fits always");
}

}  // namespace starling
