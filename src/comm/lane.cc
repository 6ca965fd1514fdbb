#include "comm/lane.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/error.h"
#include "base/hash.h"
#include "machine/cpu/doorbell.h"

namespace starling {
namespace {

constexpr uint32_t kPrivateSlots = 2;  // what every built-in plan needs at most (verified per plan)
constexpr uint64_t kSmallestSlot = 4096;

uint64_t align64(uint64_t bytes) { return (bytes + 63) & ~uint64_t(63); }

void store_release(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
}

// A lane whose first operation is small keeps small slots; what comes later runs in more tiles.
uint32_t slot_bytes_for(uint64_t size_class_bytes, uint32_t limit) {
  const uint64_t wanted = std::bit_ceil(std::max<uint64_t>(size_class_bytes / 16, kSmallestSlot));
  return uint32_t(std::min<uint64_t>(wanted, limit));
}

}  // namespace

LaneKey key_of(const LaneKey& base, const std::string& text) {
  const Hash128 hash = hash128(text);
  return {hash_combine(base.high, hash.high), hash_combine(base.low, hash.low)};
}

HostLane::HostLane(const LaneOptions& options, cpu::Arena& arena)
    : options_(options), arena_(arena), blocks_(options.grid), peers_(options.members.size()) {
  device_.id = options_.id;
  device_.peer_count = size();
  device_.rank = options_.rank;
  device_.private_slots = kPrivateSlots;
  device_.doorbell = &arena_.header()->daemon;
  device_.blocks = blocks_.data();
  device_.operations = operations_.data();
  device_.finished = finished_.data();
  for (LaneBlock& block : blocks_) block.context.sequence = ~uint64_t(0);
  unresolved_ = size() - 1;
}

// A peer may still grant us slots that it read late: only an abandoned region is used again.
HostLane::~HostLane() {
  if (shared_ == nullptr || !abandoned()) return;
  arena_.unpublish(options_.key.low, options_.key.high, region_offset_);
  arena_.release(region_offset_, region_bytes_);
}

void HostLane::close() {
  if (shared_ == nullptr) return;
  resolve();
  // A peer that has not come yet must find out why the lane broke, not that we left.
  const bool tells =
      !resolved() && std::atomic_ref<uint64_t>(shared_->fault).load(std::memory_order_relaxed) != 0;
  if (!tells) arena_.unpublish(options_.key.low, options_.key.high, region_offset_);
  for (LaneShared* peer : peers_)
    // Release: all that our blocks did in the peer's region came before; pairs with abandoned().
    if (peer != nullptr) std::atomic_ref<uint64_t>(peer->closed).fetch_add(1, std::memory_order_acq_rel);
}

void HostLane::withdraw() {
  for (SendEnd& send : sends_)
    // Release: all that our blocks wrote to this peer came before; pairs with the acquire in recover().
    if (send.connected != 0) store_release(send.inbox->withdrawn, 1);
}

bool HostLane::recover(std::vector<uint32_t>& slots) {
  bool all = true;
  for (uint32_t peer = 0; peer < size(); ++peer)
    all = all && (peer == rank() || peers_[peer] != nullptr || abandoned() || !member(peer).arena->alive());
  for (size_t end = 0; end < receives_.size(); ++end) {
    const ReceiveEnd& receive = receives_[end];
    if (recovered_[end] || receive.peer == rank()) continue;
    const cpu::PeerArena& peer = *member(receive.peer).arena;
    // Acquire: pairs with the release in withdraw(); the sender's last byte came before. A dead process, and
    // one that has left, writes no more either.
    const bool out =
        (receive.connected != 0 && std::atomic_ref<uint64_t>(const_cast<uint64_t&>(receive.inbox->withdrawn))
                                           .load(std::memory_order_acquire) != 0) ||
        abandoned() || !peer.alive();
    all = all && out;
    if (!out) continue;
    recovered_[end] = true;
    for (uint64_t k = receive.received; k < receive.granted; ++k)
      if (const uint32_t slot = receive.grants[k % kMaxCredits]; slot >= kPoolSlot) slots.push_back(slot);
  }
  settled_ = all;
  return all;
}

bool HostLane::abandoned() const {
  return shared_ == nullptr ||
         // Acquire: pairs with the peers' additions in close(); after it nobody touches the region.
         std::atomic_ref<uint64_t>(shared_->closed).load(std::memory_order_acquire) == size() - 1;
}

void HostLane::open(uint64_t size_class_bytes, uint32_t channel_count) {
  if (shared_ != nullptr) return;
  const uint32_t channels = std::max(channel_count, options_.grid);
  const uint64_t ends = uint64_t(size()) * channels;
  const uint32_t slot_bytes = options_.any_size ? options_.slot_bytes_limit
                                                : slot_bytes_for(size_class_bytes, options_.slot_bytes_limit);
  const uint64_t traffic = sizeof(LaneShared);
  const uint64_t inbox = align64(traffic + sizeof(Traffic) * kBoard * size());
  const uint64_t credit = inbox + sizeof(Inbox) * ends;
  const uint64_t slots = (credit + sizeof(Credit) * ends + 4095) & ~uint64_t(4095);
  region_bytes_ = slots + ends * kPrivateSlots * slot_bytes;
  region_offset_ = arena_.allocate(region_bytes_);
  shared_ = reinterpret_cast<LaneShared*>(arena_.at(region_offset_));
  shared_->size = size();
  shared_->rank = rank();
  shared_->channel_count = channels;
  shared_->private_slots = kPrivateSlots;
  shared_->slot_bytes = slot_bytes;
  shared_->traffic_offset = traffic;
  shared_->inbox_offset = inbox;
  shared_->credit_offset = credit;
  shared_->slots_offset = slots;
  auto* credits = reinterpret_cast<Credit*>(arena_.at(region_offset_ + credit));
  for (uint64_t end = 0; end < ends; ++end) {
    // Our sends begin with the peer's private slots granted (wire/connector.h, Grants).
    credits[end].granted = kPrivateSlots;
    for (uint32_t k = 0; k < kPrivateSlots; ++k) credits[end].grants[k] = k;
  }
  sends_.resize(ends);
  receives_.resize(ends);
  recovered_.resize(ends);
  for (uint64_t end = 0; end < ends; ++end) {
    sends_[end].peer = receives_[end].peer = uint32_t(end / channels);
    receives_[end].granted = kPrivateSlots;
    for (uint32_t k = 0; k < kPrivateSlots; ++k) receives_[end].grants[k] = k;
  }
  device_.fault = &shared_->fault;
  device_.channel_count = channels;
  device_.slot_bytes = slot_bytes;
  const uint64_t pool_slot = arena_.header()->pool_slot_bytes;
  device_.pool_slot_bytes = pool_slot >= slot_bytes ? uint32_t(pool_slot) : 0;
  device_.sends = sends_.data();
  device_.receives = receives_.data();
  arena_.publish(options_.key.low, options_.key.high, region_offset_);
}

bool HostLane::resolve() {
  bool any = false;
  for (uint32_t peer = 0; unresolved_ > 0 && peer < size(); ++peer) {
    if (peer == rank() || peers_[peer] != nullptr) continue;
    peers_[peer] = member(peer).arena->find_lane(options_.key.low, options_.key.high);
    if (peers_[peer] == nullptr) continue;
    --unresolved_;
    any = true;
    connect(peer);
  }
  return any;
}

// Ends in the order of wire/connector.h: pointers first, `connected` last.
void HostLane::connect(uint32_t peer) {
  LaneShared* theirs = peers_[peer];
  // Unequal geometry means unequal operations: the board will say so; nothing may be connected.
  if (theirs->channel_count != shared_->channel_count || theirs->slot_bytes != shared_->slot_bytes ||
      theirs->size != shared_->size)
    return;
  auto* base = reinterpret_cast<std::byte*>(theirs);
  auto* own = reinterpret_cast<std::byte*>(shared_);
  ArenaHeader* header = member(peer).arena->header();
  const uint64_t channels = shared_->channel_count;
  const uint64_t slots_bytes = uint64_t(kPrivateSlots) * shared_->slot_bytes;
  for (uint64_t channel = 0; channel < channels; ++channel) {
    const uint64_t here = peer * channels + channel;     // our end for that peer
    const uint64_t there = rank() * channels + channel;  // its end for us
    SendEnd& send = sends_[here];
    send.credit = reinterpret_cast<Credit*>(own + shared_->credit_offset) + here;
    send.inbox = reinterpret_cast<Inbox*>(base + theirs->inbox_offset) + there;
    send.private_slots = base + theirs->slots_offset + there * slots_bytes;
    send.pool = member(peer).arena->at(header->pool_offset);
    send.doorbell = &header->daemon;
    // Release, here and below: the pointers of the end; pairs with the acquires in device/connector.h.
    store_release(send.connected, 1);
    ReceiveEnd& receive = receives_[here];
    receive.inbox = reinterpret_cast<Inbox*>(own + shared_->inbox_offset) + here;
    receive.credit = reinterpret_cast<Credit*>(base + theirs->credit_offset) + there;
    receive.private_slots = own + shared_->slots_offset + here * slots_bytes;
    receive.doorbell = &header->daemon;
    store_release(receive.connected, 1);
  }
}

void HostLane::check(const Plan& plan) const {
  const PlanHeader* header = plan.header(rank());
  if (header->minimum_slots > kPrivateSlots || header->channel_count > device_.channel_count)
    throw Error(Code::unsupported,
                "plan " + plan.name() + " needs " + std::to_string(header->minimum_slots) + " slots and " +
                    std::to_string(header->channel_count) + " channels; the lane has " +
                    std::to_string(kPrivateSlots) + " and " + std::to_string(device_.channel_count),
                "run it on a lane of its own, or with a daemon of more blocks (STARLING_BLOCKS)");
}

Flight& HostLane::append(Flight&& flight) {
  flight.sequence = next_sequence_++;
  flights_.push_back(std::move(flight));
  return flights_.back();
}

Flight* HostLane::next_for_device() {
  if (on_device_ == kLaneDepth || on_device_ == flights_.size()) return nullptr;
  for (Flight& flight : flights_)
    if (!flight.on_device) {
      // Its place in the ring is free when the operation eight before it was completed.
      return flight.sequence - flights_.front().sequence < kLaneDepth ? &flight : nullptr;
    }
  return nullptr;
}

void HostLane::place(Flight& flight, uint64_t token) {
  const uint32_t at = flight.sequence % kLaneDepth;
  Operation& op = flight.lowered.operation;
  const PlanHeader* plan = op.plan;
  op.sequence = flight.sequence;
  op.token = token;
  op.tile_bytes = (device_.slot_bytes / std::max<uint32_t>(plan->largest_chunks, 1)) & ~uint64_t(15);
  op.tile_count = (op.chunk_bytes + op.tile_bytes - 1) / op.tile_bytes;
  const bool canonical = plan->canonical != 0;
  op.fence_previous = canonical && last_canonical_ ? 0 : 1;
  last_canonical_ = canonical;
  if (plan->scratch_chunks > 0) {
    auto& scratch = scratch_[at];
    scratch.resize(std::max<size_t>(scratch.size(), plan->scratch_chunks * op.chunk_bytes));
    op.buffers[uint32_t(BufferKind::kScratch)].base = scratch.data();
  }
  op.finished_target = finished_targets_[at] += op.block_count;
  op.previous_target = finished_targets_[(at + kLaneDepth - 1) % kLaneDepth];
  operations_[at] = op;
  flight.on_device = true;
  ++on_device_;
}

Flight HostLane::finish(uint64_t sequence) {
  for (auto it = flights_.begin(); it != flights_.end(); ++it) {
    if (it->sequence != sequence) continue;
    Flight flight = std::move(*it);
    flights_.erase(it);
    --on_device_;
    return flight;
  }
  throw Error(Code::internal, "completion of an operation that is not under way", "report this");
}

std::vector<Flight> HostLane::take_waiting() {
  std::vector<Flight> waiting;
  while (!flights_.empty() && !flights_.back().on_device) {
    waiting.push_back(std::move(flights_.back()));
    flights_.pop_back();
  }
  std::reverse(waiting.begin(), waiting.end());
  return waiting;
}

uint64_t HostLane::host_bytes() const {
  uint64_t bytes = sizeof(*this) + sends_.size() * sizeof(SendEnd) + receives_.size() * sizeof(ReceiveEnd) +
                   blocks_.size() * sizeof(LaneBlock);
  for (const auto& scratch : scratch_) bytes += scratch.size();
  return bytes;
}

}  // namespace starling
