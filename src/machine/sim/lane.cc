#include "machine/sim/lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace starling::sim {
namespace {

uint64_t chunk_bytes_of(const PlanHeader& plan, uint64_t group_bytes) {
  const uint64_t per_group = plan.chunks_per_group;
  return per_group == 1 ? group_bytes : ((group_bytes + per_group - 1) / per_group + 15) & ~15ull;
}

}  // namespace

void SimLane::build(World& world, const Options& options, const LaneSpec& spec, uint32_t id,
                    uint32_t rank_in_lane, uint32_t depth, std::byte* pool) {
  world_ = &world;
  options_ = &options;
  spec_ = &spec;
  rank_ = rank_in_lane;
  pool_ = pool;
  broken = open_ = given_back = on_streams_ = false;
  kept = 0;
  order_ = {};
  handover_ = nullptr;
  submitted_ = placed_ = completed_ = arrived_ = oldest_ = done_ = 0;
  arrivals_ = nullptr;
  captured_ = nullptr;
  captured_under_way_ = false;
  looked_completed_ = since_ = 0;
  Region& region = world.memory.region();
  const uint32_t size = uint32_t(spec.ranks.size());
  channels_ = 0;
  uint32_t private_slots = options.private_slots;
  for (const CallSpec& call : spec.calls) {
    if (spec.copies) continue;
    const PlanHeader* plan = call.plan->header(rank_);
    channels_ = std::max<uint32_t>(channels_, plan->channel_count);
    private_slots = std::max<uint32_t>(private_slots, plan->minimum_slots);
  }
  const uint32_t ends = size * channels_;
  core_ = region.make<Lane>();
  sends_ = region.make<SendEnd>(ends);
  receives_ = region.make<ReceiveEnd>(ends);
  introductions_ = region.make<PeerIntroduction>(ends);
  inboxes_ = region.make<Inbox>(ends);
  credits_ = region.make<Credit>(ends);
  registrations_.build(world, options, size, rank_, 3 * depth);
  departures_.build(world, spec.crosses_hosts(options) ? size : 0, channels_);
  for (uint32_t e = 0; e < ends; ++e) {
    sends_[e].credit = &credits_[e];
    receives_[e].inbox = &inboxes_[e];
    sends_[e].peer = receives_[e].peer = uint16_t(e / channels_);
    sends_[e].channel = receives_[e].channel = uint16_t(e % channels_);
    sends_[e].opened = receives_[e].opened = registrations_.table(e / channels_);
  }
  fault_ = region.make<uint64_t>();
  opened_ = region.make<uint64_t>();
  out_ = region.make<uint64_t>(size);
  told.assign(size, 0);
  LaneBlock* blocks = region.make<LaneBlock>(options.blocks);
  for (uint32_t b = 0; b < options.blocks; ++b) {
    blocks[b].context.sequence = ~uint64_t(0);
    blocks[b].next = blocks[b].fetched = options.first_sequence;
    blocks[b].progress = options.first_sequence << 40;
  }
  operations_ = region.make<Operation>(kLaneDepth);
  core_->operations = operations_;
  core_->finished = region.make<uint64_t>(kLaneDepth);
  finished_targets_.assign(kLaneDepth, 0);
  core_->fault = fault_;
  core_->doorbell = bell_of(rank_);
  core_->id = id;
  core_->peer_count = size;
  core_->rank = rank_;
  core_->channel_count = channels_;
  core_->private_slots = private_slots;
  core_->slot_bytes = options.slot_bytes;
  core_->packet_bytes = options.packet_bytes;
  core_->pool_slot_bytes = options.pool_slots ? options.slot_bytes : 0;
  core_->sends = sends_;
  core_->receives = receives_;
  core_->introductions = introductions_;
  core_->credits = credits_;
  core_->blocks = blocks;
  unresolved_ = 0;
  connected_.assign(size, 1);
  for (uint32_t peer = 0; spec.copies && peer < size; ++peer)
    if (peer != rank_) expect(peer);
  for (const CallSpec& call : spec.calls)
    if (!spec.copies) make_slots(*call.plan);
  if (spec.copies) copies_.build(world, options, spec);
  if (spec.copies) handover_ = copies_.handover();
  buffers_.assign(depth, {});
  tile_scratch_.clear();
  times_.assign(depth, 0);
}

// Only connections that a plan has get slots, and are made.
void SimLane::make_slots(const Plan& of) {
  const PlanView plan = of.view(rank_);
  const uint64_t first = options_->first_message;
  for (uint32_t b = 0; b < plan.header->block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    for (uint32_t k = 0; k < block.receive_count; ++k) {
      const Connection c = plan.connections()[block.receive_first + k];
      const uint32_t slots = slots_of(c.peer);
      expect(c.peer);
      ReceiveEnd& end = receive_end(c.peer, c.channel);
      if (end.private_slots != nullptr) continue;  // another plan has it, too
      if (is_carried(c.peer)) departures_.make(c, first, core_->slot_bytes);
      end.private_slots = world_->shadow.slots().allocate(uint64_t(slots) * options_->slot_bytes);
      end.received = end.expected = end.posted_seen = first;
      end.granted = first + slots;
      for (uint32_t g = 0; g < slots; ++g) end.grants[(first + g) % kMaxCredits] = g;
      inbox(c.peer, c.channel).posted = first;
      end.packets_received = first;
      end.packets = make_packets();
    }
    for (uint32_t k = 0; k < block.send_count; ++k) {
      const Connection c = plan.connections()[block.send_first + k];
      const uint32_t slots = slots_of(c.peer);
      expect(c.peer);
      send_end(c.peer, c.channel).sent = first;
      send_end(c.peer, c.channel).packets_sent = first;
      credit(c.peer, c.channel).packets_read = first;
      if (is_carried(c.peer)) departures_.make(c, first, core_->slot_bytes);
      Credit& granted = credit(c.peer, c.channel);
      granted.granted = first + slots;
      for (uint32_t g = 0; g < slots; ++g) granted.grants[(first + g) % kMaxCredits] = g;
    }
  }
}

void SimLane::expect(uint32_t peer) { unresolved_ += std::exchange(connected_[peer], 0); }

// Where the flags are about to come round, the slots look as 2^32 messages before: but for the refresh their
// flags could be taken for those to come. Where stores are seen late they look as a few messages before: here
// a refresh comes just before those flags, in truth 2^30 messages before.
const uint64_t* SimLane::make_packets() {
  const uint64_t first = options_->first_message;
  const uint64_t words = uint64_t(options_->packet_bytes) / sizeof(uint32_t);
  uint64_t* packets = world_->memory.region().make<uint64_t>(kPacketSlots * words);
  const uint64_t oldest = options_->late_store_chance == 0 ? kPacketSlots : first - 1024;
  const bool fresh = first < uint64_t(1) << 30;  // no refresh yet: zeroed, as it was made
  for (uint64_t k = 0; !fresh && k < kPacketSlots; ++k)
    for (uint64_t w = 0; w < words; ++w) packets[k * words + w] = uint64_t(uint32_t(oldest + k + 1)) << 32;
  return packets;
}

void SimLane::open(SimMachine& host) {
  open_ = true;
  // The slots are the owner's until it says that they are there.
  for (uint32_t e = 0; e < spec_->ranks.size() * channels_; ++e)
    for (uint32_t s = 0; receives_[e].private_slots && s < slots_of(e / channels_); ++s)
      world_->shadow.wrote(receives_[e].private_slots + uint64_t(s) * options_->slot_bytes, 16);
  // Release: the slots; pairs with the acquire in resolve().
  host.store_release(opened_, 1);
}

bool SimLane::resolve(SimMachine& host, std::vector<SimLane*>& peers) {
  bool any = false;
  for (uint32_t peer = 0; unresolved_ > 0 && peer < peers.size(); ++peer) {
    if (peer == rank_ || connected_[peer]) continue;
    // Acquire: pairs with the release in open(), or of our proxy, which was told.
    if (host.load_acquire(is_carried(peer) ? departures_.met(peer) : peers[peer]->opened()) == 0) continue;
    connect(peer, *peers[peer], host);
    any = true;
  }
  if (any) host.notify(bell_of(rank_));  // blocks may sleep for want of a connection
  return any;
}

// Pointers first, `made` last (wire/connector.h).
void SimLane::connect(uint32_t peer, SimLane& other, SimMachine& host) {
  connected_[peer] = 1;
  --unresolved_;
  for (uint32_t channel = 0; channel < channels_; ++channel) {
    introduce(peer, channel, other);
    // Release: pairs with the acquires in is_connected().
    host.store_release(&introductions_[peer * channels_ + channel].made, 1);
  }
}

void SimLane::introduce(uint32_t peer, uint32_t channel, SimLane& other) {
  PeerIntroduction& theirs = introductions_[peer * channels_ + channel];
  if (is_carried(peer)) return introduce_carrier(peer, channel, theirs);
  theirs.credit = &other.credit(rank_, channel);
  theirs.inbox = &other.inbox(rank_, channel);
  theirs.private_slots = other.receive_end(rank_, channel).private_slots;
  theirs.pool = other.pool();
  theirs.doorbell = bell_of(peer);
  theirs.packets = const_cast<uint64_t*>(other.receive_end(rank_, channel).packets);
  Memory& memory = world_->memory;
  memory.allow_one_reader(&theirs.credit->granted);
  memory.allow_one_reader(&theirs.credit->packets_read);
  memory.allow_one_reader(&theirs.inbox->posted);
  memory.allow_one_reader(&theirs.inbox->put);
  for (uint64_t& word : std::span(theirs.credit->lent[0], 2 * kMaxLent)) memory.allow_one_reader(&word);
  for (uint64_t& word : std::span(theirs.inbox->told[0], 2 * kMaxCredits)) memory.allow_one_reader(&word);
}

// In the peer's place our proxy, whose blocks do not ring (comm/lane_ends.cc).
void SimLane::introduce_carrier(uint32_t peer, uint32_t channel, PeerIntroduction& theirs) {
  const CarriedHalf departing = departures_.half(peer, channel);
  theirs.credit = departing.credit;
  theirs.inbox = departing.inbox;
  theirs.private_slots = departures_.slots(peer, channel);
  theirs.carried = 1;
  Memory& memory = world_->memory;
  memory.allow_one_reader(&credit(peer, channel).granted);
  memory.allow_one_reader(&inbox(peer, channel).posted);
}

void SimLane::open_buffers(SimMachine& host, std::vector<SimLane*>& peers) {
  for (uint32_t peer = 0; peer < peers.size(); ++peer)
    if (peer != rank_ && connected_[peer]) registrations_.open(host, peer, peers[peer]->registrations_);
}

void SimLane::connect_before(std::vector<SimLane*>& peers) {
  open_ = true;
  unresolved_ = 0;
  for (uint32_t peer = 0; peer < peers.size(); ++peer)
    for (uint32_t channel = 0; peer != rank_ && channel < channels_; ++channel) {
      introduce(peer, channel, *peers[peer]);
      introductions_[peer * channels_ + channel].made = 1;
    }
}

void SimLane::add_handover(uint32_t width) {
  Region& region = world_->memory.region();
  handover_ = region.make<Handover>();
  handover_->turns = region.make<Turn>(width);
  handover_->ready = region.make<uint64_t>();
  handover_->done = region.make<Done>(kLaneDepth);
  handover_->gates = region.make<uint64_t>(kLaneDepth);
  handover_->came = region.make<uint64_t>(2 * kLaneDepth);
  arrivals_ = region.make<uint64_t>(kLaneDepth);
  core_->submitted = operations_;  // blocks that park leave the operation there themselves
  handover_->width = width;
  handover_->depth = kLaneDepth;
  const uint64_t first = options_->first_sequence;
  *handover_->ready = first;
  for (uint32_t at = 0; at < kLaneDepth; ++at)
    handover_->done[at].done = handover_->done[at].told = handover_->gates[at] = first;
  std::fill_n(handover_->came, 2 * kLaneDepth, first);
  if (spec_->captured) begin_captured(first);
}

// As if the operations before `first` had been: targets are computed from the number alone.
void SimLane::begin_captured(uint64_t first) {
  order_ = device::LaneOrder::of_capture();
  handover_->begun = world_->memory.region().make<uint64_t>();
  *handover_->begun = first;
  captured_ = world_->memory.region().make<uint64_t>(spec_->calls.size());
  for (uint64_t number = first; number < first + kLaneDepth; ++number)
    core_->finished[number % kLaneDepth] = number / kLaneDepth * handover_->width;
}

Operation SimLane::capture(uint32_t k) {
  make_buffers(k);
  Operation op = operation_at(k);
  // A plan's blocks that come by a fence do so in every replay: as if something were on the device.
  op.fence_previous |= order_.place(*op.plan, 1);
  op.finished_target = (op.sequence / kLaneDepth + 1) * handover_->width;
  op.previous_target = ((op.sequence - 1) / kLaneDepth + 1) * handover_->width;
  return op;
}

uint64_t SimLane::drop_skipped() {
  if (!broken || handover_->turns[0].issued < kClosed) return 0;
  if (completed_ != *handover_->begun - options_->first_sequence) return 0;
  const uint64_t skipped = submitted_ - completed_;
  submitted_ = placed_ = completed_;
  return skipped;
}

bool SimLane::look_at_begun(SimMachine& host, uint64_t now) {
  // Relaxed: only a count.
  const uint64_t begun = host.load_relaxed(handover_->begun) - options_->first_sequence;
  const bool before = std::exchange(captured_under_way_, begun > completed_);
  if (!before || looked_completed_ != completed_) since_ = now;
  looked_completed_ = completed_;
  return captured_under_way_;
}

void SimLane::make_turns() {
  if (!turns_missing() || on_device() > 0) return;
  for (uint32_t b = 0; b < handover_->width; ++b)
    handover_->turns[b].next = options_->first_sequence + placed_;
  if (spec_->captured) handover_->turns[0].issued = handover_->turns[0].next * kIssued;
  core_->handover = handover_;
}

void SimLane::submit(uint64_t now) {
  make_buffers();
  fill(submitted_);
  count_submitted(now);
}

void SimLane::make_buffers(uint64_t index) {
  Buffers& b = buffers_[index % buffers_.size()];
  Region& region = world_->shadow.buffers();
  const uint64_t in = most_bytes(&Oracle::input_bytes), out = most_bytes(&Oracle::output_bytes);
  if (in && !b.input) b.input = region.allocate(in);
  if (out && !b.output) b.output = region.allocate(out);
}

void SimLane::count_submitted(uint64_t now) {
  times_[submitted_ % times_.size()] = now;
  ++submitted_;
}

void SimLane::fill(uint64_t index) {
  const Oracle truth = oracle(index);
  const Buffers& b = buffers_[index % buffers_.size()];
  const uint64_t in = truth.input_bytes(rank_), out = truth.output_bytes(rank_);
  if (in) {
    std::byte* const input = in_place(index) ? b.output : b.input;
    truth.fill_input(rank_, input);
    world_->shadow.wrote(input, in);
  }
  if (out && !in_place(index)) {
    std::memset(b.output, 0xa5, out);
    world_->shadow.wrote(b.output, out);
  }
}

// Of plans that are made for it, some calls. Of a graph each replay would need its input anew.
bool SimLane::in_place(uint64_t index) const {
  const Plan& plan = *spec_->call(index).plan;
  return plan.in_place() && plan.collective() == Collective::kAllReduce && index % 3 != 0 &&
         !spec_->captured && options_->bounces == 0;
}

std::string SimLane::check(uint64_t index) const {
  const Oracle truth = oracle(index);
  const Buffers& b = buffers_[index % buffers_.size()];
  const uint64_t bytes = truth.output_bytes(rank_);
  if (bytes == 0 || !truth.knows(rank_)) return "";
  world_->shadow.will_read(b.output, bytes);
  std::vector<std::byte> expected(bytes);
  truth.expected_output(rank_, expected.data());
  if (std::memcmp(expected.data(), b.output, bytes) == 0) return "";
  return "a kernel behind operation " + std::to_string(index) + " reads wrong bytes";
}

uint64_t SimLane::scratch_bytes() const {
  uint64_t most = 0;
  for (uint64_t k = 0; k < spec_->calls.size(); ++k) {
    const PlanHeader& plan = *spec_->calls[k].plan->header(rank_);
    if (plan.tile_scratch != 0) continue;
    most = std::max(most, starling::scratch_bytes(plan, chunk_bytes_of(plan, oracle(k).group_bytes()), 0));
  }
  return most;
}

// As HostLane::bind_tile_scratch(): all operations that run the plan have the same.
std::byte* SimLane::tile_scratch(const PlanHeader& plan) {
  std::byte*& scratch = tile_scratch_[plan.hash];
  if (scratch == nullptr)
    scratch = world_->shadow.buffers().allocate(
        starling::scratch_bytes(plan, 0, tile_bytes_of(plan, core_->slot_bytes)));
  return scratch;
}

Operation SimLane::operation_at(uint64_t index) {
  Buffers& b = buffers_[index % buffers_.size()];
  const CallSpec& call = spec_->call(index);
  const PlanHeader* plan = call.plan->header(rank_);
  Operation op{};
  op.plan = plan;
  op.sequence = options_->first_sequence + index;
  op.group_bytes = oracle(index).group_bytes();
  op.chunk_bytes = chunk_bytes_of(*plan, op.group_bytes);
  const uint64_t message = plan->protocol == Protocol::kPackets ? core_->packet_bytes : core_->slot_bytes;
  op.tile_bytes = tile_bytes_of(*plan, message);
  op.tile_count = (op.chunk_bytes + op.tile_bytes - 1) / op.tile_bytes;
  op.data_type = call.data_type;
  op.reduce_op = call.reduce_op;
  op.scalar = call.factor(rank_);
  op.block_count = uint8_t(plan->block_count);
  op.fence_previous = world_->scheduler.random().chance(options_->fence_chance);
  op.rank_count = uint32_t(spec_->ranks.size());
  op.buffers[uint32_t(BufferKind::kInput)].base = in_place(index) ? b.output : b.input;
  op.buffers[uint32_t(BufferKind::kOutput)].base = b.output;
  if (const uint64_t most = scratch_bytes(); most > 0 && !b.scratch)
    b.scratch = world_->shadow.buffers().allocate(most);
  op.buffers[uint32_t(BufferKind::kScratch)].base = plan->tile_scratch != 0 ? tile_scratch(*plan) : b.scratch;
  if (plan->protocol == Protocol::kPull && b.registration == 0) b.registration = registrations_.publish(3);
  for (BufferKind kind : {BufferKind::kInput, BufferKind::kOutput, BufferKind::kScratch})
    if (b.registration != 0)
      op.registrations[uint32_t(kind)] =
          uint16_t(b.registration + uint32_t(kind) - uint32_t(BufferKind::kInput));
  if (b.registration != 0) let_bounce(index, op);
  return op;
}

Submission SimLane::place(uint64_t first_sequence, bool by_kernel) {
  const uint64_t sequence = first_sequence + placed_;
  const uint32_t at = sequence % kLaneDepth;
  Operation op = operation_at(placed_);
  op.fence_previous |= order_.place(*op.plan, on_device());
  op.token = by_kernel ? 0 : (uint64_t(core_->id) + 1) << 28 | (sequence & 0xfffffff);
  // Where streams use the lane, blocks without a part count too: when it is complete, none has its turn to
  // pass.
  op.finished_target = finished_targets_[at] += core_->handover ? handover_->width : op.block_count;
  op.previous_target = finished_targets_[(at + kLaneDepth - 1) % kLaneDepth];
  operations_[at] = op;
  ++placed_;
  return {core_->id, spec_->priority, op.block_count, 0, sequence};
}

std::string SimLane::complete(uint64_t index, bool faulty, Expected& shared) {
  if (index >= placed_ || index < oldest_ || (done_ >> (index - oldest_)) & 1)
    return "completed, but it is not under way";
  const Oracle truth = oracle(index);
  const Buffers& b = buffers_[index % buffers_.size()];
  ++completed_;
  done_ |= uint64_t(1) << (index - oldest_);
  for (; done_ & 1; done_ >>= 1) ++oldest_;
  const uint64_t bytes = truth.output_bytes(rank_);
  if (spec_->captured) return "";  // the next replay may write there: kernels of this one have looked
  if (faulty || bytes == 0 || !truth.knows(rank_)) return "";
  world_->shadow.will_read(b.output, bytes);
  Expected& expected = truth.same_everywhere() ? shared : expected_;
  if (&expected != &shared || expected.index != index) {
    expected.bytes.resize(bytes);
    truth.expected_output(rank_, expected.bytes.data());
    expected.index = index;
  }
  if (std::memcmp(expected.bytes.data(), b.output, bytes) == 0) return "";
  uint64_t at = 0;
  while (expected.bytes[at] == b.output[at]) ++at;
  return "wrong bytes from byte " + std::to_string(at) + " of " + std::to_string(bytes) + " on";
}

uint64_t SimLane::ends_hash(uint32_t number) const {
  const LaneBlock& part = core_->blocks[number];
  const bool begun = part.context.started && part.context.sequence == part.next;
  // Plans of one lane may give a connection to different blocks, in operations that wait for each other.
  if (!begun && spec_->calls.size() > 1) return 0;
  const PlanView plan = spec_->call(part.next - options_->first_sequence).plan->view(rank_);
  uint64_t hash = 0;
  if (number >= plan.header->block_count) return hash;
  const BlockPlan& block = plan.blocks()[number];
  auto add = [&hash](uint64_t counter) { hash = hash_combine(hash, counter); };
  for (uint32_t k = 0; k < block.receive_count; ++k) {
    const Connection c = plan.connections()[block.receive_first + k];
    const ReceiveEnd& end = receives_[c.peer * channels_ + c.channel];
    for (uint64_t counter : {end.received, end.granted, end.posted_seen, end.expected, end.packets_received,
                             end.heard, end.lent, end.landed})
      add(counter);
    for (uint32_t grant : end.grants) add(grant);
  }
  for (uint32_t k = 0; k < block.send_count; ++k) {
    const Connection c = plan.connections()[block.send_first + k];
    const SendEnd& end = sends_[c.peer * channels_ + c.channel];
    for (uint64_t counter :
         {end.sent, end.granted_seen, end.packets_sent, end.packets_granted, end.told, end.put})
      add(counter);
  }
  return hash;
}

}  // namespace starling::sim
