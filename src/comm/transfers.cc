#include "comm/transfers.h"

#include <algorithm>

namespace starling {
namespace {

// A broadcast that is passed on takes its time once, a hop of some 15 us for each rank, and a piece's time
// for each rank but the last two; sent by the root alone it takes its time once for each rank. At 400 GB/s
// the two meet where the message takes 20 us (docs/design/0020-sm-free.md).
constexpr uint64_t kPassOnBytes = 8 << 20;
constexpr uint64_t kPieceBytes = 2 << 20;  // at least
constexpr uint64_t kPieces = 16;           // at most

// Where the part of `rank` lies in a buffer that has one of every rank.
GroupExtent part_of(const std::vector<GroupExtent>& table, uint64_t group_bytes, uint32_t rank,
                    uint32_t size) {
  return table.size() == size ? table[rank] : GroupExtent{rank * group_bytes, group_bytes};
}

}  // namespace

uint64_t piece_bytes(const Transfer& transfer) {
  constexpr uint64_t kAlign = 4096;
  return ((transfer.bytes + transfer.pieces - 1) / transfer.pieces + kAlign - 1) & ~(kAlign - 1);
}

Transfers transfers_of(const Lowered& lowered, uint32_t rank, uint32_t size) {
  const Collective kind = lowered.signature.collective;
  const auto root = uint32_t(lowered.signature.root);
  const bool all_send = kind == Collective::kAllGather || kind == Collective::kAllToAll;
  // In a pair rank 0 sends to rank 1.
  const bool message = kind == Collective::kSendRecv;
  const bool spreads = kind == Collective::kBroadcast || kind == Collective::kScatter;
  const Operation& op = lowered.operation;
  const bool chain = kind == Collective::kBroadcast && size > 2 && op.group_bytes >= kPassOnBytes;
  const auto pieces = chain ? uint32_t(std::min(op.group_bytes / kPieceBytes, kPieces)) : 1;
  const auto sends_to = [&](uint32_t from, uint32_t to) {
    if (all_send) return true;
    if (message) return from == 0 && to == 1;
    if (chain && from != to) return to == (from + 1) % size && to != root;
    return spreads ? from == root : to == root;
  };
  const bool parted_input = kind == Collective::kAllToAll || kind == Collective::kScatter;
  const bool parted_output = !message && !spreads;
  // A rank's whole buffer where it has one part only: its length is in the other side's table, if there is
  // one.
  const uint64_t group = op.group_bytes;
  const auto input = [&](uint32_t peer) {
    return parted_input ? part_of(lowered.input_groups, group, peer, size) : GroupExtent{0, group};
  };
  const auto output = [&](uint32_t peer) {
    return parted_output ? part_of(lowered.output_groups, group, peer, size) : GroupExtent{0, group};
  };
  Transfers all;
  for (uint32_t step = 1; step < size; ++step) {
    const uint32_t to = (rank + step) % size;
    const uint32_t from = (rank + size - step) % size;
    if (sends_to(rank, to)) all.sends.push_back({to, input(to).offset_bytes, 0, input(to).bytes, pieces});
    if (sends_to(from, rank))
      all.receives.push_back({from, 0, output(from).offset_bytes, output(from).bytes, pieces});
  }
  all.passes_on = chain && rank != root;
  if (message || !sends_to(rank, rank)) return all;
  const GroupExtent from = input(rank);
  const GroupExtent to = output(rank);
  const std::byte* source = op.buffers[uint32_t(BufferKind::kInput)].base + from.offset_bytes;
  const std::byte* target = op.buffers[uint32_t(BufferKind::kOutput)].base + to.offset_bytes;
  if (from.bytes > 0 && source != target)
    all.own.push_back({rank, from.offset_bytes, to.offset_bytes, from.bytes});
  return all;
}

OwnCopy own_copy_of(const Lowered& lowered) {
  const Operation& op = lowered.operation;
  const GroupExtent from = part_of(lowered.input_groups, op.group_bytes, 0, 1);
  const GroupExtent to = part_of(lowered.output_groups, op.group_bytes, 0, 1);
  OwnCopy copy{op.buffers[uint32_t(BufferKind::kOutput)].base + to.offset_bytes,
               op.buffers[uint32_t(BufferKind::kInput)].base + from.offset_bytes,
               std::min(from.bytes, to.bytes)};
  if (copy.to == copy.from) copy.bytes = 0;
  return copy;
}

bool only_moves(const starling_operation& call) {
  switch (call.kind) {
    case STARLING_ALL_GATHER:
    case STARLING_BROADCAST:
    case STARLING_GATHER:
    case STARLING_SCATTER:
    case STARLING_SEND:
    case STARLING_RECV: return true;
    case STARLING_ALL_TO_ALL: return call.input != call.output;
    default: return false;
  }
}

uint64_t moved_bytes(const starling_operation& call, uint32_t size) {
  const uint64_t bytes = message_bytes(call);
  const auto all = [&](const size_t* counts) {
    return counts == nullptr ? bytes * size : sum_of_counts(counts, size) * element_bytes(call);
  };
  switch (call.kind) {
    case STARLING_ALL_GATHER:
    case STARLING_GATHER: return all(call.output_counts);
    case STARLING_SCATTER: return all(call.input_counts);
    case STARLING_ALL_TO_ALL: return call.input_counts == nullptr ? all(nullptr) : 0;
    default: return bytes;
  }
}

}  // namespace starling
