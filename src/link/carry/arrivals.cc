// What comes from a peer: messages go to where our blocks wait for them, records into the shadow and into our
// regions, as if the peer's hosts and blocks had written there.
#include <algorithm>
#include <cstring>
#include <utility>

#include "device/carrying.h"
#include "link/carry/checks.h"
#include "link/carry/peer_link.h"
#include "link/carry/words.h"
#include "machine/cpu/doorbell.h"
#include "machine/cpu/lane_fault.h"

namespace starling::link::carry {
namespace {

// Each call says what it pairs with.
template <class T>
void release(T& word, T value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_release);
}
template <class T>
void relaxed(T& word, T value) {
  std::atomic_ref<T>(word).store(value, std::memory_order_relaxed);
}

template <class T>
T load_relaxed(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_relaxed);
}

template <class Body>
Body read(const std::byte* body) {
  Body read;
  std::memcpy(&read, body, sizeof read);
  return read;
}

uint64_t known_kind(uint64_t kind) {
  return kind > uint64_t(FaultKind::kNone) && kind <= uint64_t(FaultKind::kInternal)
             ? kind
             : uint64_t(FaultKind::kInternal);
}

// Of what has to be equal, as find_mismatch() says it in words.
bool matches(const Signature& a, const Signature& b, const Traffic& ours, const Traffic& theirs) {
  if (a.collective != b.collective || a.data_type != b.data_type || a.reduce_op != b.reduce_op ||
      a.varying != b.varying || a.root != b.root || a.count != b.count || a.plan_hash != b.plan_hash ||
      a.counts_hash != b.counts_hash)
    return false;
  return !a.varying || (ours.sent_bytes == theirs.received_bytes && ours.received_bytes == theirs.sent_bytes);
}

}  // namespace

// Of a lane that is gone nothing is wrong.
const char* PeerLink::wrong_with_place(const MessagePlace& place, uint32_t bytes) const {
  if (place.lane >= own_.size()) return "a message of a lane that was never there";
  const OwnLane* lane = own_[place.lane].get();
  if (lane == nullptr) return nullptr;
  if (lane->channels == nullptr) return "a message of a lane without channels";
  const Channels& channels = *lane->channels;
  if (place.channel >= channels.shape().channels) return "a message of a channel that is not there";
  // Relaxed: what the peer may know of it this thread has read before.
  const uint64_t granted = load_relaxed(channels.departures().credit[place.channel].granted);
  return wrong_with(place, bytes, channels.shape(), channels.arrivals().inbox[place.channel].posted, granted);
}

std::byte* PeerLink::destination(const FrameHeader& header) {
  MessagePlace place;
  std::memcpy(&place, header.place, sizeof place);
  const char* wrong = header.payload_bytes > nowhere_.size() ? "a transfer that is longer than any" : nullptr;
  if (wrong == nullptr) wrong = wrong_with_place(place, header.payload_bytes);
  if (wrong != nullptr) {
    refuse(wrong);
    return nullptr;
  }
  OwnLane* lane = own_lane(place.lane);
  if (lane == nullptr) return nowhere_.data();
  const Channels& channels = *lane->channels;
  const uint64_t at = uint64_t(place.piece & ~kLastPiece) * kCarriedSlotBytes;
  std::byte* const slot = channels.named_slot(channels.arrivals(), place.channel, place.slot) + at;
  std::byte* const wanted = landing_of(*lane, place, at, header);
  if (wanted == nullptr && channels.on_device() != nullptr && header.placed == Placed::kInFrame) {
    copied_for_device_ = true;
    return nullptr;
  }
  if (wanted == nullptr) return slot;
  // Its first piece came by another way, and found where the message is wanted. All of this one has come.
  if (header.placed == Placed::kInSlot) std::memcpy(wanted, slot, header.payload_bytes);
  return wanted;
}

// Null: nobody had said where the message is wanted when it began to come, so it goes to its slot. A piece
// that comes again, since its path broke, goes where it went before.
std::byte* PeerLink::landing_of(OwnLane& lane, const MessagePlace& place, uint64_t at,
                                const FrameHeader& header) {
  Inbox& inbox = lane.channels->arrivals().inbox[place.channel];
  Landings& landings = lane.landings[place.channel];
  const uint64_t message = inbox.posted + uint32_t(place.message - uint32_t(inbox.posted));
  const auto found = std::find_if(landings.wanted.begin(), landings.wanted.end(),
                                  [&](const Wanted& w) { return w.landing.messages.has(message); });
  const bool wanted = found != landings.wanted.end();
  const bool first = landings.begun[message % kMaxCredits] != message + 1;
  // Plain: the block reads it behind `posted`, and has read what it said before when it granted this message.
  uint32_t& where = inbox.bytes[message % kMaxCredits];
  const uint32_t place_now = wanted && header.placed != Placed::kInSlot ? kElsewhere : 0;
  if (first && where != place_now) where = place_now;  // a GPU that polls shares the line
  landings.begun[message % kMaxCredits] = message + 1;
  if (where == 0) return nullptr;
  if (!wanted) return nowhere_.data();  // it was taken back
  coming_ += !found->comes;
  found->comes = true;
  const Landing& landing = found->landing;
  const uint32_t bytes = header.payload_bytes;
  at += landing.messages.place_of(message) * landing.message_bytes;
  // Beyond it: ranks that mean different things. Their boards tell.
  return at + bytes > landing.bytes ? nowhere_.data() : landing.to + at;
}

void PeerLink::accept(const FrameHeader& header, const std::byte* control) {
  for (uint32_t at = 0; at < header.control_bytes && wrong_ == nullptr;) {
    const uint32_t rest = header.control_bytes - at;
    if (rest < sizeof(RecordHeader)) return refuse("a record that is cut");
    const auto record = read<RecordHeader>(control + at);
    if (const char* wrong = wrong_with(record, rest); wrong != nullptr) return refuse(wrong);
    apply(record, control + at + sizeof record);
    at += record.bytes;
  }
  if (header.payload_bytes == 0 || wrong_ != nullptr) return;
  MessagePlace place;
  std::memcpy(&place, header.place, sizeof place);
  publish(place, header.payload_bytes);
}

void PeerLink::publish(const MessagePlace& place, uint32_t bytes) {
  // Its lane may have come or gone since destination() looked.
  if (const char* wrong = wrong_with_place(place, bytes); wrong != nullptr) return refuse(wrong);
  OwnLane* lane = own_lane(place.lane);
  // Ranks that mean different things exchange no byte (contract, point 6): hosts will break the lane.
  if (lane == nullptr || lane->mismatch || !(place.piece & kLastPiece)) return;
  if (place.message != uint32_t(lane->channels->arrivals().inbox[place.channel].posted))
    return refuse("a message out of turn");
  Words words;
  device::deliver_message(words, lane->channels->arrivals().of(place.channel));
  auto& wanted = lane->landings[place.channel].wanted;
  const uint64_t posted = lane->channels->arrivals().inbox[place.channel].posted;
  awaited_ |= place.piece != kLastPiece;
  for (; !wanted.empty() && posted >= wanted.front().landing.messages.end(); wanted.pop_front()) {
    awaited_ = true;
    coming_ -= wanted.front().comes;
    // Its owner has it back now. Nothing of it should be on its way any more.
    const Landing& over = wanted.front().landing;
    if (receiving_) receiving_->move_destination(over.to, over.bytes, nowhere_.data());
  }
  cpu::ring(&common_.arena.header()->daemon);
}

void PeerLink::apply(const RecordHeader& record, const std::byte* body) {
  ArenaHeader* header = shadow_.header();
  ArenaHeader* own = common_.arena.header();
  switch (record.kind) {
    case RecordKind::kOpen: return open_theirs(record.lane, read<OpenRecord>(body));
    case RecordKind::kWaiting: {
      // As publish_waiting_text() writes it there: odd while it changes.
      const auto waiting = read<WaitingRecord>(body);
      const uint64_t version = header->waiting_version;
      relaxed(header->waiting_version, version + 1);
      // The odd version before the new text; pairs with the acquire fence in waiting_text_of()
      // (comm/poller.cc).
      std::atomic_thread_fence(std::memory_order_release);
      for (size_t k = 0; k < sizeof waiting.text; ++k) relaxed(header->waiting_text[k], waiting.text[k]);
      // Release: the text before its version; pairs with the acquire there.
      release(header->waiting_version, version + 2);
      return;
    }
    case RecordKind::kLeft:
      left_ = true;
      shadow_.close(true);
      cpu::ring(&own->host);
      return;
    default:
      if (record.kind < RecordKind::kGrants) return apply_to_theirs(record, body);
      return apply_to_own(record, body);
  }
}

// Lanes are numbered in the order in which they are told.
void PeerLink::open_theirs(uint32_t number, const OpenRecord& open) {
  if (number != theirs_.size()) return refuse("a lane that is not the next one");
  if (const char* wrong = wrong_with(open); wrong != nullptr) return refuse(wrong);
  if (std::any_of(own_.begin(), own_.end(),
                  [&](const auto& lane) { return lane != nullptr && !may_pair(lane->description, open); }))
    return refuse(kNotLikeOurs);
  auto lane = std::make_unique<TheirLane>();
  lane->description = open;
  lane->number = number;
  if (open.slots_on_device != 0) leave_sockets();
  lane->shadow = shadow_.open(open);
  theirs_.push_back(std::move(lane));
  cpu::ring(&common_.arena.header()->host);  // lanes that wait for it
}

void PeerLink::apply_to_theirs(const RecordHeader& record, const std::byte* body) {
  if (record.lane >= theirs_.size() || theirs_[record.lane] == nullptr)
    return refuse("a word of a lane that is not there");
  TheirLane& lane = *theirs_[record.lane];
  switch (record.kind) {
    case RecordKind::kUnpublished:
      return shadow_.unpublish(lane.shadow, lane.description.key_low, lane.description.key_high);
    case RecordKind::kGone:
      shadow_.unpublish(lane.shadow, lane.description.key_low, lane.description.key_high);
      // Released memory reads as zeros, and our host divides by what it finds there. A peer in order waits
      // for its word that it looks no more; else it stays until the link is gone. Acquire: pairs with the
      // release in HostLane::close().
      if (std::atomic_ref<uint64_t>(lane.shadow->closed).load(std::memory_order_acquire) != 0)
        shadow_.release(lane.shadow);
      theirs_[record.lane].reset();
      return;
    case RecordKind::kBoard: {
      const auto board = read<BoardRecord>(body);
      if (const char* wrong = wrong_with(board); wrong != nullptr) return refuse(wrong);
      return post_board(lane, board);
    }
    case RecordKind::kSlots: {
      const auto slots = read<SlotsRecord>(body);
      if (const char* wrong = wrong_with(slots, lane.description); wrong != nullptr) return refuse(wrong);
      lane.slots = slots;
      return;
    }
    case RecordKind::kSubmitted:
      // Release: pairs with the acquire in match_any_source(). Nothing but the count is read by it.
      release(lane.shadow->submitted, read<WordRecord>(body).value);
      cpu::ring(&common_.arena.header()->host);  // an any-source receive may look for it
      return;
    case RecordKind::kBroken: {
      const auto fault = read<FaultRecord>(body);
      lane.fault_known = true;  // nothing to tell the peer
      cpu::write_fault(lane.shadow, shadow_.header(), lane.description.rank, known_kind(fault.kind),
                       fault.note.sequence, fault.note.text);
      cpu::ring(&common_.arena.header()->host);
      return;
    }
    default: return;
  }
}

// As post_signature() does on one host: our board before our look at the other's.
void PeerLink::post_board(TheirLane& lane, const BoardRecord& board) {
  const uint64_t sequence = board.signature.position - 1;
  Signature& entry = board_of(lane.shadow)[sequence % lane.shadow->board_size];
  relaxed(entry.position, uint64_t(0));
  // No new word is seen with the old position; pairs with the acquire fence in read_signature().
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t w = 1; w < sizeof entry / 8; ++w)
    relaxed(reinterpret_cast<uint64_t*>(&entry)[w], reinterpret_cast<const uint64_t*>(&board.signature)[w]);
  Traffic& traffic = traffic_of(lane.shadow, sequence)[lane.description.hearer];
  relaxed(traffic.sent_bytes, board.traffic.sent_bytes);
  relaxed(traffic.received_bytes, board.traffic.received_bytes);
  // Release: pairs with the acquire in match_any_source(). Nothing but the count is read by it.
  release(lane.shadow->submitted, board.submitted);
  // Release: the entry before its position; pairs with the acquire in read_signature().
  release(entry.position, board.signature.position);
  // The board before our look at our host's; pairs with the fence in post_signature().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  compare(lane, board);
}

// If our host has posted its board already, it looked at this one before it was there: then we look for it.
void PeerLink::compare(TheirLane& lane, const BoardRecord& board) {
  if (lane.own == nullptr) return;  // our host will look when it pairs them
  const uint64_t sequence = board.signature.position - 1;
  LaneShared* own = lane.own->shared;
  const Signature& ours = board_of(own)[sequence % own->board_size];
  // Acquire: pairs with the release of `position` in post_signature().
  const auto position = [&] {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(ours.position)).load(std::memory_order_acquire);
  };
  if (position() != sequence + 1) return;
  Signature copy{};
  for (size_t w = 0; w < sizeof copy / 8; ++w)
    reinterpret_cast<uint64_t*>(&copy)[w] =
        std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(&const_cast<Signature&>(ours))[w])
            .load(std::memory_order_relaxed);
  const Traffic traffic = traffic_of(own, sequence)[lane.own->peer];
  // The words before the second look; pairs with the release fence in post_signature().
  std::atomic_thread_fence(std::memory_order_acquire);
  if (position() != sequence + 1 || matches(copy, board.signature, traffic, board.traffic)) return;
  lane.own->mismatch = true;
  // Release: the shadow's board; pairs with the acquire in Proxy::take_mismatch().
  common_.mismatch.store(true, std::memory_order_release);
  cpu::ring(&common_.arena.header()->host);
}

void PeerLink::take_grants(OwnLane& lane, const GrantsRecord& grants) {
  if (lane.channels == nullptr || grants.channel >= lane.channels->shape().channels)
    return refuse("grants of a channel that is not there");
  const Channels& channels = *lane.channels;
  // Relaxed: the first word is this thread's own; of the second one it has read what the peer can know.
  const char* wrong =
      wrong_with(grants, channels.shape(), load_relaxed(channels.arrivals().credit[grants.channel].granted),
                 load_relaxed(channels.departures().inbox[grants.channel].posted));
  if (wrong != nullptr) return refuse(wrong);
  Words words;
  device::deliver_grants(words, channels.arrivals().of(grants.channel), grants);
  ArenaHeader* header = common_.arena.header();
  if (const uint32_t slots = channels.shape().slots; grants.granted > slots)
    note_taken(channels, grants.channel, grants.granted - slots, header);
  cpu::ring(&header->daemon);
}

void PeerLink::take_offer(OwnLane& lane, const OfferRecord& offer) {
  if (offer.channel >= lane.offers.size()) return refuse("an offer of a channel that is not there");
  if (const char* wrong = wrong_with(offer, offers_heard_); wrong != nullptr) return refuse(wrong);
  offers_heard_ = offer.number;
  lane.offers[offer.channel].push_back(offer);
}

void PeerLink::apply_to_own(const RecordHeader& record, const std::byte* body) {
  if (record.lane >= own_.size()) return refuse("a word of a lane that was never there");
  OwnLane* lane = own_lane(record.lane);
  if (lane == nullptr) return;
  LaneShared* own = lane->shared;
  ArenaHeader* header = common_.arena.header();
  switch (record.kind) {
    case RecordKind::kGrants: return take_grants(*lane, read<GrantsRecord>(body));
    case RecordKind::kOffer: return take_offer(*lane, read<OfferRecord>(body));
    case RecordKind::kFault: {
      const auto fault = read<FaultRecord>(body);
      cpu::write_fault(own, header, lane->peer, known_kind(fault.kind), fault.note.sequence, fault.note.text);
      cpu::ring(&header->daemon);
      cpu::ring(&header->host);
      return;
    }
    case RecordKind::kMet: return relaxed(withdrawals_of(own)[lane->peer].met, read<WordRecord>(body).value);
    case RecordKind::kOut:
      // Release: what the peer's blocks did before, which came before; pairs with has_withdrawn().
      release(withdrawals_of(own)[lane->peer].out, uint64_t(1));
      cpu::ring(&header->host);
      return;
    case RecordKind::kClosed:
      // The region is used again when all its peers have said so.
      if (std::exchange(lane->closed, true)) return refuse("that it closed a lane twice");
      // Release: likewise; pairs with the acquire in HostLane::abandoned(). Acquire: of what other proxies
      // and hosts did before their additions, so that who reads the last one has them all.
      std::atomic_ref<uint64_t>(own->closed).fetch_add(1, std::memory_order_acq_rel);
      return;
    default: return;
  }
}

}  // namespace starling::link::carry
