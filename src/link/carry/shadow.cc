#include "link/carry/shadow.h"

#include <atomic>

#include "machine/cpu/doorbell.h"

namespace starling::link::carry {
namespace {

LaneShape shape_of(const LaneShared& lane) {
  return {lane.size, lane.channel_count, lane.private_slots, lane.slot_bytes, 0, lane.board_size};
}

}  // namespace

Shadow::Shadow(const RemoteRank& remote, uint64_t bytes, int event_fd) : arena_({bytes}) {
  ArenaHeader* header = arena_.header();
  header->process_nonce = remote.process_nonce;
  header->pid = remote.pid;
  header->nonce_address = 0;
  header->pool_slots = remote.pool_slots;
  header->pool_slot_bytes = remote.pool_slot_bytes;
  header->blocks = remote.blocks;
  cpu::own_event(&header->daemon, event_fd);
  cpu::own_event(&header->host, event_fd);
}

LaneShared* Shadow::open(const OpenRecord& record) {
  const LaneShape shape{record.size, record.channel_count, record.private_slots, record.slot_bytes,
                        0,           record.board_size};
  const LaneLayout layout(shape);
  const uint64_t offset = arena_.allocate(layout.region_bytes);
  auto* lane = reinterpret_cast<LaneShared*>(arena_.at(offset));
  layout.describe(*lane, shape);
  lane->rank = record.rank;
  lane->packet_bytes = record.packet_bytes;
  arena_.publish(record.key_low, record.key_high, offset);
  return lane;
}

void Shadow::unpublish(const LaneShared* lane, uint64_t key_low, uint64_t key_high) {
  arena_.unpublish(key_low, key_high, arena_.offset_of(lane));
}

void Shadow::release(LaneShared* lane) {
  arena_.release(arena_.offset_of(lane), LaneLayout(shape_of(*lane)).region_bytes);
}

void Shadow::close(bool in_order) {
  // Release: what came from the peer before; pairs with the acquires in PeerArena.
  std::atomic_ref<uint32_t>(header()->closed).store(in_order ? 1 : 2, std::memory_order_release);
}

void Shadow::listen() {
  for (Doorbell* bell : {&header()->daemon, &header()->host})
    // Release: own_event() before; pairs with the acquire in ring().
    std::atomic_ref<uint64_t>(bell->sleepers).fetch_or(kEventBit, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in ring()
}

void Shadow::silence() {
  for (Doorbell* bell : {&header()->daemon, &header()->host})
    std::atomic_ref<uint64_t>(bell->sleepers).fetch_and(~kEventBit, std::memory_order_relaxed);
}

}  // namespace starling::link::carry
