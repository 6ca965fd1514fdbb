#include "plan/choice.h"

#include <algorithm>
#include <cstdint>

#include "base/assert.h"
#include "plan/generate.h"

namespace starling {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kAnySize = UINT64_MAX;

struct Row {
  Collective collective;
  std::uint64_t largest_bytes;
  std::string_view algorithm;
  std::uint32_t block_count;  // cut to the daemon's
};

using enum Collective;
// Measured on the cpu machine. The first row that fits and whose algorithm takes the number of ranks; the
// last row of each collective fits always.
constexpr Row kTable[] = {
    {kAllReduce, 32 * kKiB, "one_shot", 1}, {kAllReduce, 256 * kKiB, "two_shot", 1},
    {kAllReduce, kAnySize, "ring", 64},     {kAllGather, 64 * kKiB, "all_pairs", 1},
    {kAllGather, kAnySize, "ring", 64},     {kReduceScatter, 64 * kKiB, "all_pairs", 1},
    {kReduceScatter, kAnySize, "ring", 64}, {kBroadcast, 32 * kKiB, "direct", 1},
    {kBroadcast, kAnySize, "chain", 64},    {kReduce, 32 * kKiB, "direct", 1},
    {kReduce, kAnySize, "chain", 64},       {kAllToAll, 64 * kKiB, "pairwise", 1},
    {kAllToAll, kAnySize, "pairwise", 64},  {kGather, 64 * kKiB, "direct", 1},
    {kGather, kAnySize, "direct", 64},      {kScatter, 64 * kKiB, "direct", 1},
    {kScatter, kAnySize, "direct", 64},     {kSendRecv, 64 * kKiB, "direct", 1},
    {kSendRecv, kAnySize, "direct", 64},    {kBarrier, kAnySize, "one_shot", 1},
    {kBarrier, kAnySize, "ring", 1},
};

}  // namespace

Choice choose(const ChoiceRequest& request) {
  for (const Row& row : kTable) {
    if (row.collective != request.collective || request.bytes > row.largest_bytes) continue;
    if (!algorithm_takes(row.algorithm, request.collective, request.rank_count)) continue;
    // On a GPU a block is no core that others need: it pays from a few KiB on to have several.
    const std::uint32_t least = request.on_gpu && request.bytes > 8 * kKiB ? 8 : 1;
    return {row.algorithm,
            std::clamp(std::max(row.block_count, least), 1u, std::max(request.block_limit, 1u))};
  }
  STARLING_ASSERT(false, "the table of choices has no row that fits always");
}

}  // namespace starling
