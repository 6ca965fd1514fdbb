// One rank's side of a lane in the simulator: the device's Lane with all it points to, and the operations on
// their way. Built and connected as comm/lane.cc does it for real ranks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "device/lane_order.h"
#include "machine/sim/copy_lane.h"
#include "machine/sim/copy_work.h"
#include "machine/sim/departures.h"
#include "machine/sim/machine.h"
#include "machine/sim/oracle.h"
#include "machine/sim/program.h"
#include "machine/sim/registrations.h"
#include "wire/lane.h"
#include "wire/queue.h"

namespace starling::sim {

class SimLane {
 public:
  // `pool` begins the rank's pool.
  void build(World& world, const Options& options, const LaneSpec& spec, uint32_t id, uint32_t rank_in_lane,
             uint32_t depth, std::byte* pool);

  const LaneSpec& spec() const { return *spec_; }
  uint32_t rank() const { return rank_; }
  uint32_t number() const { return core_->id; }
  Lane& core() { return *core_; }
  uint64_t* fault() { return fault_; }
  uint64_t* opened() { return opened_; }
  bool broken = false;

  // ---- after a fault, where messages name buffers --------------------------------------------------------
  // Written by the peer's host: its blocks are through.
  uint64_t* out_word(uint32_t peer) { return &out_[peer]; }
  // For that peer, once.
  std::vector<uint8_t> told;
  bool given_back = false;
  bool is_connected(uint32_t peer) const { return connected_[peer] != 0; }
  uint64_t on_device() const { return placed_ - completed_; }
  // Of a lane of copies: operations that have ended, but whose buffers peers may still write.
  uint64_t kept = 0;
  // The application has its buffers back, and uses them.
  void reuse_buffers();

  // ---- connecting; by the rank's host ----------------------------------------------------------------
  void open(SimMachine& host);
  bool is_open() const { return open_; }
  // Open and connected from the beginning, as if all had met before.
  void connect_before(std::vector<SimLane*>& peers);
  // Connects what peers have opened. True if any was new.
  bool resolve(SimMachine& host, std::vector<SimLane*>& peers);
  bool resolved() const { return unresolved_ == 0; }
  // Opens what connected peers have registered.
  void open_buffers(SimMachine& host, std::vector<SimLane*>& peers);

  // ---- operations ------------------------------------------------------------------------------------
  uint64_t submitted() const { return submitted_; }
  uint64_t completed() const { return completed_; }
  bool has_work_for_core() const { return placed_ < submitted_ && may_place(); }
  // The next operation would be placed at once.
  bool has_room() const { return placed_ == submitted_ && may_place(); }
  Oracle oracle(uint64_t index) const {
    return {spec_, &spec_->call(index), hash_combine(hash_combine(77, core_->id), index)};
  }

  // Fills the buffers of the next operation.
  void submit(uint64_t now);
  // The same in pieces, for operations on streams: buffers for the next operation; a kernel fills them; then
  // it counts as submitted.
  void make_buffers() { make_buffers(submitted_); }
  void fill(uint64_t index);
  void count_submitted(uint64_t now);
  // By a kernel that stands behind operation `index`. An empty text if its result is right.
  std::string check(uint64_t index) const;
  // Streams are going to use the lane: start kernels of `width` blocks.
  void add_handover(uint32_t width);
  const Handover& handover() const { return *handover_; }
  // The first stream comes; as soon as nothing of the lane is on the device, its parts have turns
  // (comm/lane.cc).
  void open_to_streams() {
    on_streams_ = true;
    make_turns();
  }
  void make_turns();
  bool turns_missing() const { return on_streams_ && core_->handover == nullptr; }
  uint64_t placed() const { return placed_; }
  const Operation& operation(uint64_t index) const {
    return operations_[(options_->first_sequence + index) % kLaneDepth];
  }
  // ---- a lane of captured operations: buffers[k] and captured(k) of operation k of each replay ------------
  // In their order, each once.
  Operation capture(uint32_t k);
  uint64_t* captured(uint32_t k) { return &captured_[k]; }
  // One more replay is put into its stream.
  void count_replay() { placed_ = submitted_ += spec_->calls.size(); }
  // Of a lane that is closed, whose operations have all ended: gives up those that will not begin. How many.
  uint64_t drop_skipped();
  // By the poller: what the blocks say. True: an operation that has begun is not complete.
  bool look_at_begun(SimMachine& host, uint64_t now);
  // ---- operations that meet before they begin, as LaneShared::arrived -------------------------------------
  uint64_t* arrival(uint64_t index) { return &arrivals_[(options_->first_sequence + index) % kLaneDepth]; }
  void note_arrival(uint64_t index) { arrived_ = std::max(arrived_, index + 1); }
  bool has_arrived(uint64_t index) const { return arrived_ > index || completed_ > index; }
  bool under_way() const { return spec_->captured ? captured_under_way_ : submitted_ != completed_; }

  // ---- a lane of copies (copy_lane.cc): its operations go to the rank's proxy ----------------------------
  CopyLane& copies() { return copies_; }
  CopyWork place_copies(const std::vector<SimLane*>& peers);

  // Writes the next operation where the daemon reads it, and returns its submission.
  Submission place(uint64_t first_sequence, bool by_kernel = false);
  // Operation `index` is complete: checks that it was under way, and its result. An empty text if all is
  // right.
  std::string complete(uint64_t index, bool faulty, Expected& shared);
  // Its blocks wait for others of their own operation.
  bool crosses_blocks(uint64_t index) const { return spec_->call(index).plan->crosses_blocks(); }
  uint64_t oldest_submission() const { return spec_->captured ? since_ : times_[oldest_ % times_.size()]; }
  uint64_t oldest() const { return oldest_; }
  // Which of its operations a completion's token names: the low bits do, as few are on the device.
  uint64_t index_of(uint64_t token) const {
    return oldest_ + ((token - options_->first_sequence - oldest_) & 0xfffffff);
  }
  // All that was placed was finished by all blocks: what the completion queue would say.
  bool finished_by_core() const {
    for (uint32_t at = 0; at < kLaneDepth; ++at)
      if (core_->finished[at] != finished_targets_[at]) return false;
    return true;
  }
  // Gives up what the core never got.
  void drop_waiting() { submitted_ = placed_; }

  // Of the block's ends of connectors in the operation that it is at: while the block is away, nobody changes
  // them.
  uint64_t ends_hash(uint32_t block) const;
  // Connectors are as they were made, but for the counters. An empty text if so.
  std::string leaks(const std::vector<SimLane*>& peers) const;

  SendEnd& send_end(uint32_t peer, uint32_t channel) { return sends_[peer * channels_ + channel]; }
  ReceiveEnd& receive_end(uint32_t peer, uint32_t channel) { return receives_[peer * channels_ + channel]; }
  Inbox& inbox(uint32_t peer, uint32_t channel) { return inboxes_[peer * channels_ + channel]; }
  Credit& credit(uint32_t peer, uint32_t channel) { return credits_[peer * channels_ + channel]; }
  // ---- peers on other hosts ------------------------------------------------------------------------------
  bool is_carried(uint32_t peer) const {
    return options_->host_of(spec_->ranks[peer]) != options_->host_of(spec_->ranks[rank_]);
  }
  bool carried() const { return spec_->crosses_hosts(*options_); }
  uint32_t channel_count() const { return channels_; }
  Departures& departures() { return departures_; }
  CarriedHalf arrivals(uint32_t peer, uint32_t channel) {
    return {&inbox(peer, channel), &credit(peer, channel)};
  }
  std::byte* arriving_slot(uint32_t peer, uint32_t channel, uint32_t slot) {
    return receive_end(peer, channel).private_slots + uint64_t(slot) * core_->slot_bytes;
  }
  std::byte* pool() const { return pool_; }
  // What the address is; empty if it is not of this lane.
  std::string describe(const void* address) const;

 private:
  void make_buffers(uint64_t index);
  // All but what its place in the ring decides.
  Operation operation_at(uint64_t index);
  void begin_captured(uint64_t first);
  struct Buffers {
    std::byte* input;
    std::byte* output;
    std::byte* scratch;
    uint16_t registration;  // of the input, and the next two of the output and the scratch; 0: none
    std::byte* bounces[2];  // of the input and the output, which peers cannot open; null: they can
  };
  uint64_t most_bytes(uint64_t (Oracle::*bytes)(uint32_t) const) const;
  void let_bounce(uint64_t index, Operation& op);
  void reuse_bounces(const Buffers& b);
  void make_slots(const Plan& plan);
  uint32_t slots_of(uint32_t peer) const { return is_carried(peer) ? kMaxCredits : core_->private_slots; }
  void expect(uint32_t peer);
  const uint64_t* make_packets();
  uint64_t scratch_bytes() const;
  std::byte* tile_scratch(const PlanHeader& plan);
  bool in_place(uint64_t index) const;
  bool may_place() const {
    // As HostLane::next_for_proxy().
    if (spec_->copies) return placed_ - oldest_ < kCopyDepth && resolved();
    return placed_ - oldest_ < kLaneDepth && !turns_missing() &&
           order_.may_follow(*spec_->call(placed_).plan->header(rank_), on_device(),
                             core_->handover != nullptr);
  }
  Bell* bell_of(uint32_t rank) const {
    return options_->bells ? &world_->bells[spec_->ranks[rank]] : nullptr;
  }
  void connect(uint32_t peer, SimLane& other, SimMachine& host);
  void introduce(uint32_t peer, uint32_t channel, SimLane& other);
  void introduce_carrier(uint32_t peer, uint32_t channel, PeerIntroduction& theirs);

  World* world_ = nullptr;
  const Options* options_ = nullptr;
  const LaneSpec* spec_ = nullptr;
  Lane* core_ = nullptr;
  Operation* operations_ = nullptr;
  Handover* handover_ = nullptr;
  uint64_t* arrivals_ = nullptr;
  CopyLane copies_;
  std::vector<uint64_t> finished_targets_;
  uint64_t* fault_ = nullptr;
  uint64_t* opened_ = nullptr;
  uint64_t* out_ = nullptr;
  uint32_t rank_ = 0;
  uint32_t channels_ = 0;
  SendEnd* sends_ = nullptr;
  ReceiveEnd* receives_ = nullptr;
  PeerIntroduction* introductions_ = nullptr;
  Inbox* inboxes_ = nullptr;
  Credit* credits_ = nullptr;
  std::byte* pool_ = nullptr;
  bool open_ = false;
  device::LaneOrder order_;
  bool on_streams_ = false;
  uint32_t unresolved_ = 0;
  std::map<uint64_t, std::byte*> tile_scratch_;  // by the plan's hash
  LaneRegistrations registrations_;
  Departures departures_;
  std::vector<uint8_t> connected_;  // per peer; 1 also: the plan has no use for it
  std::vector<Buffers> buffers_;
  std::vector<uint64_t> times_;
  Expected expected_;
  uint64_t submitted_ = 0, placed_ = 0, completed_ = 0;  // counts of operations
  uint64_t arrived_ = 0;
  uint64_t oldest_ = 0;                                  // all before it are complete
  uint64_t done_ = 0;                                    // bit k: operation oldest_ + k is complete
  // Of captured operations:
  uint64_t* captured_ = nullptr;  // [calls]: StartArguments::captured
  bool captured_under_way_ = false;
  uint64_t looked_completed_ = 0, since_ = 0;  // the oldest of those that are under way began by then
};

}  // namespace starling::sim
