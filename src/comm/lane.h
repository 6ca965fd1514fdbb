// A lane on the host: the device's Lane and all it points to, the region that peers see, and the operations
// on their way. Guarded by the context's mutex; the daemon reads what was set before its submission.
#pragma once
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/captures.h"
#include "comm/carried_copies.h"
#include "comm/flight_queue.h"
#include "comm/lowering.h"
#include "comm/named_steps.h"
#include "comm/plan_shelf.h"
#include "comm/request.h"
#include "device/copy_host.h"
#include "device/lane_order.h"
#include "machine/cpu/arena.h"
#include "machine/cpu/machine.h"
#include "machine/place.h"
#include "monitor/flight_recorder.h"
#include "wire/arena.h"
#include "wire/lane.h"
#include "wire/lane_layout.h"

namespace starling {

namespace link::carry {
class Channels;
class Way;
}  // namespace link::carry

struct LaneKey {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const LaneKey&) const = default;
};

// The key of something that belongs to `base` and is called `text`.
LaneKey key_of(const LaneKey& base, const std::string& text);

// Of every group: it carries no operations, and tells of an abort.
constexpr const char* kControlLane = "control";

// Blocks of a plan that crosses hosts, at most, of a daemon's. A GPU's reach what goes there over the bus, in
// locked memory of their own: a few keep up with any network.
inline uint32_t block_limit_between_hosts(const Place& place, uint32_t blocks) {
  constexpr uint32_t kOfGpus = 8;
  return place.traits().direct ? blocks : std::min(blocks, kOfGpus);
}

// From how many bytes on operations of lanes with names meet before they begin (device::StreamPath): to meet
// takes some 100 us, and who begins smaller ones too early keeps blocks for less.
inline constexpr uint64_t kRendezvousBytes = 4 << 20;

inline uint64_t packet_ring_bytes_for(uint32_t packet_bytes) {
  return uint64_t(kPacketSlots) * 2 * packet_bytes;
}

// Another rank, as this one reaches it: its segment, and the memory that its blocks share with ours.
struct Peer {
  std::shared_ptr<cpu::PeerArena> arena;
  std::shared_ptr<PeerMemory> memory;
  link::carry::Way* way = nullptr;  // to a rank of another host, whose shadow `arena` is; else null
};

// One rank of a group. `peer` is empty for the rank itself.
struct Member {
  Peer peer;
  uint32_t world_rank = 0;  // in the communicator that the caller knows, for messages
  uint64_t host = 0;  // equal for ranks that share memory
  uint32_t host_place = 0;  // of the host in ring order (comm/host_layout.h)
  uint64_t flight = 0;  // names it in flight records
};

// An operation that has ended with an error, but whose request has not: peers may be reading its buffers.
struct KeptFlight {
  Flight flight;
  starling_status status;
  std::string message;
  uint64_t until_ns;  // given back then, whatever peers do
  bool by_links;  // devices of links use its buffers
};

// What will come in a lane, as far as one knows before its first operation.
enum class LaneUse {
  kAnySize,  // its slots are as large as can be
  kNamed,  // alike ones, mostly: slots for the first one's size
  kRegistered,  // ever the same
};

struct LaneOptions {
  LaneKey key;
  std::string name;
  uint32_t id;
  uint32_t rank;
  std::vector<Member> members;
  uint32_t grid;              // blocks of the daemon
  uint32_t slot_bytes_limit;
  bool carries_operations;    // by blocks. False: a control lane, or one of copies; without connectors
  bool is_default;  // its group's: operations of any size will come, so slots of the limit from the start
  class HostLane* control = nullptr;  // of its communicator: what breaks it breaks this lane too
  monitor::FlightPlace place{};
  bool copies = false;  // its messages are moved by copy engines (comm/copies.cc)
  // Of a registered collective, which has one shape: as many channels as its first plan has, or has blocks.
  // Others have as many as the daemon has blocks, for what may come.
  bool registered = false;
};

class HostLane {
 public:
  HostLane(const LaneOptions& options, cpu::Arena& arena, Place& place, PlanShelf& shelf);
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  const std::string& name() const { return options_.name; }
  const LaneKey& key() const { return options_.key; }
  const LaneOptions& options() const { return options_; }
  uint32_t id() const { return options_.id; }
  uint32_t rank() const { return options_.rank; }
  uint32_t size() const { return uint32_t(options_.members.size()); }
  const Member& member(uint32_t peer) const { return options_.members[peer]; }
  // Something was stored that peers of other hosts should hear of: proxies look.
  void ring_shadows() const;
  // Some peer is on another host.
  bool carried() const { return carried_; }
  bool by_copies() const { return options_.copies; }
  // Of a group of one rank, whose streams copy by themselves (alone.cc).
  bool alone() const { return options_.copies && size() == 1; }
  // It is that of one pair and tag, between hosts, and no GPU's: large messages need no slots.
  bool names_buffers() const {
    return carried_ && options_.place.source >= 0 && !options_.copies && place_.traits().direct;
  }
  HostLane* control() const { return options_.control; }
  // What the daemon knows of the lane; null before it is open.
  Lane* device() { return device_; }
  Doorbell* doorbell() { return &arena_.header()->daemon; }
  LaneShared* shared() const { return shared_; }
  // Null when this rank has closed: the peer's region may be another lane's then.
  LaneShared* peer_shared(uint32_t peer) const { return closed_ ? nullptr : peers_[peer]; }
  uint64_t next_sequence() const { return next_sequence_; }
  // Scratch for a plan whose blocks have their own (PlanHeader::tile_scratch). Calls of the driver, the first
  // time: on the caller's thread, and without the context's lock. Any thread. Throws Error(exhausted).
  void bind_tile_scratch(Lowered& lowered);

  // What peers and the daemon see, made for the first operation: from its size come the slots', and it has
  // as many channels as that operation's plan, or more. Idempotent. Then publish().
  void open(uint64_t size_class_bytes, uint32_t channel_count);
  // From now on peers find it, who write into the connectors as soon as they do. False: what the host has
  // written there has not arrived; again after Place::flush(). Idempotent.
  bool publish();
  // What has been written for its blocks so far they need from now on.
  void note_written() { written_ = place_.written(); }

  // Of a registered collective: blocks and channels that a plan may have here; before the lane is open, any.
  // Any thread. Relaxed: nothing else is read because of it.
  uint32_t plan_limit() const { return plan_limit_.load(std::memory_order_relaxed); }

  // No operation is under way: peers find the lane no more, and are told that we are out of their regions.
  void close(cpu::CpuMachine& host);
  // For a lane that broke, or closes: once it has no operation on the device, tells the connected peers that
  // our blocks touch nothing of theirs any more. Once each, so again when peers were connected since.
  void withdraw(cpu::CpuMachine& host);
  // Adds the slots of our pool that were lent to senders who will never write again. True: none is lent any
  // more, and there is nobody left to tell. After withdraw(), again and again.
  bool recover(cpu::CpuMachine& host, std::vector<uint32_t>& slots);
  bool settled() const { return settled_; }
  // The peers whose blocks may be reading what our messages name, as long as the lane breaks or is broken.
  std::vector<uint32_t> readers(cpu::CpuMachine& host) const;
  // Of a broken lane: operations that the device completed, until there are no readers (broken_lane.cc).
  std::vector<KeptFlight>& kept() { return kept_; }
  // As long as the lane: memory that a peer which has not left may still write to. Of a broken lane.
  void keep(std::shared_ptr<const void> memory) {
    if (memory != nullptr) memory_.push_back(std::move(memory));
  }
  // No place for one more operation, or others wait for one.
  bool full() const {
    return !flights_.empty() && (flights_.size() >= depth() || on_device_ < flights_.size());
  }
  bool idle_on_device() const { return on_device_ == 0 && !replaying(); }
  // The next operation would be placed at once.
  bool has_room() const { return !full() && (on_streams() ? turns_known_ : idle_on_device()); }
  // Rank's own arena: counts its broken lanes.
  cpu::Arena& arena() const { return arena_; }

  // After close(): has every peer said so too? Then the region may be used again.
  bool abandoned() const;

  // And is it some time since it was first asked? The last credit that a block stores into a peer's memory is
  // acknowledged by nobody: a lane that came to have that memory must not meet it.
  bool lingered(uint64_t now_ns);

  // Looks for peers whose regions are not known yet, and connects the ends. True if any was new.
  bool resolve();
  bool resolved() const { return unresolved_ == 0; }

  // Buffers that peers have registered since are opened soon.
  void look_for_buffers() const;
  // Why one that a message has named cannot be; "" while none is missing for good.
  std::string refusal() const;

  // Throws Error(unsupported) if the plan needs more than this lane has.
  void check(const Plan& plan) const;

  // The words by which ranks compare what they call next are on their way here (matching.h).
  void prefetch_board() const;
  // Takes the operation's place in the lane.
  Flight& append(Flight&& flight);

  // The oldest operation that the device has not got, if it has room; null if none.
  Flight* next_for_device();
  // Writes it where the daemon reads it. A submission must follow, or a start kernel with token 0.
  void place(Flight& flight, uint64_t token);

  // What the links have of the buffers of operations (named_messages.cc) is their callers' again.
  void take_back_buffers();
  // Links would have to break paths for it now.
  bool is_used_by_devices() const;

  // ---- a lane of copies (copies.cc)
  // What streams write and wait for, without anything on the device. Idempotent.
  void open_marks();
  // The oldest operation that the proxy has not got, if it may have it; null if none.
  Flight* next_for_proxy();
  // What the proxy is to do for it, which has it from now on.
  device::CopyJob begin_copies(Flight& flight);
  // The same, where the other rank is on another host.
  CarriedCopyJob begin_carried_copies(Flight& flight);
  bool has_flight(uint64_t sequence) const;
  // What an operation that the proxy has still waits for, for messages.
  std::string copies_text(cpu::CpuMachine& host, const Flight& flight) const;
  uint64_t* mark(uint64_t sequence) const { return &marks_[sequence % kCopyDepth]; }

  // ---- a lane of one rank (alone.cc)
  // The operation's stream is to make its copy.
  void begin_alone(Flight& flight);
  // The oldest operation's stream has made its copy.
  bool oldest_alone_is_done(cpu::CpuMachine& host) const;

  // Streams will use the lane. Its marks and flags are there at once, and its operations may start as kernels
  // from the moment when the daemon knows of it too. Idempotent.
  void open_to_streams();
  bool on_streams() const { return handover_.done != nullptr; }
  // Operations that the device has not got must wait until nothing of the lane is on it.
  bool turns_missing() const { return on_streams() && !turns_known_; }
  // The daemon is told of the turns. No operation is on the device, and all submissions were read.
  void make_turns();
  const Handover& handover() const { return handover_; }
  // Of an operation that is not there yet: StreamCall::rendezvous.
  bool wants_rendezvous(const Flight& flight) const;
  // Where its stream says that it has come to the operation, by its number + 1.
  uint64_t* arrival(uint64_t sequence) const { return &arrivals_[sequence % depth()]; }
  // The stream in which the operation that entered one last began as a kernel; nothing if it did not.
  std::optional<device::Stream> last_kernel() const { return last_kernel_; }
  void note_entry(const Flight& flight) {
    last_kernel_ = flight.by_kernel() ? std::optional(flight.stream) : std::nullopt;
  }
  // Of the operation that was placed last, without its stream.
  StreamLaunch launch_of(const Flight& flight) const;

  // ---- a twin: its operations are captured by one graph (capture.cc)
  // Once, when it is open.
  void begin_captures(uint64_t capture, uint64_t timeout_ns, std::shared_ptr<std::atomic<bool>> dropped);
  // Null: an ordinary lane.
  Captures* captures() const { return captures_.get(); }
  bool replaying() const { return captures_ != nullptr && captures_->replaying(); }
  // A graph may still replay it: its memory stays.
  bool may_replay() const { return captures_ != nullptr && captures_->may_replay(); }
  // The graph's next operation, and what its start kernel is to be launched with.
  // What the next operation needs of the place's memory, or an exception; then it is captured, as it is now.
  void bind_captured(Flight& flight);
  StreamLaunch capture(Flight&& flight);
  // True if replays have begun operations, or completed some, since the last look.
  bool look_at_replays(cpu::CpuMachine& host, uint64_t now_ns);
  // The captured operation that replays are at.
  const Flight& replayed() const;

  // The number of the oldest operation under way; and one that none of them has reached.
  uint64_t oldest() const { return captures_ ? captures_->completed : flights_.front().sequence; }
  uint64_t newest() const {
    return captures_ ? captures_->begun + captures_->operations.size() : next_sequence_;
  }

  // The daemon is told that the lane is broken; and it knows. Idempotent.
  void show_fault(uint64_t kind);
  // Or will not: the place has failed.
  bool fault_is_known() const { return place_.arrived() >= fault_written_ || !place_.failure().empty(); }

  // Of those on the device that began as kernels; null if none.
  const Flight* oldest_by_kernel() const;
  // Removes the operation that the device completed; it lies where it was until the next one is appended.
  Flight& finish(uint64_t sequence);
  // Removes all operations that the device never got; or all, when the device has failed.
  std::vector<Flight> take_waiting(bool device_failed = false);

  FlightQueue& flights() { return flights_; }
  // Some request has not ended.
  bool busy() const { return !flights_.empty() || !kept_.empty() || replaying(); }
  // Peers may have to be met for it.
  bool in_use() const { return busy() || may_replay(); }

  uint64_t region_bytes() const { return region_.bytes + connectors_.bytes; }
  uint64_t host_bytes() const;

 private:
  struct Piece {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  struct Private {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
  };
  // Of a plan whose blocks have scratch of their own: of all operations that run it, one after the other.
  struct TileScratch {
    uint64_t plan;  // its hash
    Private piece;
    uint16_t registration;  // by which peers of other processes know it
    bool opened;  // of Place::take_opened()
  };
  uint32_t channels_for(uint32_t wanted) const;
  void open_region(uint64_t channels, uint32_t slot_bytes);
  void open_device();
  void give_back_shared();
  void give_back_region();
  void tell_open();
  void set_own_half(uint64_t end, SendEnd& send, ReceiveEnd& receive) const;
  void connect(uint32_t peer);
  void introduce_neighbour(uint32_t peer, uint32_t channel, PeerIntroduction& introduction) const;
  void introduce_carrier(uint32_t peer, uint32_t channel, PeerIntroduction& introduction) const;
  void bind_plan(Flight& flight, uint64_t token);
  void name_buffers(Flight& flight);
  bool may_name(const Operation& op) const;
  bool polls() const;
  bool may_rendezvous() const;
  void tell_steps(const Operation& op);
  bool counts_messages() const;
  bool has_slots_on_device() const;
  void read_counts();
  void count_messages(const Operation& op);
  bool touches_what_others_do(const Operation& op) const;
  void bind_own_buffer(Flight& flight, uint32_t at);
  void bind_memory(Flight& flight, uint32_t at);
  std::byte* captured_piece(uint64_t bytes);
  void release_captures();
  std::byte* at_least(Private& memory, uint64_t bytes);
  std::byte* scratch_at(uint32_t at, uint64_t bytes);
  std::byte* own_buffer();
  void prepare(Flight& flight);
  TileScratch new_tile_scratch(const Operation& op, uint64_t plan) const;
  void release(const TileScratch& scratch) const;
  bool find_peers(bool connects);
  void release_tile_scratch();
  // Has the peer said so, or left? Then it touches nothing of ours.
  bool is_out(cpu::CpuMachine& host, uint32_t peer) const;
  bool read_receives();
  void count_completed();
  uint32_t depth() const { return place_.traits().lane_depth; }
  // Has every peer found our region?
  bool met_by_all() const;
  // Of connectors that blocks use.
  uint64_t ends() const {
    return options_.carries_operations ? uint64_t(size()) * shared_->channel_count : 0;
  }
  uint64_t tables_bytes() const { return 2 * size() * sizeof(GroupExtent); }

  LaneOptions options_;
  std::atomic<uint32_t> plan_limit_{UINT32_MAX};
  cpu::Arena& arena_;
  Place& place_;
  PlanShelf& shelf_;
  Lane image_{};  // as written to device_
  Lane* device_ = nullptr;
  Private device_memory_;  // the Lane and what it points to
  Operation* operations_ = nullptr;  // in shared memory
  std::byte* tables_ = nullptr;  // likewise: two tables of extents for each place of the ring
  PeerIntroduction* introductions_ = nullptr;  // in shared memory, one an end
  std::vector<uint64_t> finished_targets_;  // [depth]
  Handover handover_{};  // as written to the device
  std::unique_ptr<Captures> captures_;
  Private turns_;  // what only blocks use of it
  std::shared_ptr<CarriedConnector> connector_;  // of a lane of copies to another host
  uint64_t* marks_ =
      nullptr;  // of a lane of copies, [kCopyDepth]: s + 1 where a stream has come to operation s
  uint64_t* arrivals_ = nullptr;  // [depth]: arrival(); null: it has none
  bool turns_known_ = false;
  std::optional<device::Stream> last_kernel_;
  uint64_t abandoned_ns_ = 0;  // when lingered() was first asked; 0: not yet
  bool settled_ = false;  // recover() has nothing left to do
  std::shared_ptr<const PendingRead> receives_;  // of a broken lane, once nothing of it is on the device
  std::vector<bool> recovered_;  // by receiving end: what it had lent is back
  bool carried_ = false;  // some peer is on another host
  bool near_ = false;  // some peer is on this one
  std::shared_ptr<link::carry::Channels> make_channels(link::carry::Way& way,
                                                       const link::carry::ChannelShape& shape,
                                                       std::chrono::steady_clock::time_point end);

  std::vector<std::shared_ptr<link::carry::Channels>> carriers_;  // by peer; null: of this host
  std::vector<uint32_t> numbers_;  // by peer: of our region, for the way to it
  std::vector<bool> carried_peers_;  // by peer: it is on another host
  NamedSteps named_;  // of the operation that was placed last, if it is large
  // By end, of a lane that counts them: messages of the operations placed so far.
  std::vector<uint64_t> sent_;
  std::vector<uint64_t> received_;
  std::vector<bool> told_;  // by peer: it knows that we have withdrawn
  std::vector<KeptFlight> kept_;
  std::vector<std::shared_ptr<const void>> memory_;
  LaneShared* shared_ = nullptr;
  Piece region_;  // of the segment
  Piece connectors_;  // of exported memory: with peers of this host
  std::vector<LaneShared*> peers_;
  uint64_t written_ = 0;  // Place::written() when something was written that every operation needs
  bool published_ = false;
  bool closed_ = false;
  uint32_t unresolved_ = 0;
  uint64_t next_sequence_ = 0;
  FlightQueue flights_;  // first those on the device, then those that wait
  uint32_t on_device_ = 0;
  device::LaneOrder order_;
  bool fault_shown_ = false;
  uint64_t fault_written_ = 0;  // Place::written() then
  std::vector<Private> scratch_;  // [depth]
  mutable std::mutex tile_scratch_mutex_;
  std::vector<TileScratch> tile_scratch_;  // guarded by it
  Private own_buffers_;  // what barriers reduce
};

}  // namespace starling
