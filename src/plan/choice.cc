#include "plan/choice.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
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
// Of one process: what takes two copies through a slot costs more than to wait for the peer's word to read.
constexpr std::uint64_t kReadPart = 16 * kKiB - 1;

// Of which requests a row speaks.
enum class Only {
  kNothing,  // of all
  kThreads,  // ranks of one process
  kFewThreads,  // at most four of them: a root that reads has all their buffers to read
  kHalf,     // sums of half floats
  kNear,     // ranks of one host: packets do not cross hosts
  kTwo,      // two ranks: what each says to all others it says once
  kTwoApart,  // the same, out of place
  kMore,  // more than two
  kMoreInPlace,
  kInPlace,
};

// What a row's `largest_bytes` are.
enum class Of {
  kBuffer,   // a rank's larger buffer
  kBuffers,  // those of all ranks together
  kPart,     // a rank's part of it, of four ranks at most
};

struct Row {
  Collective collective;
  std::uint64_t largest_bytes;
  std::string_view algorithm;
  std::uint32_t block_count;  // cut to the daemon's
  Only only = Only::kNothing;
  Of of = Of::kBuffer;
};

using enum Collective;
using enum Of;
using enum Only;
// The first row that fits and whose algorithm takes the request; the last row of each collective fits always.
// Measured on the cpu machine, two and four ranks on two cores. What every rank adds in a one-shot all_reduce
// grows with the ranks, and halves cost more to add. Threads pull at the price of one copy. Pulled between
// processes is what all ranks send and receive alike, what a root only sends, and no message that a send may
// leave in a slot before its receive is there (docs/design/0009-large-messages-between-processes.md).
constexpr Row kCpuTable[] = {
    {kAllReduce, 4 * kKiB, "one_shot", 1, kHalf, kBuffers},
    {kAllReduce, 64 * kKiB, "two_shot", 1, kHalf},
    {kAllReduce, 64 * kKiB, "one_shot", 1, kNothing, kBuffers},
    {kAllReduce, 64 * kKiB, "two_shot", 1},
    {kAllReduce, kAnySize, "two_shot_pull", 64, kThreads},
    {kAllReduce, 256 * kKiB, "two_shot", 1},
    {kAllReduce, kAnySize, "ring", 64},
    {kAllGather, kReadPart, "all_pairs", 1, kThreads, kPart},
    {kAllGather, kAnySize, "all_pairs_pull", 64, kThreads},
    {kAllGather, 64 * kKiB, "all_pairs", 1},
    {kAllGather, kPulled, "all_pairs_pull", 64},
    {kAllGather, kAnySize, "ring", 64},
    {kReduceScatter, 64 * kKiB, "all_pairs", 1, kHalf},
    {kReduceScatter, kReadPart, "all_pairs", 1, kThreads, kPart},
    {kReduceScatter, kAnySize, "all_pairs_pull", 64, kThreads},
    {kReduceScatter, 64 * kKiB, "all_pairs", 1},
    {kReduceScatter, 512 * kKiB, "all_pairs", 64, kHalf},
    {kReduceScatter, kAnySize, "ring", 64},
    {kBroadcast, 256, "direct_packets", 1, kNear},
    {kBroadcast, 8 * kKiB, "direct", 1},
    {kBroadcast, kReadPart, "chain", 64, kThreads},
    {kBroadcast, kAnySize, "direct_pull", 64, kThreads},
    {kBroadcast, kAnySize, "chain", 64},
    {kReduce, 256, "direct_packets", 1, kNear},
    {kReduce, 1 * kKiB, "direct", 1, kHalf},
    {kReduce, kAnySize, "chain", 64, kHalf},
    {kReduce, 8 * kKiB, "direct", 1},
    {kReduce, kReadPart, "chain", 64},
    {kReduce, kAnySize, "direct_pull", 64, kFewThreads},
    {kReduce, kAnySize, "chain", 64},
    {kAllToAll, kReadPart, "pairwise", 1, kThreads, kPart},
    {kAllToAll, kPulled, "pairwise_pull", 64, kThreads},
    {kAllToAll, 64 * kKiB, "pairwise", 1},
    {kAllToAll, kPulled, "pairwise_pull", 64},
    {kAllToAll, kAnySize, "pairwise", 64},
    {kGather, 64 * kKiB, "direct", 1},
    {kGather, 128 * kKiB, "direct", 64},
    {kGather, kAnySize, "direct_pull", 64, kThreads},
    {kGather, kAnySize, "direct", 64},
    {kScatter, 64 * kKiB, "direct", 1},
    {kScatter, 128 * kKiB, "direct", 64},
    {kScatter, kAnySize, "direct_pull", 64, kThreads},
    {kScatter, 256 * kKiB, "direct", 64},
    {kScatter, kPulled, "direct_pull", 64},
    {kScatter, kAnySize, "direct", 64},
    {kSendRecv, 64 * kKiB, "direct", 1},
    {kSendRecv, kPulled, "direct_pull", 64},
    {kSendRecv, kAnySize, "direct", 64},
    {kBarrier, kAnySize, "one_shot", 1},
    {kBarrier, kAnySize, "ring", 1},
};

// Goes before the table of CPUs, also for GPUs, where several hosts have equally many ranks each. From where
// the bytes on the wire count: rails send as few as can be.
constexpr Row kHostsTable[] = {
    {kAllReduce, 256 * kKiB, "one_shot", 1, kNothing, kBuffers},
    {kAllReduce, kAnySize, "rails", 64},
    {kAllGather, 256 * kKiB, "all_pairs", 1},
    {kAllGather, kAnySize, "rails", 64},
    {kReduceScatter, 256 * kKiB, "all_pairs", 1},
    {kReduceScatter, kAnySize, "rails", 64},
};

// Measured on H100s and H200s that NVLink joins. A block is no core that others need: it pays early to have
// several. Of two ranks: bench/results/gpu_choice_processes_2.json. Of more, a root whose buffer all others
// read sends it over its links as often: in a chain once. Tiles of rings and chains:
// docs/design/0023-ways-of-the-links.md; in place a sum has scratch that grows with them.
constexpr Row kGpuTable[] = {
    {kAllReduce, 8 * kKiB, "one_shot_packets", 1},
    {kAllReduce, 64 * kKiB, "one_shot_packets", 8},
    {kAllReduce, 512 * kKiB, "one_shot_packets", 32, kTwo},
    {kAllReduce, 256 * kKiB, "two_shot_packets", 16},
    {kAllReduce, kAnySize, "one_shot_pull", 64, kTwoApart},
    {kAllReduce, 32768 * kKiB, "two_shot_put", 64, kTwo},
    {kAllReduce, 1024 * kKiB, "two_shot_packets", 32},
    {kAllReduce, 12288 * kKiB, "two_shot_put", 64, kMore},
    {kAllReduce, 32768 * kKiB, "ring_put@262144", 64, kMore},
    {kAllReduce, 524288 * kKiB, "ring_put@524288", 64, kMoreInPlace},
    {kAllReduce, kAnySize, "ring_put@1048576", 64, kMore},
    {kAllReduce, 32768 * kKiB, "two_shot_put", 64},
    {kAllReduce, kAnySize, "two_shot_pull", 64},
    {kAllReduce, 2048 * kKiB, "two_shot_packets", 32},
    {kAllReduce, kAnySize, "ring", 64},
    {kAllGather, 8 * kKiB, "all_pairs_packets", 1},
    {kAllGather, 128 * kKiB, "all_pairs_packets", 16},
    {kAllGather, 1024 * kKiB, "all_pairs_packets", 32},
    {kAllGather, 4096 * kKiB, "ring_put@262144", 64, kTwo},
    {kAllGather, 16384 * kKiB, "all_pairs_pull", 64, kMore},
    {kAllGather, kAnySize, "ring_put@524288", 64, kTwo},
    {kAllGather, kAnySize, "ring_put@1048576", 64, kMore},
    {kAllGather, kAnySize, "all_pairs_pull", 64},
    {kAllGather, kAnySize, "ring", 64},
    {kReduceScatter, 8 * kKiB, "all_pairs_packets", 1},
    {kReduceScatter, 128 * kKiB, "all_pairs_packets", 16},
    {kReduceScatter, 1024 * kKiB, "all_pairs_packets", 32},
    {kReduceScatter, kAnySize, "all_pairs_pull", 64},
    {kReduceScatter, kAnySize, "ring", 64},
    {kBroadcast, 8 * kKiB, "direct_packets", 1},
    {kBroadcast, 128 * kKiB, "direct_packets", 16},
    {kBroadcast, 256 * kKiB, "direct_packets", 32},
    {kBroadcast, kAnySize, "split_put", 64, kMore},
    {kBroadcast, 1024 * kKiB, "direct_packets", 32},
    {kBroadcast, 4096 * kKiB, "direct_pull", 64},
    {kBroadcast, 16384 * kKiB, "chain_pull@65536", 64, kMore},
    {kBroadcast, kAnySize, "chain_pull@262144", 64, kMore},
    {kBroadcast, kAnySize, "direct_pull", 64},
    {kBroadcast, kAnySize, "chain", 64},
    {kReduce, 8 * kKiB, "direct_packets", 1},
    {kReduce, 128 * kKiB, "direct_packets", 16},
    {kReduce, 1024 * kKiB, "direct_packets", 32},
    {kReduce, 65536 * kKiB, "split_put", 64, kMore},
    {kReduce, kAnySize, "chain_put@262144", 64, kMore},
    {kReduce, kAnySize, "direct_pull", 64},
    {kReduce, kAnySize, "chain", 64},
    {kAllToAll, 8 * kKiB, "pairwise_packets", 1},
    {kAllToAll, 128 * kKiB, "pairwise_packets", 16},
    {kAllToAll, 1024 * kKiB, "pairwise_packets", 32},
    {kAllToAll, 4096 * kKiB, "pairwise_packets", 32, kInPlace},
    {kAllToAll, 8192 * kKiB, "pairwise_put@1048576", 64, kTwoApart},
    {kAllToAll, 16384 * kKiB, "pairwise_pull", 64},
    {kAllToAll, kAnySize, "pairwise_put@1048576", 64, kTwoApart},
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
    {kSendRecv, 512 * kKiB, "direct_packets", 32},
    {kSendRecv, kAnySize, "direct_put@1048576", 64},
    {kSendRecv, 2048 * kKiB, "direct_packets", 32},
    {kSendRecv, kAnySize, "direct_pull", 64},
    {kSendRecv, kAnySize, "direct", 64},
    {kBarrier, kAnySize, "one_shot_packets", 1},
    {kBarrier, kAnySize, "ring", 1},
};

// From how many bytes on processes on GPUs are faster if they read each other's buffers through CUDA IPC than
// by slots. Beside each, us by slots and read at 2, 8 and 64 MB: two processes that share an H200
// (bench/results/gpu_shared_processes.json). Across NVLink, where bytes take longer, it is the fixed part
// that is spared.
struct PulledFrom {
  Collective collective;
  std::uint64_t bytes;
};
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr PulledFrom kPulledFrom[] = {
    {kAllReduce, 768 * kKiB},  // 30 and 26, 61 and 29, 300 and 110; between two 1 MB in packets 21, read 18
    {kAllGather, 2 * kMiB},  // 29 and 20, 42 and 19, 193 and 84
    {kReduceScatter, 2 * kMiB},  // 29 and 18, 42 and 19, 205 and 72
    {kBroadcast, 2 * kMiB},  // 23 and 17, 45 and 19, 231 and 71
    {kReduce, 2 * kMiB},  // across NVLink 28 and 25, 47 and 42, 244 and 208 (gpu_reduce_pulled_2.json)
    {kAllToAll, 2 * kMiB},  // 29 and 17, 46 and 20, 209 and 84
    {kSendRecv, 2 * kMiB},  // 81 and 30, 99 and 41, 372 and 104 (gpu_shared_together.json)
};

// A block of a start kernel has a multiprocessor to itself: 512 threads of 128 registers. What lasts long,
// and is nearly as fast with half the blocks, has half of them, and the program's kernels have the rest
// (docs/design/0026-blocks-of-long-operations.md). Two GPUs. Sums of half floats that are not here would take
// up to a fifth longer.
struct FewBlocks {
  Collective collective;
  TypeClass types;
  Only only;
  std::uint64_t above, to;  // bytes
};
constexpr std::uint32_t kFewBlocks = 16;
constexpr FewBlocks kFewBlocksTable[] = {
    {kAllReduce, TypeClass::kPlain, kNothing, 16 * kMiB, 512 * kMiB},
    {kAllReduce, TypeClass::kPlain, kInPlace, 4 * kMiB, 16 * kMiB},
    {kAllReduce, TypeClass::kHalf, kInPlace, 4 * kMiB, 32 * kMiB},  // a bucket of gradients
    {kAllReduce, TypeClass::kHalf, kNothing, 128 * kMiB, 512 * kMiB},
    {kAllGather, TypeClass::kMoved, kNothing, 16 * kMiB, 512 * kMiB},
    {kReduceScatter, TypeClass::kPlain, kNothing, 16 * kMiB, 512 * kMiB},
    {kReduceScatter, TypeClass::kHalf, kNothing, 128 * kMiB, 512 * kMiB},
    {kBroadcast, TypeClass::kMoved, kNothing, 1 * kMiB, 256 * kMiB},
    {kSendRecv, TypeClass::kMoved, kNothing, 0, 64 * kMiB},
};

// Across NVLink, four ranks: a broadcast of 512 KB in packets 16 us, put 14 (gpu_put_4.json).
constexpr std::uint64_t kPutFrom = 512 * kKiB;

bool pulling_is_faster(const Row& row, const ChoiceRequest& request) {
  if (takes_addresses(row.algorithm)) return request.bytes >= kPutFrom;
  // A root that reads has each rank's buffer on its link; in a chain, one.
  if (request.collective == kReduce && request.rank_count > 2) return false;
  return std::any_of(std::begin(kPulledFrom), std::end(kPulledFrom), [&](const PulledFrom& from) {
    return from.collective == request.collective && request.bytes >= from.bytes;
  });
}

bool speaks_of(const Row& row, const ChoiceRequest& request) {
  switch (row.only) {
    case kNothing: return true;
    case kThreads: return request.one_process;
    case kFewThreads: return request.one_process && request.rank_count <= 4;
    case kHalf: return type_class(true, request.data_type) == TypeClass::kHalf;
    case kNear: return !request.across_hosts;
    case kTwo: return request.rank_count == 2;
    case kMore: return request.rank_count > 2;
    case kTwoApart: return request.rank_count == 2 && !request.in_place;
    case kMoreInPlace: return request.rank_count > 2 && request.in_place;
    case kInPlace: return request.in_place;
  }
  STARLING_ASSERT(false, "a row of the table of choices speaks of nothing there is");
}

// Whether the request allows what the row's algorithm reads.
bool may_pull(const Row& row, const ChoiceRequest& request) {
  if (without_pull(row.algorithm) == row.algorithm) return true;
  if (request.on_gpu && request.pulls_if_faster && !pulling_is_faster(row, request)) return false;
  if (takes_addresses(row.algorithm) && !request.one_process) return false;
  return request.pulls &&
         (request.on_gpu || request.pulling_pays || row.only == kThreads || row.only == kFewThreads);
}

std::uint64_t bytes_for(const Row& row, const ChoiceRequest& request) {
  switch (row.of) {
    case kBuffer: return request.bytes;
    case kBuffers: return request.bytes * request.rank_count;
    case kPart: return request.bytes / std::min(request.rank_count, 4u);
  }
  STARLING_ASSERT(false, "a row of the table of choices is of a size there is not");
}

bool fits(const Row& row, const ChoiceRequest& request) {
  return row.collective == request.collective && bytes_for(row, request) <= row.largest_bytes &&
         speaks_of(row, request) && algorithm_takes(row.algorithm, request.collective, request.rank_count) &&
         may_pull(row, request);
}

std::uint32_t blocks_of(const Row& row, const ChoiceRequest& request, bool near_gpus) {
  const bool touches_peers = without_pull(row.algorithm) != row.algorithm;
  if (!near_gpus || request.rank_count != 2 || !touches_peers) return row.block_count;
  const bool reduces = row.collective == kAllReduce || row.collective == kReduceScatter;
  const TypeClass types = type_class(reduces, request.data_type);
  const bool few = std::any_of(std::begin(kFewBlocksTable), std::end(kFewBlocksTable), [&](const auto& of) {
    return of.collective == row.collective && of.types == types &&
           (of.only != kInPlace || request.in_place) && request.bytes > of.above && request.bytes <= of.to;
  });
  return few ? std::min(kFewBlocks, row.block_count) : row.block_count;
}

constexpr std::string_view kTypeClasses[] = {"moved", "plain", "half"};

}  // namespace

TypeClass type_class(bool reduces, DataType type) {
  if (!reduces) return TypeClass::kMoved;
  return type == DataType::kFloat16 || type == DataType::kBfloat16 ? TypeClass::kHalf : TypeClass::kPlain;
}

std::string_view type_class_name(TypeClass types) { return kTypeClasses[static_cast<std::size_t>(types)]; }

std::optional<TypeClass> type_class_named(std::string_view name) {
  const auto* const found = std::find(std::begin(kTypeClasses), std::end(kTypeClasses), name);
  if (found == std::end(kTypeClasses)) return std::nullopt;
  return static_cast<TypeClass>(found - std::begin(kTypeClasses));
}

Choice choose(const ChoiceRequest& request) {
  const bool near_gpus = request.on_gpu && !request.across_hosts;
  for (const std::span<const Row> table :
       {request.equal_hosts ? std::span<const Row>(kHostsTable) : std::span<const Row>{},
        near_gpus ? std::span<const Row>(kGpuTable) : kCpuTable}) {
    for (const Row& row : table) {
      if (!fits(row, request)) continue;
      return {row.algorithm,
              std::clamp(blocks_of(row, request, near_gpus), 1u, std::max(request.block_limit, 1u))};
    }
  }
  STARLING_ASSERT(false, "the table of choices has no row that fits always");
}

}  // namespace starling
