// What goes straight over RDMA (docs/design/0015-verbs.md): which memory of ours is registered, what the peer
// is offered, and where its messages go there.
#include <algorithm>

#include "link/carry/peer_link.h"

namespace starling::link::carry {
namespace {

// Of a message over RDMA: a shorter one is copied sooner than two writes are posted for it.
constexpr uint32_t kStraightBytes = 16 << 10;

}  // namespace

// Not where the largest messages touch no slot, and not where slots are small: all pages of what is
// registered are kept.
const Channels* PeerLink::straight_channels(uint32_t lane, const LaneShared* theirs, bool& must) const {
  const Channels* channels = own_[lane]->channels.get();
  must = std::any_of(theirs_.begin(), theirs_.end(), [&](const auto& known) {
    return known != nullptr && known->shadow == theirs && known->description.slots_on_device != 0;
  });
  if (channels == nullptr || channels->on_device() != nullptr) return nullptr;
  if (must) return channels;
  if (!receives_by_rdma()) return nullptr;
  const uint32_t bytes = channels->shape().slot_bytes;
  return bytes < 2 * kStraightBytes || bytes >= kNamedSlotBytes ? nullptr : channels;
}

void PeerLink::leave_sockets() {
  if (!gone()) sending_->only_queue_pairs();
}

std::optional<bool> PeerLink::has_only_queue_pairs() const {
  if (gone()) return false;
  const std::optional<bool> sent = sending_->has_only_queue_pairs();
  if (sent.has_value() && !*sent) return false;
  if (!sent || !receiving_ || !receiving_->has_any()) return std::nullopt;
  return *sent && receiving_->has_only_queue_pairs();
}

void PeerLink::lend(uint32_t lane, uint32_t channel, Loan loan) {
  own_[lane]->loans[channel].push_back(std::move(loan));
}

void PeerLink::take_back(uint32_t lane) {
  OwnLane* own = own_[lane].get();
  for (auto& theirs : theirs_)
    if (theirs != nullptr && theirs->own == own && !gone()) {
      read_counters(*theirs);  // of what the channel's blocks have posted until now
      tell_boards(lane, *own);  // before messages, as ever: the peer compares
      tell_messages(*theirs);
    }
  for (uint64_t k = 0; k < transfers_.size(); ++k) {
    Transfer& transfer = transfers_[k];
    if (!transfer.named || transfer.channels != own->channels || !transfer.copy.empty()) continue;
    transfer.copy.assign(transfer.payload, transfer.payload + transfer.payload_bytes);
    transfer.payload = transfer.copy.data();
    transfer.source = nullptr;
    if (sending_) sending_->move_source(first_ + k, transfer.payload);
  }
  if (receiving_ && is_written_by_peer(*own)) receiving_->fence_writes(offers_ + 1);
  for (Landings& landings : own->landings) {
    for (const Wanted& wanted : landings.wanted) {
      if (receiving_) receiving_->move_destination(wanted.landing.to, wanted.landing.bytes, nowhere_.data());
      coming_ -= wanted.comes;
    }
    landings.wanted.clear();
  }
  for (auto& loans : own->loans) loans.clear();
}

// Until the peer has left the lane only the fence ends that.
bool PeerLink::is_written_by_peer(const OwnLane& lane) {
  // Acquire: pairs with the release in apply_to_own(); what it wrote before, in this lane, has landed.
  if (std::atomic_ref<uint64_t>(withdrawals_of(lane.shared)[lane.peer].out).load(std::memory_order_acquire))
    return false;
  return std::any_of(lane.landings.begin(), lane.landings.end(), [](const Landings& landings) {
    return std::any_of(landings.wanted.begin(), landings.wanted.end(),
                       [](const Wanted& wanted) { return wanted.offered; });
  });
}

bool PeerLink::is_used_by_devices(uint32_t lane) const {
  if (gone()) return false;
  const OwnLane& own = *own_[lane];
  return is_written_by_peer(own) ||
         std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& transfer) {
           return transfer.named && transfer.source != nullptr && transfer.channels == own.channels;
         });
}

// What is registered of the message's source.
RegistrationPtr PeerLink::source_of(OwnLane& lane, uint32_t channel, uint64_t message, bool named) {
  if (!named) return lane.slots;
  auto& loans = lane.loans[channel];
  const auto found =
      std::find_if(loans.begin(), loans.end(), [&](const Loan& loan) { return loan.messages.has(message); });
  const RegistrationPtr source = found == loans.end() ? nullptr : found->source;
  std::erase_if(loans, [&](const Loan& loan) { return loan.messages.end() <= message + 1; });
  return source;
}

// Of all its pieces, also where one goes again: where the peer wants the message, if it has said so before;
// else into its slot.
RemotePlace PeerLink::place_of(TheirLane& lane, uint32_t channel, const CarriedMessage& message,
                               uint32_t bytes) {
  if (bytes < kStraightBytes && lane.description.slots_on_device == 0) return {};
  auto& offers = lane.own->offers[channel];
  while (!offers.empty() && message.number >= offers.front().first + offers.front().messages)
    offers.pop_front();
  if (!offers.empty() && message.number >= offers.front().first) {
    const OfferRecord& offer = offers.front();
    const uint64_t at = (message.number - offer.first) * offer.message_bytes;
    // Beyond it: ranks that mean different things.
    if (at + bytes > offer.bytes) return {};
    return {offer.address + at, offer.keys, offer.number, Placed::kAsOffered};
  }
  if (lane.slots.address == 0) return {};
  const OpenRecord& shape = lane.description;
  const uint64_t at = (uint64_t(channel) * shape.private_slots + message.slot) * shape.slot_bytes;
  return {lane.slots.address + at, lane.slots.keys, 0, Placed::kInSlot};
}

}  // namespace starling::link::carry
