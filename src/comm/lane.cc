#include "comm/lane.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>

#include "base/error.h"
#include "base/hash.h"
#include "base/prefetch.h"
#include "link/carry/channels.h"
#include "link/carry/proxy.h"
#include "machine/cpu/doorbell.h"

namespace starling {
namespace {

// Between hosts a message takes long to come and its grant to go back, so more are under way, and larger
// ones. As many as there are grants: no pool deepens those connectors. Memory is used where it was touched,
// but for a GPU's, which is locked: slots are smaller there, and channels fewer
// (block_limit_between_hosts()).
constexpr uint32_t kCarriedSlots = kMaxCredits;  // of kCarriedSlotBytes at most
constexpr auto kMostWaitForPaths = std::chrono::seconds(2);  // to all peers, once
constexpr uint32_t kLockedSlotBytes = 1 << 17;
constexpr uint64_t kSmallestSlot = 4096;

uint64_t align64(uint64_t bytes) { return (bytes + 63) & ~uint64_t(63); }

// A lane whose first operation is small keeps small slots; what comes later runs in more tiles.
uint32_t slot_bytes_for(uint64_t size_class_bytes, uint32_t limit) {
  const uint64_t wanted = std::bit_ceil(std::max<uint64_t>(size_class_bytes / 16, kSmallestSlot));
  return uint32_t(std::min<uint64_t>(wanted, limit));
}

// Packets are for messages that are small on their block; larger ones go in several tiles. Slots are a
// sixteenth of the lane's first operation.
uint32_t packet_bytes_for(uint32_t slot_bytes, const PlaceTraits& traits) {
  return std::min(slot_bytes == kSmallestSlot ? 1024 : slot_bytes, traits.packet_bytes_limit);
}

// Bytes of one chunk that an instruction moves at a time.
uint64_t tile_bytes_for(const PlanHeader& plan, const LaneShared& lane, const PlaceTraits& traits) {
  uint64_t message = lane.slot_bytes;
  if (plan.protocol == Protocol::kPackets) message = lane.packet_bytes;
  if (plan.protocol == Protocol::kPull) message = traits.pull_bytes;
  return tile_bytes_of(plan, message);
}

}  // namespace

LaneKey key_of(const LaneKey& base, const std::string& text) {
  const Hash128 hash = hash128(text);
  return {hash_combine(base.high, hash.high), hash_combine(base.low, hash.low)};
}

HostLane::HostLane(const LaneOptions& options, cpu::Arena& arena, Place& place, PlanShelf& shelf)
    : options_(options),
      arena_(arena),
      place_(place),
      shelf_(shelf),
      finished_targets_(place.traits().lane_depth),
      told_(options.members.size()),
      peers_(options.members.size()),
      scratch_(place.traits().lane_depth) {
  unresolved_ = size() - 1;
  carriers_.resize(size());
  for (const Member& member : options_.members) {
    carried_ |= member.peer.way != nullptr;
    carried_peers_.push_back(member.peer.way != nullptr);
    near_ |= member.peer.way == nullptr && member.peer.arena != nullptr;
  }
}

void HostLane::open(uint64_t size_class_bytes, uint32_t channel_count) {
  if (shared_ != nullptr) return;
  uint32_t limit = options_.slot_bytes_limit;
  if (carried_) limit = place_.traits().direct || by_copies() ? kCarriedSlotBytes : kLockedSlotBytes;
  if (names_buffers()) limit = kNamedSlotBytes;
  const uint32_t slot_bytes = options_.is_default ? limit : slot_bytes_for(size_class_bytes, limit);
  const uint32_t for_copies = by_copies() && carried_ ? 1 : 0;
  try {
    open_region(options_.carries_operations ? channels_for(channel_count) : for_copies, slot_bytes);
    if (options_.carries_operations) open_device();
  } catch (...) {  // there is no memory: it may be tried again
    give_back_region();
    throw;
  }
  if (options_.registered) plan_limit_.store(shared_->channel_count, std::memory_order_relaxed);
  if (connectors_.bytes > 0 || device_ != nullptr) note_written();
}

bool HostLane::publish() {
  if (published_ || place_.arrived() < written_) return published_;
  arena_.publish(options_.key.low, options_.key.high, region_.offset);
  if (carried_) tell_open();
  return published_ = true;
}

uint32_t HostLane::channels_for(uint32_t wanted) const {
  if (options_.registered) return std::max(wanted, 1u);
  return std::max(wanted, carried_ ? block_limit_between_hosts(place_, options_.grid) : options_.grid);
}

void HostLane::tell_open() {
  numbers_.resize(size());
  for (uint32_t peer = 0; peer < size(); ++peer) {
    link::carry::Way* way = member(peer).peer.way;
    if (way == nullptr) continue;
    numbers_[peer] =
        way->open_lane(shared_, carriers_[peer],
                       {options_.key.low, options_.key.high, size(), rank(), peer, shared_->channel_count,
                        kCarriedSlots, shared_->slot_bytes, shared_->packet_bytes, shared_->board_size,
                        carriers_[peer] != nullptr && carriers_[peer]->on_device() != nullptr, 0});
  }
}

// On the device, where the place has such memory and network devices take it. Not slots that large messages
// mostly spare: hosts name those messages' bytes, and copy them too.
std::shared_ptr<link::carry::Channels> HostLane::make_channels(link::carry::Way& way,
                                                               const link::carry::ChannelShape& shape,
                                                               std::chrono::steady_clock::time_point end) {
  using link::carry::Channels;
  std::unique_ptr<link::carry::SlotsOnDevice> slots;
  if (shape.slot_bytes < kNamedSlotBytes && place_.has_network_slots() && way.reaches_devices(end)) try {
      slots = std::make_unique<link::carry::SlotsOnDevice>(place_, 2 * Channels::slots_bytes(shape));
      if (slots->exist()) slots->seal(way.enroll(slots->region()));
      if (slots->registered() == nullptr) slots.reset();
    } catch (const Error& error) {
      log(LogLevel::warn, error.what(), ": messages pass through pinned memory");
    }
  if (!place_.traits().direct) way.say_where_slots_are(slots != nullptr);
  return std::make_shared<Channels>(place_, shape, std::move(slots));
}

void HostLane::open_region(uint64_t channels, uint32_t slot_bytes) {
  const uint64_t ends = size() * channels;
  const uint32_t packet_bytes = packet_bytes_for(slot_bytes, place_.traits());
  // Packets do not cross hosts, so no plan of the lane has any.
  const LaneShape shape{size(),
                        uint32_t(channels),
                        carried_ && place_.traits().direct ? kCarriedSlots : kLaneSlots,
                        slot_bytes,
                        carried_ ? 0 : packet_ring_bytes_for(packet_bytes),
                        2 * std::max(depth(), options_.copies ? kCopyDepth : 0),
                        options_.copies};
  const LaneLayout layout(shape);
  const auto known_by = std::chrono::steady_clock::now() + kMostWaitForPaths;
  for (uint32_t peer = 0; carried_ && ends > 0 && peer < size(); ++peer)
    if (member(peer).peer.way != nullptr)
      carriers_[peer] =
          make_channels(*member(peer).peer.way, {uint32_t(channels), kCarriedSlots, slot_bytes}, known_by);
  // Zeroed: no packet has come yet.
  const uint64_t connectors_bytes = carried_ && !near_ ? 0 : layout.connectors_bytes;
  if (connectors_bytes > 0) connectors_ = {place_.allocate_exported(connectors_bytes), connectors_bytes};
  region_ = {arena_.allocate(layout.region_bytes), layout.region_bytes};
  shared_ = reinterpret_cast<LaneShared*>(arena_.at(region_.offset));
  layout.describe(*shared_, shape);
  shared_->rank = rank();
  options_.name.copy(shared_->name, sizeof shared_->name - 1);
  shared_->packet_bytes = packet_bytes;
  shared_->connectors_offset = connectors_.offset;
  if (connectors_.bytes == 0) return;
  // Our sends begin with the peer's private slots granted (wire/connector.h, Grants).
  std::vector<Credit> credits(ends, Credit{});
  for (Credit& c : credits) {
    c.granted = shape.private_slots;
    for (uint32_t k = 0; k < shape.private_slots; ++k) c.grants[k] = k;
  }
  place_.write(place_.exported(connectors_.offset) + layout.credit, credits.data(), ends * sizeof(Credit));
}

// The Lane and all that it points to, in one piece: Lane | finished | fault | LaneBlock[grid] | ends, and
// where the daemon does not work on the host's memory the ring of operations with its tables.
void HostLane::open_device() {
  const uint64_t channels = shared_->channel_count;
  const uint64_t ends = this->ends();
  const uint64_t finished = align64(sizeof(Lane));
  const uint64_t blocks = finished + 2 * align64(depth() * sizeof(uint64_t));  // and the fault, if it is here
  const uint64_t sends = blocks + options_.grid * sizeof(LaneBlock);
  const uint64_t receives = sends + align64(ends * sizeof(SendEnd));
  const uint64_t operations = receives + align64(ends * sizeof(ReceiveEnd));
  const uint64_t tables = operations + depth() * sizeof(Operation);
  const bool direct = place_.traits().direct;
  std::byte* memory = at_least(device_memory_, direct ? operations : tables + depth() * tables_bytes());
  operations_ = reinterpret_cast<Operation*>(place_.allocate_shared(depth() * sizeof(Operation)));
  introductions_ =
      reinterpret_cast<PeerIntroduction*>(place_.allocate_shared(ends * sizeof(PeerIntroduction)));
  image_.doorbell = direct ? doorbell() : nullptr;
  image_.fault = direct ? &shared_->fault : reinterpret_cast<uint64_t*>(memory + blocks) - 8;
  image_.id = options_.id;
  image_.peer_count = size();
  image_.rank = options_.rank;
  image_.channel_count = uint32_t(channels);
  const uint32_t private_slots = shared_->private_slots;
  image_.private_slots = private_slots;
  image_.slot_bytes = shared_->slot_bytes;
  image_.packet_bytes = shared_->packet_bytes;
  const uint64_t pool_slot = arena_.header()->pool_slot_bytes;
  image_.pool_slot_bytes = pool_slot >= image_.slot_bytes ? uint32_t(pool_slot) : 0;
  image_.sends = reinterpret_cast<SendEnd*>(memory + sends);
  image_.receives = reinterpret_cast<ReceiveEnd*>(memory + receives);
  image_.introductions = introductions_;
  // Without packets, which do not cross hosts, nobody looks there.
  if (connectors_.bytes > 0)
    image_.credits =
        reinterpret_cast<const Credit*>(place_.exported(connectors_.offset) + shared_->credit_offset);
  image_.blocks = reinterpret_cast<LaneBlock*>(memory + blocks);
  image_.operations = direct ? operations_ : reinterpret_cast<Operation*>(memory + operations);
  image_.submitted = direct ? nullptr : operations_;
  image_.tables = direct ? nullptr : reinterpret_cast<GroupExtent*>(memory + tables);
  image_.finished = reinterpret_cast<uint64_t*>(memory + finished);
  std::vector<LaneBlock> lane_blocks(options_.grid, LaneBlock{});
  for (LaneBlock& block : lane_blocks) block.context.sequence = ~uint64_t(0);
  std::vector<SendEnd> send_ends(ends, SendEnd{});
  std::vector<ReceiveEnd> receive_ends(ends, ReceiveEnd{});
  for (uint64_t end = 0; end < ends; ++end) set_own_half(end, send_ends[end], receive_ends[end]);
  place_.write(image_.blocks, lane_blocks.data(), lane_blocks.size() * sizeof(LaneBlock));
  place_.write(image_.sends, send_ends.data(), ends * sizeof(SendEnd));
  place_.write(image_.receives, receive_ends.data(), ends * sizeof(ReceiveEnd));
  place_.write(memory, &image_, sizeof image_);
  device_ = reinterpret_cast<Lane*>(memory);
  recovered_.resize(ends);
}

void HostLane::look_for_buffers() const {
  for (const Member& member : options_.members)
    if (member.peer.memory != nullptr) member.peer.memory->look_for_buffers();
}

std::string HostLane::refusal() const {
  for (const Member& member : options_.members) {
    const std::string why = member.peer.memory == nullptr ? "" : member.peer.memory->refusal();
    if (!why.empty())
      return "rank " + std::to_string(this->member(rank()).world_rank) + " cannot open a buffer of rank " +
             std::to_string(member.world_rank) + " in lane '" + name() + "': " + why;
  }
  return "";
}

void HostLane::check(const Plan& plan) const {
  const PlanHeader* header = plan.header(rank());
  if (carried_ && plan.protocol() != Protocol::kSlots)
    throw Error(Code::unsupported, "plan " + plan.name() + " cannot cross hosts: its messages are no slots",
                "use a plan of protocol slots, or none: the library's choice");
  check_slots(plan);
  if (header->channel_count > shared_->channel_count)
    throw Error(Code::unsupported,
                "plan " + plan.name() + " uses " + std::to_string(header->channel_count) +
                    " channels; the lane has " + std::to_string(shared_->channel_count),
                "run it on a lane of its own, or with a daemon of more blocks (STARLING_BLOCKS)");
  if (header->block_count > options_.grid)
    throw Error(Code::unsupported,
                "plan " + plan.name() + " has " + std::to_string(header->block_count) +
                    " blocks, the daemon has " + std::to_string(options_.grid),
                "compile it with fewer blocks, or make the context with more (STARLING_BLOCKS)");
}

// Its caller waits for that before its stream stands, also where it gets its place later. What is refused now
// is refused there, too.
void HostLane::prepare(Flight& flight) {
  if (!options_.carries_operations || shared_ == nullptr || flight.lowered.plan == nullptr) return;
  try {
    if (flight.lowered.own_buffer) own_buffer();
    flight.written = std::max(written_, shelf_.get(flight.lowered.plan, rank()).written);
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {}
}

void HostLane::prefetch_board() const {
  if (shared_ == nullptr) return;
  const uint64_t at = next_sequence_ % shared_->board_size;
  prefetch_to_write(board_of(shared_) + at);
  constexpr uint32_t kMost = 8;  // of more ranks they would push out one another
  for (uint32_t peer = 0; peer < std::min(size(), kMost); ++peer)
    if (LaneShared* const theirs = peer_shared(peer); peer != rank() && theirs != nullptr)
      prefetch_to_read(board_of(theirs) + at);
}

Flight& HostLane::append(Flight&& flight) {
  flight.sequence = next_sequence_++;
  prepare(flight);
  return flights_.push_back(std::move(flight));
}

Flight* HostLane::next_for_device() {
  if (by_copies() || on_device_ == depth() || on_device_ == flights_.size() || turns_missing())
    return nullptr;
  Flight& flight = flights_[on_device_];  // they go in order
  const PlanHeader* plan = flight.lowered.plan->header(rank());
  if (!order_.may_follow(*plan, on_device_, turns_known_)) return nullptr;
  // Its place in the ring is free when the operation that many before it was completed.
  return flight.sequence - flights_.front().sequence < depth() ? &flight : nullptr;
}

void HostLane::bind_plan(Flight& flight, uint64_t token) {
  Operation& op = flight.lowered.operation;
  const PlanShelf::Shelved plan = shelf_.get(flight.lowered.plan, rank());
  op.plan = plan.header;
  // Never less than an earlier operation's of the lane: submissions stay in their order by it.
  flight.written = written_ = std::max(written_, plan.written);
  op.sequence = flight.sequence;
  op.token = token;
  op.tile_bytes = tile_bytes_for(*flight.lowered.plan->header(rank()), *shared_, place_.traits());
  if (names_buffers() && op.group_bytes < kNamedBytes)
    op.tile_bytes = std::min<uint64_t>(op.tile_bytes, kCarriedSlotBytes);
  op.tile_count = (op.chunk_bytes + op.tile_bytes - 1) / op.tile_bytes;
}

void HostLane::place(Flight& flight, uint64_t token) {
  const uint32_t at = flight.sequence % depth();
  Operation& op = flight.lowered.operation;
  const PlanHeader* plan = flight.lowered.plan->header(rank());
  bind_plan(flight, token);
  op.fence_previous = order_.place(*plan, on_device_);
  if (const uint64_t scratch = scratch_bytes(*plan, op.chunk_bytes, 0);
      scratch > 0 && plan->tile_scratch == 0)
    op.buffers[uint32_t(BufferKind::kScratch)].base = scratch_at(at, scratch);
  bind_memory(flight, at);
  name_buffers(flight);
  // Where streams use the lane, blocks without a part count too: when it is complete, none has its turn to
  // pass.
  op.finished_target = finished_targets_[at] += turns_known_ ? handover_.width : op.block_count;
  op.previous_target = finished_targets_[(at + depth() - 1) % depth()];
  operations_[at] = op;
  flight.written = written_;  // with what the lines above have asked for
  flight.on_device = true;
  ++on_device_;
}

void HostLane::bind_own_buffer(Flight& flight, uint32_t at) {
  if (!flight.lowered.own_buffer) return;
  std::byte* own = own_buffer() + at * 64;
  for (BufferKind kind : {BufferKind::kInput, BufferKind::kOutput})
    flight.lowered.operation.buffers[uint32_t(kind)].base = own;
}

// What the operation points to beside the caller's buffers, where the daemon can read it.
void HostLane::bind_memory(Flight& flight, uint32_t at) {
  Operation& op = flight.lowered.operation;
  bind_own_buffer(flight, at);
  if (place_.traits().direct) return;
  for (BufferKind kind : {BufferKind::kInput, BufferKind::kOutput}) {
    const auto& groups =
        kind == BufferKind::kInput ? flight.lowered.input_groups : flight.lowered.output_groups;
    if (groups.empty()) continue;
    if (tables_ == nullptr) tables_ = place_.allocate_shared(depth() * tables_bytes());
    std::byte* table = tables_ + at * tables_bytes() + (kind == BufferKind::kOutput ? tables_bytes() / 2 : 0);
    std::copy(groups.begin(), groups.end(), reinterpret_cast<GroupExtent*>(table));
    op.buffers[uint32_t(kind)].groups = reinterpret_cast<GroupExtent*>(table);
  }
}

// What streams write and wait for is never used again, though the lane ends: a stream may come there later.
void HostLane::open_to_streams() {
  if (on_streams()) return;
  handover_.width = options_.grid;
  handover_.depth = depth();
  const uint64_t turns = options_.grid * sizeof(Turn);
  const uint64_t gates = turns + align64(depth() * sizeof(uint64_t));
  std::byte* memory = at_least(turns_, gates + align64(sizeof(Handover)));
  handover_.turns = reinterpret_cast<Turn*>(memory);
  handover_.gates = reinterpret_cast<uint64_t*>(memory + turns);
  handover_.ready = reinterpret_cast<uint64_t*>(place_.allocate(sizeof(uint64_t)));
  if (may_rendezvous())
    arrivals_ = reinterpret_cast<uint64_t*>(place_.allocate_shared(depth() * sizeof(uint64_t)));
  if (captures_ == nullptr)  // no watches stand for what is captured
    handover_.came = reinterpret_cast<uint64_t*>(place_.allocate_shared(2 * depth() * sizeof(uint64_t)));
  note_written();
  handover_.done =
      reinterpret_cast<Done*>(place_.allocate_shared(depth() * sizeof(Done)));  // last: on_streams()
}

void HostLane::make_turns() {
  const uint64_t first = captures_          ? captures_->first
                         : flights_.empty() ? next_sequence_
                                            : flights_.front().sequence;
  std::vector<Turn> turns(handover_.width, Turn{first, 0, 0, 0, 0, 0, {}});
  if (captures_ != nullptr) turns[0].issued = first * kIssued;
  place_.write(handover_.turns, turns.data(), turns.size() * sizeof(Turn));
  image_.handover = reinterpret_cast<Handover*>(turns_.memory + turns_.bytes - align64(sizeof(Handover)));
  place_.write(image_.handover, &handover_, sizeof handover_);
  place_.write(&device_->handover, &image_.handover, sizeof image_.handover);
  note_written();
  turns_known_ = true;
}

StreamLaunch HostLane::launch_of(const Flight& flight) const {
  StreamLaunch launch;
  launch.entry = flight.entry;
  launch.stream = flight.stream;
  launch.operation = flight.lowered.operation;
  launch.operation.sequence = flight.sequence;  // also where it has no place yet
  launch.near = image_;
  launch.handover = handover_;
  launch.lane = device_;
  launch.priority = int16_t(std::clamp(flight.priority, -32768, 32767));
  launch.plan = flight.lowered.plan->header(rank());
  launch.order = key().low;
  if (arrivals_ != nullptr) launch.arrival = arrival(flight.sequence);
  launch.patient = flight.called;
  launch.hasty = !options_.is_default && !flight.held;
  return launch;
}

void HostLane::show_fault(uint64_t kind) {
  if (fault_shown_ || device_ == nullptr || place_.traits().direct) return;
  fault_shown_ = true;
  place_.write(image_.fault, &kind, sizeof kind);
  fault_written_ = place_.written();
}

const Flight* HostLane::oldest_by_kernel() const {
  for (size_t k = 0; k < flights_.size(); ++k)
    if (flights_[k].on_device && flights_[k].by_kernel()) return &flights_[k];
  return nullptr;
}

Flight& HostLane::finish(uint64_t sequence) {
  for (size_t k = 0; k < flights_.size(); ++k) {
    if (flights_[k].sequence != sequence) continue;
    Flight& flight = flights_.take(k);
    --on_device_;
    count_completed();
    return flight;
  }
  throw Error(Code::internal, "completion of an operation that is not under way", "report this");
}

std::vector<Flight> HostLane::take_waiting(bool device_failed) {
  std::vector<Flight> waiting;
  waiting.reserve(flights_.size());  // what is taken must not be lost
  if (device_failed) on_device_ = 0;
  while (!flights_.empty() && (device_failed || !flights_.back().on_device)) {
    waiting.push_back(std::move(flights_.take(flights_.size() - 1)));
  }
  std::reverse(waiting.begin(), waiting.end());
  if (!waiting.empty()) count_completed();
  return waiting;
}

// Relaxed: for watchers; nothing else is read because of it.
void HostLane::count_completed() {
  if (shared_ != nullptr)
    std::atomic_ref<uint64_t>(shared_->completed)
        .store(next_sequence_ - flights_.size(), std::memory_order_relaxed);
}

uint64_t HostLane::host_bytes() const {
  uint64_t bytes = sizeof(*this) + device_memory_.bytes + own_buffers_.bytes;
  if (operations_ != nullptr) bytes += depth() * sizeof(Operation) + ends() * sizeof(PeerIntroduction);
  if (tables_ != nullptr) bytes += depth() * tables_bytes();
  for (const Private& scratch : scratch_) bytes += scratch.bytes;
  const std::lock_guard lock(tile_scratch_mutex_);
  for (const TileScratch& scratch : tile_scratch_) bytes += scratch.piece.bytes;
  return bytes;
}

}  // namespace starling
