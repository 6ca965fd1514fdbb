// The ends of a lane's connectors: where this rank's halves lie, and the peers'.
#include <atomic>

#include "comm/lane.h"
#include "link/carry/channels.h"
#include "link/carry/proxy.h"

namespace starling {

// What is this rank's of a connector: of one to another host, of its channels (link/carry/channels.h).
void HostLane::set_own_half(uint64_t end, SendEnd& send, ReceiveEnd& receive) const {
  const auto peer = uint32_t(end / shared_->channel_count);
  const auto channel = uint32_t(end % shared_->channel_count);
  send.peer = receive.peer = uint16_t(peer);
  send.channel = receive.channel = uint16_t(channel);
  if (const link::carry::Channels* carrier = carriers_[peer].get()) {
    send.credit = carrier->arrivals().credit + channel;
    receive.inbox = carrier->arrivals().inbox + channel;
    receive.private_slots = carrier->slot(carrier->arrivals(), channel, 0);
    receive.granted = carrier->shape().slots;
  } else if (connectors_.bytes > 0) {
    std::byte* own = place_.exported(connectors_.offset);
    const uint64_t slots_bytes = uint64_t(shared_->private_slots) * shared_->slot_bytes;
    const uint64_t ring_bytes = carried_ ? 0 : packet_ring_bytes_for(shared_->packet_bytes);
    if (PeerMemory* memory = member(peer).peer.memory.get()) send.opened = receive.opened = memory->opened();
    send.credit = reinterpret_cast<Credit*>(own + shared_->credit_offset) + end;
    receive.inbox = reinterpret_cast<Inbox*>(own + shared_->inbox_offset) + end;
    receive.private_slots = own + shared_->slots_offset + end * slots_bytes;
    receive.packets = reinterpret_cast<uint64_t*>(own + shared_->packets_offset + end * ring_bytes);
    receive.granted = shared_->private_slots;
  }
  for (uint32_t k = 0; k < receive.granted; ++k) receive.grants[k] = k;
}

// In the order of wire/connector.h: pointers first, `made` last. Plain stores alone: no call of a driver,
// which may stand until an operation that waits for this has ended.
void HostLane::connect(uint32_t peer) {
  LaneShared* theirs = peers_[peer];
  // Unequal geometry means unequal operations: the board will say so; nothing may be connected.
  if (theirs->channel_count != shared_->channel_count || theirs->slot_bytes != shared_->slot_bytes ||
      theirs->size != shared_->size || ends() == 0)
    return;
  const bool carried = member(peer).peer.way != nullptr;
  for (uint32_t channel = 0; channel < shared_->channel_count; ++channel) {
    PeerIntroduction& introduction = introductions_[peer * shared_->channel_count + channel];
    if (carried)
      introduce_carrier(peer, channel, introduction);
    else
      introduce_neighbour(peer, channel, introduction);
    // Release: the pointers; pairs with the acquires in device/connector.h.
    std::atomic_ref<uint64_t>(introduction.made).store(1, std::memory_order_release);
  }
}

void HostLane::introduce_neighbour(uint32_t peer, uint32_t channel, PeerIntroduction& introduction) const {
  const LaneShared& theirs = *peers_[peer];
  PeerMemory& memory = *member(peer).peer.memory;
  ArenaHeader* header = member(peer).peer.arena->header();
  std::byte* base = memory.at(theirs.connectors_offset);
  const uint64_t slots_bytes = uint64_t(shared_->private_slots) * shared_->slot_bytes;
  const uint64_t ring_bytes = carried_ ? 0 : packet_ring_bytes_for(shared_->packet_bytes);
  const uint64_t there = uint64_t(rank()) * shared_->channel_count + channel;  // its end for us
  introduction.credit = reinterpret_cast<Credit*>(base + theirs.credit_offset) + there;
  introduction.inbox = reinterpret_cast<Inbox*>(base + theirs.inbox_offset) + there;
  introduction.private_slots = base + theirs.slots_offset + there * slots_bytes;
  introduction.pool = memory.at(header->pool_offset);
  introduction.packets = reinterpret_cast<uint64_t*>(base + theirs.packets_offset + there * ring_bytes);
  introduction.doorbell = place_.traits().direct ? &header->daemon : nullptr;
}

// In the peer's place the proxy: it looks, or is rung at the shadow's door.
void HostLane::introduce_carrier(uint32_t peer, uint32_t channel, PeerIntroduction& introduction) const {
  const link::carry::Channels& carrier = *carriers_[peer];
  const Peer& there = member(peer).peer;
  introduction.credit = carrier.departures().credit + channel;
  introduction.inbox = carrier.departures().inbox + channel;
  introduction.private_slots = carrier.slot(carrier.departures(), channel, 0);
  introduction.doorbell = there.way->polls() ? nullptr : &there.arena->header()->daemon;
  introduction.carried = 1;
}

}  // namespace starling
