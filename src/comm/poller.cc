// The poller's part of the context: completions, connections, timeouts, dead peers. It depends on no peer and
// never waits for one.
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/seconds.h"
#include "comm/context.h"
#include "device/handover.h"
#include "machine/cpu/lock_soon.h"

namespace starling {
namespace {

constexpr uint32_t kEagerLooks = 500;  // some 100 us
// How long it looks on when nothing is left, and streams' callers need not wake it: one whose GPU keeps up
// with it would have to for every operation, some 3 us each time. It can be woken meanwhile.
constexpr uint64_t kLooksOnNs = 200'000;
constexpr uint64_t kShortNapNs = 15'000;  // where a daemon is about to leave, or may be needed
constexpr uint64_t kMeetNapNs = 35'000;  // where operations meet before they begin
constexpr uint64_t kParksNs =
    200'000;  // an operation that is stuck at first has left its place after so long
constexpr unsigned long kTimerSlackNs = 1'000;  // else a nap is 50 us longer
constexpr int kSubmitterLooks =
    100;  // longest time that the poller leaves the lock to those who submit, some us
constexpr uint64_t kMaintenanceNs = 5'000'000;  // how often lanes are looked after while work is under way
constexpr uint64_t kBusyHookNs = 50'000;  // until a hook that could not look is called again
constexpr uint64_t kQuietNs = 100'000'000;  // longest sleep otherwise
constexpr uint64_t kReplayNs = 1'000'000;  // but where a replay may begin at any time
constexpr uint64_t kDeadPeerNs =
    300'000'000;  // what a dead peer sent may still complete an operation so long
constexpr uint64_t kLeftPeerNs = 2'000'000'000;  // the same for one that left in order

std::string lost_text(const HostLane& lane, uint32_t peer, const std::string& why) {
  return "rank " + std::to_string(lane.member(lane.rank()).world_rank) + " has lost rank " +
         std::to_string(lane.member(peer).world_rank) + " on another host: " + why + "; lane '" +
         lane.name() + "' waited for it; remedy: see that rank's log, and these ports";
}

// What a rank says it waits for; written and read without a lock.
std::string waiting_text_of(const ArenaHeader* header) {
  // Acquire: pairs with the release of `waiting_version` in publish_waiting_text().
  const auto version = [&] {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(header->waiting_version))
        .load(std::memory_order_acquire);
  };
  for (int attempt = 0; attempt < 8; ++attempt) {
    const uint64_t before = version();
    char text[sizeof(header->waiting_text)];
    for (size_t i = 0; i < sizeof text; ++i)
      text[i] =
          std::atomic_ref<char>(const_cast<char&>(header->waiting_text[i])).load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);  // the text before the second look
    if (before % 2 == 0 && version() == before) {
      text[sizeof text - 1] = 0;
      return text;
    }
  }
  return "";
}

}  // namespace

// Where completions do not ring: look often at first, and while nobody else looks. eager: somebody may wait
// for them on the CPU.
void Context::nap(uint32_t fruitless, bool eager) {
  if (eager && fruitless < kEagerLooks && waiters_.load(std::memory_order_relaxed) == 0) {
    sched_yield();
    return;
  }
  std::this_thread::sleep_for(std::chrono::nanoseconds(nap_ns_.load(std::memory_order_relaxed)));
}

void Context::run_poller() {
  cpu::Sleeper sleeper(&arena_->header()->host, 0);
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  uint64_t next_maintenance = 0;
  uint32_t fruitless = 0;
  uint64_t busy_at = 0;  // the last look that found something
  // Acquire: pairs with the release of who ends the context.
  while (!ending_.load(std::memory_order_acquire)) {
    const uint64_t now = cpu::monotonic_ns();
    flight_.alive(now);
    flight_paths_.follow(now);
    bool any = false;
    bool work;
    bool looks;  // it is not rung: completions may come, or the daemon may have to be launched
    bool eager;
    uint64_t longest_ns;
    {
      // Soon: whoever lets go of a lock that nobody sleeps for need not wake anybody.
      const std::unique_lock lock = cpu::lock_soon(mutex_);
      try {
        any = look(true);
        if (now >= next_maintenance) {
          next_maintenance = now + kMaintenanceNs;
          maintain(now);
        }
      } catch (const std::exception& error) {  // the place's: a GPU that failed, or has no memory left
        fail_all(error.what());
      }
      work = under_way_ > 0 || !closed_lanes_.empty() || !broken_.empty();
      looks = on_device_ > 0 || look_again_ || replaying_;
      if (looks || any) busy_at = now;
      const bool rung = place_->traits().notifies;
      looks &= !rung;
      poller_lingers_ = !rung && !looks && now - busy_at < kLooksOnNs;
      // The look that may follow before it sleeps comes after this one, under the same lock.
      poller_looks_ = looks || poller_lingers_;
      eager = for_callers_ + called_ > 0;  // somebody may wait for them on the CPU
      longest_ns = !twins_.empty() ? kReplayNs : work ? kMaintenanceNs : kQuietNs;
      if (poller_lingers_) longest_ns = kPollerNapNs;
    }
    if (hook_count_ > 0) {
      longest_ns = std::min(longest_ns, kMaintenanceNs);
      if (!on_gpu())
        longest_ns = run_hooks() ? longest_ns : kBusyHookNs;
      else if (any_unmatched())
        hook_thread_->call(0);
    }
    if (any) {
      fruitless = 0;
      sleeper.cancel();
      let_submitters_go();
      continue;
    }
    // One more look between the two, as the doorbell's protocol asks.
    if (looks) {
      sleeper.cancel();  // a waiter may have cleared its bit, and who comes then would not be heard
      nap(fruitless++, eager);
    } else if (!sleeper.prepared())
      sleeper.prepare();
    else
      sleeper.sleep(longest_ns);
  }
}

// They submit, and who does may wait for the driver: where there is one, not the poller.
bool Context::run_hooks() {
  const std::lock_guard lock(hooks_mutex_);
  bool all = true;
  for (PollHook* hook : hooks_) all &= hook->poll();
  return all;
}

void Context::run_hooks_until_all_have_looked() {
  while (!run_hooks() && !ending_.load(std::memory_order_relaxed))
    std::this_thread::sleep_for(std::chrono::nanoseconds(kBusyHookNs));
}

// Relaxed, as where it is written: a hint.
void Context::let_submitters_go() {
  for (int k = 0; k < kSubmitterLooks && submitters_.load(std::memory_order_relaxed) != 0; ++k) cpu::relax();
}

// By waiters, who need not look if another thread does.
bool Context::poll_once() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && look(false);
}

// Under the lock. True if anything was completed: there may be more, where it is polite and somebody wants
// the lock.
bool Context::look(bool polite) {
  if (!unsubmitted_.empty()) flush_submissions();
  for (auto it = connecting_.begin(); it != connecting_.end();) {
    HostLane& lane = **it;
    guarded_for(lane, [&] {
      if (lane.resolve()) meet_peers(lane);
    });
    it = lane.resolved() || !lane.in_use() ? connecting_.erase(it) : it + 1;
  }
  for (HostLane* lane : reading_) lane->look_for_buffers();
  std::erase_if(reading_, [](const HostLane* lane) { return !lane->in_use(); });
  // A proxy saw what our boards did not show yet when we looked.
  if (proxy_ != nullptr && proxy_->take_mismatch())
    for (HostLane* lane : lanes_by_id_)
      if (lane != nullptr && lane->in_use() && lane->shared() != nullptr)
        guarded_for(*lane, [&] { meet_peers(*lane); });
  bool any = drain_completions(polite) | take_copied() | take_alone(polite);
  if (!keeping_.empty()) any |= give_back();
  if (executor_ == nullptr) return any;  // the context ends
  if (!turnless_.empty()) give_turns();
  any |= look_at_replays();
  if (!meeting_.empty()) submit_met();
  if (StreamOperations* const streams = executor_->streams(); streams != nullptr && streams->asks_for_calls())
    streams->note_calls(calls_missing());
  wake_watches();
  look_again_ = executor_->keep_running(on_device_ > 0 || replaying_, for_callers_ > 0);
  nap_ns_.store(next_nap_ns(), std::memory_order_relaxed);
  return any;
}

// Where no guard waits for what is left to a daemon, its host has to see it soon.
uint64_t Context::next_nap_ns() const {
  const bool parks = began_at_ns_ != 0 && cpu::monotonic_ns() - began_at_ns_ < kParksNs;
  if (executor_->hurries() || parks) return kShortNapNs;
  return meeting_.empty() ? kPollerNapNs : kMeetNapNs;
}

// Does each lane with operations that began as kernels wait for a rank that has not called the oldest one?
bool Context::calls_missing() {
  if (for_callers_ != 0 || replaying_ || told_.empty() || executor_->streams()->shares_queue()) return false;
  return std::all_of(told_.begin(), told_.end(), [this](HostLane* lane) {
    const Flight* const oldest = lane->oldest_by_kernel();
    if (oldest == nullptr) return true;
    if (is_broken(*lane)) return false;
    const Flight& first = lane->flights().front();
    return (first.by_rendezvous() && !first.met) || !was_called_by_all(*lane, oldest->sequence);
  });
}

// Of an operation that was on the device; its communicator may be gone.
HostLane* Context::lane_of(uint32_t id) {
  if (lanes_by_id_[id] != nullptr) return lanes_by_id_[id];
  for (const auto& lane : closed_lanes_)
    if (lane->id() == id && lane->busy()) return lane.get();
  return nullptr;
}

bool Context::drain_completions(bool polite) {
  uint64_t token = 0;
  bool any = take_told(polite);
  while (!(any && gives_way(polite)) &&
         device::pop(host_machine_, memory_.completion_kind(), memory_.completions(), token)) {
    any = true;
    HostLane* const found = lane_of(uint32_t(token >> 28) - 1);
    if (found == nullptr || found->flights().empty()) continue;  // it was given up
    HostLane& lane = *found;
    const uint64_t low = token & 0xfffffff;
    // The low bits name it: a lane has at most kLaneDepth operations on the device.
    uint64_t sequence = (lane.flights().front().sequence & ~uint64_t(0xfffffff)) | low;
    if (sequence < lane.flights().front().sequence) sequence += uint64_t(1) << 28;
    complete(lane, sequence);
  }
  return any;
}

// What began as a kernel goes by no queue: a word a place of its lane tells of it (wire/handover.h). A lane's
// operations complete in their order, so the oldest one's word is all there is to look at.
bool Context::take_told(bool polite) {
  bool any = false;
  // By number: an operation that completes may bring another lane in.
  for (size_t k = 0; k < told_.size(); ++k) {
    HostLane& lane = *told_[k];
    for (const Flight* oldest; (oldest = lane.oldest_by_kernel()) != nullptr; any = true) {
      if (!device::was_told(host_machine_, lane.handover(), oldest->sequence)) break;
      complete(lane, oldest->sequence);
      if (gives_way(polite)) return true;
    }
  }
  std::erase_if(told_, [](const HostLane* lane) { return lane->oldest_by_kernel() == nullptr; });
  return any;
}

// An operation was completed by the device.
void Context::complete(HostLane& lane, uint64_t sequence) {
  Flight& flight = lane.finish(sequence);
  --on_device_;
  for_callers_ -= !flight.on_stream;
  if (flight.called) count_called(flight, true);
  const uint64_t now = cpu::monotonic_ns();
  if (!is_broken(lane)) {
    end(flight, STARLING_SUCCESS, "", now);
    guarded_for(lane, [&] { feed(lane, now); });
    return;
  }
  const Fault fault = fault_of(lane);
  record_fault(lane, fault);
  end_broken(lane, std::move(flight), fault);
  // Releases streams again: the block that completed it may have overwritten the poison.
  fail_waiting(lane, fault);
}

void Context::cannot_go_on(HostLane& lane, const std::string& why) {
  starling::break_lane(lane, FaultKind::kInternal, lane.next_sequence(),
                       "rank " + std::to_string(lane.member(lane.rank()).world_rank) + ": lane '" +
                           lane.name() + "' cannot go on: " + why);
  fail_waiting(lane, fault_of(lane));
}

// New peers of a lane with operations under way: do they mean the same?
void Context::meet_peers(HostLane& lane) {
  const auto matches = [&lane](const Flight& flight) {
    const auto mismatch = find_mismatch(lane, flight, false);
    if (mismatch) starling::break_lane(lane, FaultKind::kMismatch, flight.sequence, *mismatch);
    return !mismatch;
  };
  if (const Captures* captures = lane.captures()) {
    for (const Flight& flight : captures->operations)
      if (!matches(flight)) break;
  } else {
    for (const Flight& flight : lane.flights())
      if (!matches(flight)) break;
  }
  if (lane.by_copies()) return feed_copies(lane, cpu::monotonic_ns());
  executor_->ring();  // its blocks may sleep for want of a connection
}

// Before operations end by it: copies of the record show them under way. Peers that know nothing of the fault
// copy nothing; so their neighbours do.
void Context::record_fault(HostLane& lane, const Fault& fault) {
  if (!flight_.fault(lane.id(), uint64_t(fault.kind), fault.sequence, fault.text)) return;
  const std::string& folder = settings().flight_dir;
  if (folder.empty()) return;
  try {
    monitor::copy_flight(flight_.record(), folder);
    for (uint32_t peer = 0; peer < lane.size(); ++peer)
      if (peer != lane.rank() && lane.member(peer).peer.way == nullptr)
        monitor::copy_neighbours_flight(lane.member(peer).peer.arena->name(), folder);
  } catch (const Error& error) {
    log(LogLevel::warn, "no flight record was written: ", error.what());
  }
}

void Context::fail_waiting(HostLane& lane, const Fault& fault) {
  STARLING_ASSERT(fault.kind != FaultKind::kNone,
                  "operations of a whole lane were to end as if it were broken");
  record_fault(lane, fault);
  if (Captures* captures = lane.captures(); captures != nullptr && !std::exchange(captures->told, true))
    log_rank(LogLevel::error, int(lane.member(lane.rank()).world_rank),
             "a graph's replays go on without its collectives: ", fault.text);
  // First: streams go on before anything else is told.
  release_streams(lane);
  lane.show_fault(uint64_t(fault.kind));
  for (Flight& flight : lane.take_waiting()) end(flight, status_of(fault.kind), fault.text);
}

// Every stream that stands for an operation of a broken lane goes on.
void Context::release_streams(HostLane& lane) {
  if (lane.on_streams()) executor_->streams()->poison(lane.handover(), lane.newest());
}

// The daemon will complete nothing any more: all that is under way ends, here and with the peers.
void Context::fail_all(const std::string& why) {
  const std::string text = place_->name() + ": " + why;
  if (copies_ != nullptr && !executor_->failure().empty()) copies_->abandon();
  std::vector<HostLane*> lanes = lanes_by_id_;
  for (const auto& lane : closed_lanes_) lanes.push_back(lane.get());
  for (HostLane* lane : lanes) {
    if (lane == nullptr || !lane->busy()) continue;
    starling::break_lane(*lane, FaultKind::kInternal, lane->next_sequence(), text);
    release_streams(*lane);
    lane->take_back_buffers();
    for (Flight& flight : lane->take_waiting(true)) end(flight, STARLING_SYSTEM, text);
  }
  // No peer can go on reading the memory of a device that is gone.
  for (HostLane* lane : keeping_) {
    lane->take_back_buffers();
    for (KeptFlight& kept : lane->kept()) end(kept.flight, kept.status, kept.message);
    lane->kept().clear();
  }
  keeping_.clear();
  told_.clear();
  meeting_.clear();
  alone_.clear();
  on_device_ = for_callers_ = called_ = 0;
  unsubmitted_.clear();
  for (CallStream& one : call_streams_) one.taken = false;
}

void Context::maintain(uint64_t now) {
  std::string why = executor_->failure();
  if (why.empty()) why = place_->failure();
  if (!why.empty()) fail_all(why);
  // A block may look at a lane a little longer than its last operation: until it leaves, or reads the last of
  // the submissions that it has no part in.
  find_broken_lanes();
  std::erase_if(broken_, [this](HostLane* lane) { return settle(*lane); });
  remove_twins();
  const bool quiet = !closed_lanes_.empty() && executor_->quiet();
  std::erase_if(closed_lanes_, [&](const std::unique_ptr<HostLane>& lane) {
    if (lane->captures() != nullptr) lane->look_at_replays(host_machine_, now);
    if (lane->may_replay() || !quiet || !lane->abandoned() || lane->busy()) return false;
    if (std::find(broken_.begin(), broken_.end(), lane.get()) != broken_.end()) return false;
    if (!lane->lingered(now)) return false;
    std::erase(told_, lane.get());
    std::erase(meeting_, lane.get());
    std::erase(alone_, lane.get());
    free_ids_.push_back(lane->id());
    return true;
  });
  for (HostLane* lane : lanes_by_id_)
    if (lane != nullptr && lane->busy()) guarded_for(*lane, [&] { maintain_lane(*lane, now); });
  publish_waiting_text(now);
}

void Context::maintain_lane(HostLane& lane, uint64_t now) {
  if (!lane.resolved() && lane.resolve()) meet_peers(lane);
  if (HostLane* control = lane.control()) {
    control->resolve();
    // Whoever broke it may not know this lane.
    if (const Fault fault = fault_of(*control); fault.kind != FaultKind::kNone)
      starling::break_lane(lane, fault.kind, lane.next_sequence(), fault.text);
  }
  if (const Fault fault = fault_of(lane); fault.kind != FaultKind::kNone) return fail_waiting(lane, fault);
  if (lane.captures() != nullptr) return maintain_replay(lane, now);
  const Flight& oldest = lane.flights().front();
  if (now >= oldest.deadline_ns) {
    starling::break_lane(lane, FaultKind::kTimeout, oldest.sequence, timeout_text(lane, oldest));
    return fail_waiting(lane, fault_of(lane));
  }
  if (const std::string why = oldest.lowered.opens ? lane.refusal() : ""; !why.empty()) {
    starling::break_lane(lane, FaultKind::kInternal, oldest.sequence, why);
    return fail_waiting(lane, fault_of(lane));
  }
  check_peers(lane, now);
}

void Context::check_peers(HostLane& lane, uint64_t now) {
  for (uint32_t peer = 0; peer < lane.size(); ++peer) {
    if (peer == lane.rank() || lane.member(peer).peer.arena->alive()) continue;
    const cpu::PeerArena& arena = *lane.member(peer).peer.arena;
    const bool in_order = arena.left_in_order();
    uint64_t& since = gone_since_[&arena];
    if (since == 0) since = now;
    if (now - since < (in_order ? kLeftPeerNs : kDeadPeerNs)) continue;
    link::carry::Way* way = lane.member(peer).peer.way;
    if (way != nullptr && !in_order) {
      starling::break_lane(lane, FaultKind::kPeerFailed, lane.oldest(),
                           lost_text(lane, peer, way->failure()));
      return fail_waiting(lane, fault_of(lane));
    }
    if (!in_order) arena.remove_name();
    const std::string who = "rank " + std::to_string(lane.member(peer).world_rank) + " (process " +
                            std::to_string(arena.header()->pid) + ")";
    const std::string text =
        in_order ? who + " left while lane '" + lane.name() + "' still waited for it; remedy: " +
                       "have every rank finish its operations before it destroys its communicator"
                 : who + " died; lane '" + lane.name() + "' waited for it; remedy: see that " +
                       "rank's own log for the cause";
    starling::break_lane(lane, FaultKind::kPeerFailed, lane.oldest(), text);
    return fail_waiting(lane, fault_of(lane));
  }
}

std::string Context::timeout_text(HostLane& lane, const Flight& flight) {
  std::string text = "rank " + std::to_string(lane.member(lane.rank()).world_rank) + ": " +
                     text_of(flight.lowered) + " in lane '" + lane.name() + "' at position " +
                     std::to_string(flight.sequence) + " did not finish within " + seconds(flight.timeout_ns);
  for (uint32_t peer = 0; peer < lane.size(); ++peer) {
    if (peer == lane.rank()) continue;
    const std::string name = "; rank " + std::to_string(lane.member(peer).world_rank);
    LaneShared* shared = lane.peer_shared(peer);
    const bool called = shared != nullptr && host_machine_.load_relaxed(&shared->submitted) > flight.sequence;
    if (called) {
      text += name + " called it too";
      continue;
    }
    const std::string waits = waiting_text_of(lane.member(peer).peer.arena->header());
    text +=
        name + " has not called it" + (waits.empty() ? " and waits for nothing" : " and waits for " + waits);
  }
  if (lane.by_copies()) text += lane.copies_text(host_machine_, flight);
  return text;
}

void Context::publish_waiting_text(uint64_t now) {
  std::string text;
  for (HostLane* lane : lanes_by_id_) {
    if (lane == nullptr || lane->flights().empty() || text.size() > 300) continue;
    const Flight& oldest = lane->flights().front();
    if (now - oldest.submitted_ns < kQuietNs / 2) continue;
    text += (text.empty() ? "" : ", ") + text_of(oldest.lowered) + " in lane '" + lane->name() +
            "' at position " + std::to_string(oldest.sequence);
  }
  if (text == published_waiting_) return;
  published_waiting_ = text;
  ArenaHeader* header = arena_->header();
  std::atomic_ref<uint64_t> version(header->waiting_version);
  const uint64_t before = version.load(std::memory_order_relaxed);
  version.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // the odd version before the new text
  text.resize(sizeof(header->waiting_text) - 1);
  for (size_t i = 0; i < text.size(); ++i)
    std::atomic_ref<char>(header->waiting_text[i]).store(text[i], std::memory_order_relaxed);
  // Release: the text before the even version; pairs with the acquire in waiting_text_of().
  version.store(before + 2, std::memory_order_release);
  if (proxy_ != nullptr) proxy_->wake();
}

}  // namespace starling
