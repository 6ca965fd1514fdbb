// One rank's side of everything: its memory, its daemon, its lanes, and the poller that completes operations,
// connects lanes and notices what goes wrong. Communicators are views on it.
#pragma once
#include <starling/starling.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/called_thread.h"
#include "base/quick_mutex.h"
#include "comm/callbacks.h"
#include "comm/copy_proxy.h"
#include "comm/daemon_memory.h"
#include "comm/disposal.h"
#include "comm/lane.h"
#include "comm/late_start.h"
#include "comm/matching.h"
#include "comm/plan_shelf.h"
#include "comm/request.h"
#include "link/carry/proxy.h"
#include "machine/cpu/arena.h"
#include "machine/cpu/machine.h"
#include "machine/place.h"
#include "monitor/flight_paths.h"
#include "monitor/flight_recorder.h"
#include "plan/cache.h"

namespace starling {

// So long goes a wait that Ctrl-C may end without a look whether it came.
inline constexpr int64_t kInterruptibleNs = 100'000'000;

// Called by the poller in every round, without the context's lock.
class PollHook {
 public:
  virtual ~PollHook() = default;
  // False: it could not look, who has its lock may be long about it; it is asked again soon.
  virtual bool poll() = 0;
};

// An operation, and where it goes.
struct Departure {
  HostLane* lane;
  Flight flight;
};

struct WeakPeer {
  std::weak_ptr<cpu::PeerArena> arena;
  std::weak_ptr<PeerMemory> memory;
  bool is_here = false;  // counted in ranks_on_host()
};

class Context {
 public:
  explicit Context(const starling_context_options& options);
  // Ends the daemon; waits (bounded) for what is under way.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  cpu::Arena& arena() { return *arena_; }
  Place& place() { return *place_; }
  bool on_gpu() const { return !place_->traits().direct; }
  monitor::FlightRecorder& flight() { return flight_; }
  PlanCache& plans() { return plans_; }
  uint32_t block_count() const { return memory_.block_count(); }

  // Of this host, this one among them: those that were met.
  uint32_t ranks_on_host() const { return ranks_on_host_.load(std::memory_order_relaxed); }

  // The segment of a peer of this host and its daemon's memory, attached once.
  Peer attach(const std::string& arena_name);
  // The same of a rank on another host, by way of this rank's proxy. `ports`: where its proxy listens.
  Peer attach_remote(const link::carry::RemoteRank& remote, const std::string& ports);
  // From now on our blocks may read what the members register. Throws Error.
  void open_buffers(const std::vector<Member>& members);
  // Where this rank's proxy listens; it is started at the first call. Throws Error.
  std::string link_ports();

  // The lane of this key, made if it is new. Never waits for other ranks.
  HostLane& lane(const LaneKey& key, const std::string& name, uint32_t rank,
                 const std::vector<Member>& members, LaneUse use, HostLane* control,
                 const monitor::FlightPlace& place);
  // One of the same ranks, for what a graph captures of `lane`.
  HostLane& twin(const LaneKey& key, const std::string& name, const HostLane& lane);
  // One whose messages copy engines move. The first call starts the rank's proxy for them. Throws Error.
  HostLane& copy_lane(const LaneKey& key, const std::string& name, uint32_t rank,
                      const std::vector<Member>& members, HostLane* control,
                      const monitor::FlightPlace& place);
  // A lane that carries no operations: what breaks it, on any rank, breaks the lanes that name it as control.
  HostLane& control_lane(const LaneKey& key, const std::string& name, uint32_t rank,
                         const std::vector<Member>& members, const monitor::FlightPlace& place);
  // No operation of it may be under way.
  void remove_lane(const LaneKey& key);

  // Groups of one key would share lanes, and the first to go would take them from the other. prepare_group(),
  // before the ranks have met: throws Error(invalid_argument) if such a group lives; of one that has gone,
  // nothing is left for peers to find. enter_group() throws the same; leave_group() ends what it began.
  void prepare_group(const LaneKey& key, const std::string& name);
  void enter_group(const LaneKey& key, const std::string& name);
  void leave_group(const LaneKey& key);

  // Puts an operation into a lane. Errors that concern the lane end the request; misuse throws. On a stream:
  // returns when what the operation needs of it is in the stream.
  void submit(HostLane& lane, Flight&& flight);
  // The same for operations of one stream and different lanes, kMostTogether at most, which begin together:
  // none of them stands behind another (device/stream_host.h).
  void submit_together(std::span<Departure> departures);
  // The same for operations, one or several, that `flight.stream` captures into a graph: `capture` says
  // which, and the lanes are the graph's own. Their requests end here.
  void capture(std::span<Departure> departures, uint64_t capture);
  // As StreamOperations::capture_of(); none, too, where there are no streams.
  std::optional<uint64_t> capture_of(device::Stream stream);
  bool has_lane(const LaneKey& key);
  // Throws Error(unsupported) where there are no streams.
  StreamOperations& checked_streams();
  // As starling_stream_create().
  device::Stream make_stream(bool urgent);
  // Until an operation may be put into the stream: its launch queue may be full. Before any lock is taken.
  void await_stream(device::Stream stream, bool held);
  // The same for an operation in a lane of copies.
  void await_room(device::Stream stream);
  // The stream's later work begins after the request's operation, which was submitted on a stream, or
  // captured with this one. False: there is nothing to wait for, the request is done.
  bool wait_on_stream(const Request& request, device::Stream stream);
  // The peer's region of a lane that is connected already, also if the peer has left since; else null.
  const LaneShared* connected_peer(const LaneKey& key, uint32_t peer);
  // How many operations this rank has put into the lane.
  uint64_t submitted(const HostLane& lane);

  // Until the request is done or the time is up; runs the daemon and helps with completions meanwhile.
  bool wait(const Request& request, int64_t timeout_ns);

  void break_lane(const LaneKey& key, FaultKind kind, const std::string& text);
  // The first fault of any of the lanes.
  Fault first_fault(const std::vector<LaneKey>& keys);
  // Ends a request that never came to a lane.
  void fail(const RequestPtr& request, starling_status status, const std::string& message);
  // Waits until none of the lanes has an operation under way. False: not within the time.
  bool drain(const std::vector<LaneKey>& keys, uint64_t timeout_ns);

  // One more communicator has something to match, or one less.
  // After it senders ring here, or what they have sent is seen.
  void count_unmatched(bool more);
  void add_hook(PollHook* hook);
  void remove_hook(PollHook* hook);

  // Before an operation with a callback. Throws Error(system).
  void expect_callbacks() { callbacks_.start(); }
  // Called by a callback of an operation of this context: it cannot be destroyed there.
  bool in_own_callback() { return callbacks_.runs_caller(); }
  void synchronize() { executor_->synchronize(); }
  Scheduling scheduling();
  void set_scheduling(const Scheduling& scheduling);
  void statistics(starling_statistics& out);
  void trace(std::vector<starling_trace_record>& out);
  std::string lane_name(uint32_t id);

 private:
  class Waiter;
  struct StreamWait;
  static constexpr uint64_t kPollerNapNs = 70'000;
  static constexpr uint64_t kFullNapNs = 20'000;  // the launch queue is full, or a daemon is leaving
  static constexpr uint64_t kMostPatienceNs = 2'000'000'000;

  // Found the ring full, or speaks of what has not arrived yet.
  struct Unsubmitted {
    Submission submission;
    uint64_t written;  // Flight::written
  };
  // Of operations that the CPU submitted.
  struct CallStream {
    device::Stream stream;
    bool taken;  // by one under way
  };

  void run_poller();
  bool run_hooks();  // whether all have looked
  void run_hooks_until_all_have_looked();  // on the hooks' thread
  bool poll_once();
  bool look(bool polite);
  uint64_t next_nap_ns() const;
  bool calls_missing();
  void wake_watches();
  void report_woken();
  // Those that were closed, too. Under the lock, or at the end.
  template <class Each>
  void for_all_lanes(Each&& each) {
    for (HostLane* const lane : lanes_by_id_)
      if (lane != nullptr) each(*lane);
    for (const auto& lane : closed_lanes_) each(*lane);
  }
  static Submission submission_of(const HostLane& lane, const Flight& flight, bool marked);
  // Operations whose streams have all come (rendezvous.cc).
  void submit_met();
  bool submit_met(HostLane& lane);
  void let_submitters_go();
  // Communicators that have something to match. Relaxed: a hint.
  bool any_unmatched() const {
    return std::atomic_ref<uint32_t>(arena_->header()->host.unmatched).load(std::memory_order_relaxed) != 0;
  }
  // The poller, between two completions: does somebody want the lock? Relaxed: a hint.
  bool gives_way(bool polite) const { return polite && submitters_.load(std::memory_order_relaxed) != 0; }
  HostLane* lane_of(uint32_t id);
  bool drain_completions(bool polite);
  bool take_told(bool polite);
  // Lanes of copies (copies.cc).
  void submit_copies(HostLane& lane, Flight&& flight, const std::string& refused);
  // Lanes of groups of one rank (alone.cc).
  void submit_alone(HostLane& lane, Flight&& flight, const std::string& refused);
  bool take_alone(bool polite);
  static bool stands_behind(HostLane& lane, uint64_t sequence, device::Stream stream);
  void await_engine(const Request& request);
  void feed_copies(HostLane& lane, uint64_t now_ns);
  bool take_copied();
  void end_copied(HostLane& lane, uint64_t sequence);
  void complete(HostLane& lane, uint64_t sequence);
  void maintain(uint64_t now);
  void maintain_lane(HostLane& lane, uint64_t now);
  void check_peers(HostLane& lane, uint64_t now);
  void meet_peers(HostLane& lane);
  void fail_waiting(HostLane& lane, const Fault& fault);
  // What has no caller to throw to (memory is not there, say): the poller, and an operation that has its
  // place in the lane. The lane ends with the error, here and with the peers.
  template <class F>
  void guarded_for(HostLane& lane, F&& f) {
    try {
      f();
    } catch (const std::bad_alloc&) {
      cannot_go_on(lane, "the process has no memory left; remedy: give it more");
    } catch (const std::exception& error) {
      cannot_go_on(lane, error.what());
    }
  }
  void cannot_go_on(HostLane& lane, const std::string& why);
  // Broken lanes (broken_lane.cc).
  void find_broken_lanes();
  bool settle(HostLane& lane);
  void end_broken(HostLane& lane, Flight&& flight, const Fault& fault);
  bool give_back();
  void end_everything();
  // Somebody has to look after what no waiter looks after.
  bool poller_needed() const { return under_way_ > 0 || hook_count_ > 0; }
  // now_ns: 0 for a look at the clock.
  void end(Flight& flight, starling_status status, const std::string& message, uint64_t now_ns = 0);
  void record_fault(HostLane& lane, const Fault& fault);
  std::string check_buffers(HostLane& lane, Lowered& lowered);
  bool open_lane(std::unique_lock<QuickMutex>& lock, HostLane& lane, const Lowered& lowered);
  void publish(std::unique_lock<QuickMutex>& lock, HostLane& lane);
  void connect_soon(HostLane& lane, bool opens);
  void count_submitted(HostLane& lane, Flight& flight, const std::string& refused);
  Flight& append(HostLane& lane, Flight&& flight);
  void ring_peers(const HostLane& lane);
  void ring_receivers(const HostLane& lane);
  void remove(HostLane& lane);
  struct Departing {
    HostLane* lane;
    const Flight* flight;
  };
  void prepare_for_stream(std::unique_lock<QuickMutex>& lock, std::span<const Departing> departing);
  bool may_enter_stream(const Departing& departing, uint32_t before, device::StreamCall& first,
                        StreamWait& wait);
  bool refused_by_fault(HostLane& lane, Flight& flight);
  const Flight* take_over(HostLane& lane, Flight&& flight, bool news);
  void begin_as_kernel(HostLane& lane, Flight& flight);
  void count_called(const Flight& flight, bool ended);
  bool needs_no_host(const HostLane& lane) const;
  bool needs_no_host(const HostLane& lane, const Flight& flight) const;
  const void* waited_for_later(const HostLane& lane, const Flight& flight) const;
  bool may_stand(StreamOperations& streams) const;
  const Flight* enter_stream(HostLane& lane, Flight& flight);
  void give_turns();
  // Captured operations (capture.cc).
  struct Capturing {
    Departure* departure;
    RequestPtr request;
    bool held;
    bool news;  // peers have to be told of the lane
    CapturedLaunch launch{};
  };
  void check_captures(const StreamOperations& streams, std::span<const Departure> departures) const;
  void begin_captures(std::unique_lock<QuickMutex>& lock, StreamOperations& streams, const Departure& first,
                      uint64_t capture);
  void take_parked_places(std::span<const Capturing> capturing);
  bool take_over_captured(StreamOperations& streams, Capturing& one);
  bool wait_for_captured(const Request& request, device::Stream stream);
  bool look_at_replays();
  void maintain_replay(HostLane& twin, uint64_t now);
  std::string replay_timeout_text(const HostLane& twin);
  void remove_twins();
  void end_captures(HostLane& twin);
  bool announce(HostLane& lane, const Flight& flight);
  StreamLaunch launch_of(const HostLane& lane, const Flight& flight) const;
  std::unique_lock<QuickMutex> lock_to_submit();
  void feed(HostLane& lane, uint64_t now_ns);
  void flush_submissions(bool ring_daemon = true);
  void publish_waiting_text(uint64_t now);
  void nap(uint32_t fruitless, bool eager);
  void release_streams(HostLane& lane);
  bool await(const Request& request, int64_t timeout_ns);
  void wake_poller();
  void expect_rings();
  void show_poller();
  void start_late();
  void fail_all(const std::string& why);
  Peer attach_segment(const std::string& arena_name);
  HostLane& find_or_make(LaneOptions options);
  void refuse_living_group(const LaneKey& key, const std::string& name) const;
  std::string timeout_text(HostLane& lane, const Flight& flight);

  std::unique_ptr<cpu::Arena> arena_;
  std::unique_ptr<Place> place_;
  std::shared_ptr<Disposal> disposal_;  // on GPUs
  std::unique_ptr<link::carry::Proxy> proxy_;  // set under the lock, once; ends after all lanes
  monitor::FlightRecorder flight_;
  monitor::FlightPaths flight_paths_{*arena_, flight_.for_paths()};
  DaemonOwner memory_;
  PlanCache plans_;
  PlanShelf shelf_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<CopyProxy> copies_;  // set under the lock, once; ends before the executor
  std::atomic<uint64_t> for_proxy_{0};  // operations that it has not got; written under the lock
  std::atomic<uint64_t> copy_patience_ns_{kMostPatienceNs};  // await_engine()
  cpu::CpuMachine host_machine_;  // the host's side of the queues
  CallbackThread callbacks_;
  LateStart late_start_{[this] { start_late(); }};

  QuickMutex mutex_;  // guards all below, and the queues' host ends
  std::atomic<uint32_t> submitters_{0};  // threads that found it taken
  std::map<LaneKey, std::unique_ptr<HostLane>> lanes_;
  std::set<LaneKey> groups_;  // of communicators that live
  std::vector<HostLane*> lanes_by_id_;
  std::vector<uint32_t> free_ids_;
  std::vector<std::unique_ptr<HostLane>> closed_lanes_;  // peers may still touch their regions
  std::map<std::string, WeakPeer> peers_;  // by their segments; of a rank of another host, its shadow
  bool neighbours_ = false;  // other processes of this host have ranks that were met
  std::vector<Unsubmitted> unsubmitted_;
  std::condition_variable_any drained_;
  uint64_t submissions_ = 0;
  uint64_t completions_ = 0;
  std::atomic<uint64_t> under_way_{0};
  std::atomic<uint64_t> waited_{0};  // of these: whose callers will run the daemon
  std::atomic<uint64_t> perhaps_waited_{0};  // whose callers may
  std::atomic<uint64_t> perhaps_since_ns_{0};  // the newest of them was submitted
  uint64_t on_device_ = 0;  // of them, those that the daemon has
  uint64_t for_callers_ = 0;  // of these, those that need a daemon: no stream orders them
  uint64_t called_ = 0;  // and those that the CPU submitted and a kernel began, in a stream of these
  std::vector<CallStream> call_streams_;
  std::unordered_set<device::Stream> operation_streams_;  // nothing but operations is put into them
  bool look_again_ = false;  // the executor asks to be polled
  std::atomic<uint64_t> nap_ns_{kPollerNapNs};  // and how soon; read by the poller without the lock
  uint64_t began_at_ns_ =
      0;  // the last operation that begins as a kernel and is not waited for; with watches
  uint64_t woken_at_ns_ = 0;  // when watches were, for a daemon that does not come
  uint64_t woken_until_ns_ = 0;  // the first look since that found none to be woken
  uint32_t looks_since_woken_ = 0;
  bool poller_looks_ = false;  // it looks soon and need not be told: where completions do not ring
  bool poller_lingers_ = false;  // it does so though nothing was left: not as soon as the CPU's callers want
  std::vector<HostLane*> turnless_;  // streams want to use them, once nothing of theirs is on the device
  std::vector<HostLane*> told_;  // with operations on the device that began as kernels
  std::vector<HostLane*> meeting_;  // with operations on the device whose ranks meet before they begin
  std::vector<HostLane*> alone_;  // likewise, that their streams copy
  std::vector<HostLane*> twins_;  // of captured operations
  std::map<LaneKey, Fault>
      faults_of_gone_;  // of those whose graphs are gone, as long as their communicator lives
  bool replaying_ = false;  // an operation of one was under way at the last look
  uint32_t parked_places_ = 0;  // of each ParkedRing, that twins may take
  std::vector<HostLane*> connecting_;  // busy, with peers that have no region yet
  std::vector<HostLane*> reading_;  // busy, and perhaps waiting for buffers of peers to be opened
  std::vector<HostLane*> broken_;  // idle or not, with slots lent, or peers to be told that we are out
  std::vector<HostLane*> keeping_;  // of these, those with kept operations
  uint64_t faults_seen_ = 0;
  std::map<const cpu::PeerArena*, uint64_t> gone_since_;
  std::string published_waiting_;

  std::mutex hooks_mutex_;
  std::vector<PollHook*> hooks_;
  std::atomic<uint32_t> hook_count_{0};
  std::unique_ptr<CalledThread> hook_thread_;  // on GPUs, once there are hooks
  std::atomic<bool> ending_{false};
  std::atomic<uint32_t> ranks_on_host_{1};
  std::atomic<uint32_t> waiters_{0};  // threads inside wait() that look for completions themselves
  const uint32_t cores_ = std::thread::hardware_concurrency();
  std::thread poller_;
};

}  // namespace starling
