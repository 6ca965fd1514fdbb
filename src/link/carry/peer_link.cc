#include "link/carry/peer_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "device/carrying.h"
#include "link/carry/checks.h"
#include "link/carry/words.h"
#include "link/checks.h"
#include "machine/cpu/doorbell.h"
#include "machine/cpu/lane_fault.h"
#include "monitor/publish.h"

namespace starling::link::carry {
namespace {

// Each call says what it pairs with.
template <class T>
T acquire(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}
template <class T>
T relaxed(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_relaxed);
}

constexpr uint64_t kAtOnce = ~uint64_t(0);
constexpr uint64_t kMostHeldNs = 20'000;

std::string texts_of(const std::vector<std::pair<tcp::Port, tcp::Port>>& paths) {
  std::string text;
  for (const auto& path : paths) text += (text.empty() ? "" : "; ") + tcp::path_text(path);
  return text;
}

bool same_shape(const OpenRecord& theirs, const ChannelShape& ours) {
  return theirs.channel_count == ours.channels && theirs.slot_bytes == ours.slot_bytes &&
         theirs.private_slots == ours.slots;
}

// One for each path, or none.
std::vector<PathRing*> rings_for(const Common& common, uint32_t peer,
                                 const std::vector<std::pair<tcp::Port, tcp::Port>>& paths) {
  std::vector<PathRing*> rings;
  for (uint32_t p = 0; common.recorded && p < paths.size(); ++p) {
    PathRing* ring = monitor::add_path(common.arena, {peer, p, LinkKind::kTcp, tcp::path_text(paths[p])});
    if (ring == nullptr) return {};
    rings.push_back(ring);
  }
  return rings;
}

}  // namespace

uint64_t identity_of(const std::string& arena) { return hash64(arena); }

PeerLink::PeerLink(const Common& common, const RemoteRank& remote,
                   std::vector<std::pair<tcp::Port, tcp::Port>> paths, uint64_t now_ns)
    : common_(common),
      identity_(identity_of(remote.arena)),
      peer_rank_(remote.rank),
      shadow_(remote, common.shadow_bytes, common.event_fd),
      nowhere_(kCarriedSlotBytes),
      ports_(texts_of(paths)) {
  failure_.reserve(kMostFailureBytes);
  std::vector<PathRing*> rings = rings_for(common, remote.rank, paths);
  sending_.emplace(
      tcp::SendingOptions{common.identity, identity_, remote.rank, common.policy, std::move(paths),
                          common.lengths, std::move(rings), common.upgrades, common.bulk},
      common.reactor, static_cast<tcp::TransferSource&>(*this), now_ns);
}

// ---- what hosts say -----------------------------------------------------------------------------------
uint32_t PeerLink::open_lane(LaneShared* own, std::shared_ptr<Channels> channels,
                             const OpenRecord& description) {
  if (std::any_of(theirs_.begin(), theirs_.end(), [&](const auto& lane) {
        return lane != nullptr && !may_pair(description, lane->description);
      }))
    refuse(kNotLikeOurs);
  own_.push_back(
      std::make_unique<OwnLane>(OwnLane{own, std::move(channels), description, description.hearer}));
  OwnLane& lane = *own_.back();
  const auto number = uint32_t(own_.size() - 1);
  tell(RecordKind::kOpen, number, description);
  if (lane.channels == nullptr) return number;
  if (description.slots_on_device != 0) {
    // At once: messages for them come in no other way, and their sender waits for no pair().
    lane.slots = lane.channels->on_device();
    tell_slots(number, lane);
    leave_sockets();
  }
  lane.landings.resize(lane.channels->shape().channels);
  lane.loans.resize(lane.channels->shape().channels);
  lane.offers.resize(lane.channels->shape().channels);
  return number;
}

void PeerLink::pair(uint32_t lane, LaneShared* theirs, RegistrationPtr slots) {
  OwnLane& own = *own_[lane];
  for (auto& known : theirs_)
    if (known != nullptr && known->shadow == theirs) {
      known->own = &own;
      if (own.channels == nullptr || !same_shape(known->description, own.channels->shape())) continue;
      const uint64_t slots = own.channels->shape().slots;  // granted from the start
      known->carried.assign(own.channels->shape().channels, {0, slots, 0, slots});
    }
  if (slots == nullptr) return;
  own.slots = std::move(slots);
  tell_slots(lane, own);
}

void PeerLink::tell_slots(uint32_t number, const OwnLane& lane) {
  tell(RecordKind::kSlots, number,
       SlotsRecord{reinterpret_cast<uint64_t>(lane.channels->arrivals().named), lane.slots->remote_keys});
}

void PeerLink::unpublish(uint32_t lane) { tell(RecordKind::kUnpublished, lane, WordRecord{}); }

RegisteredBytes PeerLink::forget(uint32_t lane) {
  scan(kAtOnce);  // our last words in the peer's region
  for (auto& known : theirs_)
    if (known != nullptr && known->own == own_[lane].get()) known->own = nullptr;
  RegisteredBytes registered;
  if (own_[lane]->slots != nullptr) {
    const Channels& channels = *own_[lane]->channels;
    if (channels.on_device() != nullptr)
      registered.on_device = 2 * Channels::slots_bytes(channels.shape());
    else
      registered.pinned = channels.bytes();
  }
  own_[lane].reset();
  tell(RecordKind::kGone, lane, WordRecord{});
  return registered;
}

void PeerLink::expect(uint32_t lane, uint32_t channel, const Landing& landing, RegistrationPtr memory) {
  const OwnLane& own = *own_[lane];
  // All are in their slots already: nothing would end the landing, which must not outlive its operation.
  if (own.channels->arrivals().inbox[channel].posted >= landing.messages.end()) return;
  own_[lane]->offers_due |= memory != nullptr;
  own_[lane]->landings[channel].wanted.push_back({landing, std::move(memory)});
}

void PeerLink::leave() {
  if (gone()) return;
  scan(kAtOnce);
  tell(RecordKind::kLeft, 0, WordRecord{});
  close_batch();
}

// ---- what is new here ---------------------------------------------------------------------------------
template <class Body>
void PeerLink::tell(RecordKind kind, uint32_t lane, const Body& body) {
  if (gone()) return;
  constexpr uint32_t kBytes = (sizeof(RecordHeader) + sizeof body + 7) & ~7u;
  if (batch_.size() + kBytes > kMostControlBytes / 2) close_batch();
  const RecordHeader header{kind, kBytes, lane, 0};
  const size_t at = batch_.size();
  batch_.resize(at + kBytes);
  std::memcpy(batch_.data() + at, &header, sizeof header);
  std::memcpy(batch_.data() + at + sizeof header, &body, sizeof body);
}

void PeerLink::close_batch() {
  if (batch_.empty()) return;
  transfers_.emplace_back();
  transfers_.back().control.swap(batch_);
}

bool PeerLink::scan(uint64_t now_ns) {
  if (gone()) return false;
  const size_t before = transfers_.size();
  for (auto& lane : theirs_)
    if (lane != nullptr) {
      read_words(*lane);
      read_counters(*lane);
    }
  if (common_.polls && waits_for_messages(now_ns)) return true;
  held_since_ns_ = 0;
  for (uint32_t number = 0; number < own_.size(); ++number)
    if (own_[number] != nullptr) tell_boards(number, *own_[number]);
  tell_waiting();
  for (auto& lane : theirs_)
    if (lane != nullptr && lane->own != nullptr) {
      tell_offers(*lane);
      tell_messages(*lane);
      tell_grants(*lane);
    }
  for (auto& lane : theirs_)
    if (lane != nullptr) tell_words(*lane);
  close_batch();
  return transfers_.size() != before;
}

// A board comes some microseconds before its operation's first message, and grants before the next one's:
// each in a frame of its own would cost both ends as much as the message does. So where this thread looks
// again at once, they wait a little for a message; a sender that has half of its grants left waits for none.
bool PeerLink::waits_for_messages(uint64_t now_ns) {
  bool held = !batch_.empty();
  for (const auto& lane : theirs_) {
    if (lane == nullptr) continue;
    if (lane->fault_seen != 0 && !lane->fault_known) return false;
    if (lane->met_seen != lane->met || (lane->out_seen != 0 && !lane->out_told) ||
        (lane->closed_seen != 0 && !lane->closed_told))
      return false;
    if (lane->own == nullptr) continue;
    for (const Carried& carried : lane->carried) {
      const uint64_t grants = carried.granted_seen - carried.granted;
      if (carried.has_message() || grants >= kMaxCredits / 2) return false;
      held |= grants != 0;
    }
  }
  for (const auto& lane : own_) held |= lane != nullptr && has_news_of_board(*lane);
  if (!held || now_ns == kAtOnce) return false;
  if (held_since_ns_ == 0) held_since_ns_ = now_ns;
  return now_ns - held_since_ns_ < kMostHeldNs;
}

bool PeerLink::has_news_of_board(const OwnLane& lane) const {
  // Relaxed: nothing is read by them here.
  return relaxed(board_of(lane.shared)[lane.next_board % lane.shared->board_size].position) >
             lane.next_board ||
         relaxed(lane.shared->submitted) != lane.submitted;
}

// Acquire, of all: pairs with the releases of hosts (write_fault(), withdraw(), close()) and of blocks
// (post(), grant()).
void PeerLink::read_words(TheirLane& lane) {
  const Withdrawal& ours = withdrawals_of(lane.shadow)[lane.description.hearer];
  lane.closed_seen = acquire(lane.shadow->closed);
  lane.out_seen = acquire(ours.out);
  lane.met_seen = acquire(ours.met);
  lane.fault_seen = acquire(lane.shadow->fault);
}

void PeerLink::read_counters(TheirLane& lane) {
  if (lane.own == nullptr) return;
  Words words;
  for (uint32_t c = 0; c < lane.carried.size(); ++c)
    device::look_at_departures(words, lane.own->channels->departures().of(c), lane.carried[c]);
}

void PeerLink::tell_boards(uint32_t number, OwnLane& lane) {
  // Acquire: pairs with the release in post_call(). The count alone is told.
  const uint64_t submitted = acquire(lane.shared->submitted);
  for (;;) {
    const Signature& entry = board_of(lane.shared)[lane.next_board % lane.shared->board_size];
    // Acquire: pairs with the release of `position` in post_signature().
    const uint64_t position = acquire(entry.position);
    if (position < lane.next_board + 1) break;
    if (position > lane.next_board + 1) {
      lane.next_board = position - 1;  // we were too slow; the peer is far behind, or ahead
      continue;
    }
    BoardRecord board{};
    const auto* words = reinterpret_cast<const uint64_t*>(&entry);
    for (size_t w = 1; w < sizeof entry / 8; ++w)
      reinterpret_cast<uint64_t*>(&board.signature)[w] = relaxed(words[w]);
    const Traffic& traffic = traffic_of(lane.shared, lane.next_board)[lane.peer];
    board.traffic = {relaxed(traffic.sent_bytes), relaxed(traffic.received_bytes)};
    // The words before the second look; pairs with the release fence in post_signature().
    std::atomic_thread_fence(std::memory_order_acquire);
    if (relaxed(entry.position) != position) continue;
    board.signature.position = position;
    board.submitted = submitted;
    tell(RecordKind::kBoard, number, board);
    lane.submitted = submitted;
    ++lane.next_board;
  }
  if (submitted != lane.submitted) tell(RecordKind::kSubmitted, number, WordRecord{submitted});
  lane.submitted = submitted;
  // Acquire: pairs with the release in write_fault().
  const uint64_t fault = acquire(lane.shared->fault);
  if (fault == 0 || lane.fault_told) return;
  lane.fault_told = true;
  const FaultRecord record{uint64_t(fault_kind(fault)), cpu::note_of(*lane.shared, fault)};
  tell(RecordKind::kBroken, number, record);
}

// Before grants: a message that is offered a place has its grant later, or has it already.
void PeerLink::tell_offers(TheirLane& lane) {
  if (!std::exchange(lane.own->offers_due, false)) return;
  for (uint32_t c = 0; c < lane.own->landings.size(); ++c)
    for (Wanted& wanted : lane.own->landings[c].wanted) {
      const Landing& landing = wanted.landing;
      if (wanted.offered || wanted.memory == nullptr || landing.messages.stride != 1) continue;
      wanted.offered = true;
      tell(RecordKind::kOffer, lane.number,
           OfferRecord{++offers_, landing.messages.first, landing.messages.count,
                       reinterpret_cast<uint64_t>(landing.to), landing.message_bytes, landing.bytes,
                       wanted.memory->remote_keys, c, 0});
    }
}

void PeerLink::tell_messages(TheirLane& lane) {
  const std::shared_ptr<Channels>& channels = lane.own->channels;
  for (uint32_t c = 0; c < lane.carried.size(); ++c)
    while (lane.carried[c].has_message()) {
      const CarriedMessage message =
          device::take_message(channels->arrivals().of(c), channels->departures().of(c), lane.carried[c]);
      const bool named = (message.bytes & kElsewhere) != 0;
      const uint32_t bytes = message.bytes & ~kElsewhere;
      const std::byte* from = channels->named_slot(channels->departures(), c, message.slot);
      if (named) std::memcpy(&from, from, sizeof from);
      const RegistrationPtr source = source_of(*lane.own, c, message.number, named);
      const RemotePlace remote = source != nullptr ? place_of(lane, c, message, bytes) : RemotePlace();
      for (uint32_t at = 0; at == 0 || at < bytes; at += kCarriedSlotBytes) {
        const bool last = bytes - at <= kCarriedSlotBytes;
        transfers_.emplace_back();
        Transfer& transfer = transfers_.back();
        transfer.control.swap(batch_);
        transfer.channels = channels;
        transfer.payload = from + at;
        transfer.payload_bytes = std::min(bytes - at, kCarriedSlotBytes);
        transfer.place = {lane.number, c, uint16_t(message.slot),
                          uint16_t(at / kCarriedSlotBytes | (last ? kLastPiece : 0)),
                          uint32_t(message.number)};
        transfer.source = source;
        transfer.remote = remote;
        transfer.remote.address += remote.address != 0 ? at : 0;
        transfer.named = named;
        named_ += named;
        transfer.taken = message.number + last;
      }
    }
}

// Nobody reads the sources of the channel's messages before this one any more.
void PeerLink::note_taken(const Channels& channels, uint32_t channel, uint64_t taken, ArenaHeader* own) {
  uint64_t& word = channels.arrivals().credit[channel].taken;
  if (relaxed(word) >= taken) return;
  // Release: our reading of the sources; pairs with the acquire in was_taken().
  std::atomic_ref<uint64_t>(word).store(taken, std::memory_order_release);
  cpu::ring(&own->daemon);
}

void PeerLink::tell_grants(TheirLane& lane) {
  for (uint32_t c = 0; c < lane.carried.size(); ++c)
    if (lane.carried[c].has_grants())
      tell(RecordKind::kGrants, lane.number,
           device::take_grants(lane.own->channels->departures().of(c), c, lane.carried[c]));
}

void PeerLink::tell_words(TheirLane& lane) {
  if (lane.fault_seen != 0 && !lane.fault_known) {
    lane.fault_known = true;
    const FaultRecord record{uint64_t(fault_kind(lane.fault_seen)),
                             cpu::note_of(*lane.shadow, lane.fault_seen)};
    tell(RecordKind::kFault, lane.number, record);
  }
  if (lane.met_seen != lane.met) tell(RecordKind::kMet, lane.number, WordRecord{lane.met_seen});
  lane.met = lane.met_seen;
  if (lane.out_seen != 0 && !lane.out_told) tell(RecordKind::kOut, lane.number, WordRecord{1});
  lane.out_told |= lane.out_seen != 0;
  if (lane.closed_seen != 0 && !lane.closed_told) tell(RecordKind::kClosed, lane.number, WordRecord{1});
  lane.closed_told |= lane.closed_seen != 0;
}

// What this rank waits for, for the messages of others.
void PeerLink::tell_waiting() {
  const ArenaHeader* header = common_.arena.header();
  // Acquire: pairs with the release in publish_waiting_text().
  const uint64_t version = acquire(header->waiting_version);
  if (version == waiting_version_ || version % 2 != 0) return;
  WaitingRecord record;
  for (size_t k = 0; k < sizeof record.text; ++k) record.text[k] = relaxed(header->waiting_text[k]);
  // The text before the second look; pairs with the release fence in publish_waiting_text().
  std::atomic_thread_fence(std::memory_order_acquire);
  if (relaxed(header->waiting_version) != version) return;  // it will be told when it is whole
  waiting_version_ = version;
  tell(RecordKind::kWaiting, 0, record);
}

// ---- flows --------------------------------------------------------------------------------------------
Outgoing PeerLink::transfer(uint64_t sequence) {
  const Transfer& transfer = transfers_[sequence - first_];
  Outgoing out;
  out.control = transfer.control.data();
  out.control_bytes = uint32_t(transfer.control.size());
  out.payload = transfer.payload;
  out.payload_bytes = transfer.payload_bytes;
  std::memcpy(out.place, &transfer.place, sizeof out.place);
  out.source = &transfer.source;
  out.remote = transfer.remote;
  return out;
}

void PeerLink::adopt(const Hello& hello, std::unique_ptr<tcp::Connection> connection, const tcp::Port& port,
                     uint64_t now_ns) {
  if (!failure_.empty()) return connection->give_up(hello);  // it would call until it gives up
  if (gone()) return;
  if (const char* wrong = link::wrong_with(hello); wrong != nullptr) return refuse(wrong);
  if (receiving_ && (hello.path_count != receiving_->path_count() || hello.policy != policy_))
    return refuse("a hello that is not what its first hello said");
  policy_ = hello.policy;
  if (!receiving_)
    receiving_.emplace(hello.path_count, Policy(hello.policy), peer_rank_, common_.lengths, common_.reactor,
                       static_cast<tcp::TransferSink&>(*this), now_ns, common_.upgrades, common_.recorded);
  if (const auto from = tcp::peer_address(connection->fd()); from && sending_)
    sending_->peer_called(port, *from);
  try {
    receiving_->pump();  // what breaks there is more than this connection
  } catch (const std::exception& why) {
    return lose_by(why);
  }
  receiving_->adopt(hello, std::move(connection), port);
}

void PeerLink::port_changed(uint32_t interface_index, bool up) {
  if (sending_) sending_->port_changed(interface_index, up);
  if (receiving_) receiving_->port_changed(interface_index, up);
}

// The clock was read before the sockets were: what had come by then is heard before a timer ends.
bool PeerLink::round(uint64_t now_ns) {
  if (copied_for_device_ && !gone())
    throw Error(Code::system, "a message came by copies, and slots are on this rank's device",
                "use STARLING_GPUDIRECT=never on all ranks, and report it");
  if (receiving_ && wrong_ == nullptr) receiving_->pump();
  if (wrong_ != nullptr) return end_by_nonsense();
  if (receiving_ && (left_ || awaited_)) receiving_->report_now();
  awaited_ = false;
  if (left_ && sending_) {
    sending_.reset();  // before what it would send
    transfers_.clear();
  }
  const bool any = scan(now_ns);
  if (!gone()) {
    if (first_ + transfers_.size() > sending_->posted()) sending_->offer(first_ + transfers_.size());
    tcp::expire(*sending_, receiving_ ? &*receiving_ : nullptr, now_ns);
    for (; !transfers_.empty() && first_ < sending_->acked(); ++first_) {
      const Transfer& landed = transfers_.front();
      named_ -= landed.named;
      if (landed.named)
        note_taken(*landed.channels, landed.place.channel, landed.taken, common_.arena.header());
      transfers_.pop_front();
    }
  }
  check_flows();
  return any;
}

uint64_t PeerLink::next_deadline() const {
  if (gone()) return tcp::Timers::kNever;
  const uint64_t next = sending_->next_deadline();
  return receiving_ ? std::min(next, receiving_->next_deadline()) : next;
}

}  // namespace starling::link::carry
