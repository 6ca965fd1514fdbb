#include "comm/context.h"

#include <sched.h>

#include <algorithm>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/job_store.h"
#include "device/submission_queue.h"

namespace starling {
namespace {

constexpr uint64_t kPollerBit = 1;                  // the poller's place at the host's doorbell
constexpr uint32_t kWaiterLooks = 200;            // before a waiter sleeps
constexpr uint64_t kLingerNs = 50'000;  // what handing the daemon over costs, about
constexpr uint32_t kSlotBytesLimit = 1 << 16;
constexpr uint64_t kEndingNs = 2'000'000'000;  // a context that is destroyed waits so long for its work

uint64_t token_of(uint32_t lane, uint64_t sequence) {
  return (uint64_t(lane) + 1) << 28 | (sequence & 0xfffffff);
}

cpu::Arena::Sizes arena_sizes(const starling_context_options& options) {
  const Settings& s = settings();
  return {options.arena_bytes ? options.arena_bytes : uint64_t(s.arena_bytes),
          options.pool_bytes ? options.pool_bytes : uint64_t(s.pool_bytes), kSlotBytesLimit};
}

// Ranks usually outnumber cores where this machine is used: look a few times, then let others run.
cpu::WaitPolicy wait_policy() {
  return {.spins = 32, .idle_spins = 2, .idle_yields = 4, .sleep_ns = 300'000};
}

}  // namespace

Context::Context(const starling_context_options& options)
    : memory_(options.blocks ? options.blocks : uint32_t(settings().blocks)),
      arena_((remove_stale_job_files(), cpu::remove_stale_arenas(),
              std::make_unique<cpu::Arena>(arena_sizes(options)))),
      completion_kind_(completion_queue_named(options.completion_queue)),
      host_machine_(0, wait_policy(), &arena_->header()->host, nullptr) {
  memory_.daemon()->scheduling = scheduling_from(options.scheduling);
  memory_.share_pool(arena_->header()->pool_slots);
  ArenaHeader* header = arena_->header();
  executor_ = std::make_unique<cpu::Executor>(
      cpu::ExecutorOptions{memory_.daemon(), memory_.completions(), completion_kind_,
                           arena_->at(header->pool_offset), header, wait_policy()});
  poller_ = std::thread([this] { run_poller(); });
}

Context::~Context() {
  {
    std::unique_lock lock(mutex_);
    drained_.wait_for(lock, std::chrono::nanoseconds(kEndingNs), [&] { return under_way_ == 0; });
    // The exiting submission: the daemon leaves for good once its queue is empty.
    unsubmitted_.push_back(Submission{});
    flush_submissions();
  }
  ending_.store(true, std::memory_order_release);
  cpu::futex_wake_all(&arena_->header()->host.event);
  cpu::ring(&arena_->header()->host);
  poller_.join();  // first: it asks the executor whether lanes are out of use
  executor_.reset();
  poll_once();
  for (auto& [key, lane] : lanes_)
    for (Flight& flight : lane->flights())
      end(flight, STARLING_ABORTED, "the context was destroyed while the operation was under way");
}

std::shared_ptr<cpu::PeerArena> Context::attach(const std::string& arena_name) {
  std::lock_guard lock(mutex_);
  std::weak_ptr<cpu::PeerArena>& known = peers_[arena_name];
  std::shared_ptr<cpu::PeerArena> arena = known.lock();
  if (arena == nullptr) known = arena = std::make_shared<cpu::PeerArena>(arena_name);
  ranks_on_host_.store(uint32_t(peers_.size()) + 1, std::memory_order_relaxed);
  return arena;
}

HostLane& Context::lane(const LaneKey& key, const std::string& name, uint32_t rank,
                        const std::vector<Member>& members, bool any_size, HostLane* control) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<HostLane>& lane = lanes_[key];
  if (lane != nullptr) return *lane;
  uint32_t id = uint32_t(lanes_by_id_.size());
  if (!free_ids_.empty()) {
    id = free_ids_.back();
    free_ids_.pop_back();
  } else if (id == kMaxLanes) {
    lanes_.erase(key);
    throw Error(Code::exhausted, "a rank can have " + std::to_string(kMaxLanes) + " lanes",
                "destroy communicators, or use fewer names and tags");
  } else {
    lanes_by_id_.push_back(nullptr);
  }
  lane = std::make_unique<HostLane>(
      LaneOptions{key, name, id, rank, members, block_count(), kSlotBytesLimit, any_size, control}, *arena_);
  lanes_by_id_[id] = lane.get();
  memory_.set_lane(id, lane->device());
  return *lane;
}

HostLane& Context::control_lane(const LaneKey& key, const std::string& name, uint32_t rank,
                                const std::vector<Member>& members) {
  HostLane& control = lane(key, name, rank, members, false, nullptr);
  std::lock_guard lock(mutex_);
  control.open(0, block_count());
  control.resolve();
  return control;
}

void Context::remove_lane(const LaneKey& key) {
  std::lock_guard lock(mutex_);
  const auto found = lanes_.find(key);
  if (found == lanes_.end()) return;
  found->second->close();
  lanes_by_id_[found->second->id()] = nullptr;
  std::erase(connecting_, found->second.get());
  // Its number is used again when its region is: until then traces may still speak of it.
  closed_lanes_.push_back(std::move(found->second));
  lanes_.erase(found);
}

void Context::submit(HostLane& lane, Flight&& flight) {
  std::unique_lock lock(mutex_);
  const bool fresh = lane.shared() == nullptr;
  lane.open(flight.lowered.size_class_bytes, block_count());
  lane.check(*flight.lowered.plan);
  const bool news = lane.resolve();
  ++submissions_;
  ++under_way_;
  waited_ += flight.waited;
  if (const Fault fault = fault_of(lane); fault.kind != FaultKind::kNone) {
    end(flight, status_of(fault.kind), fault.text + " (the lane is broken since then)");
    return;
  }
  const bool waited = flight.waited;
  const bool message = flight.lowered.signature.collective == Collective::kSendRecv;
  lane.append(std::move(flight));
  post_call(lane);
  feed(lane);
  if (!lane.resolved() && std::find(connecting_.begin(), connecting_.end(), &lane) == connecting_.end())
    connecting_.push_back(&lane);
  // The poller is asleep without its bit if a waiter did its work: it has to hear of this one, unless a
  // waiter does its work again.
  if (!waited) std::atomic_ref<uint64_t>(arena_->header()->host.sleepers).fetch_or(kPollerBit);
  // A message may be what an any-source receive waits for.
  if (fresh || news || message)
    for (uint32_t peer = 0; peer < lane.size(); ++peer)
      if (peer != lane.rank()) cpu::ring(&lane.member(peer).arena->header()->host);
}

const LaneShared* Context::connected_peer(const LaneKey& key, uint32_t peer) {
  std::lock_guard lock(mutex_);
  const auto found = lanes_.find(key);
  return found == lanes_.end() ? nullptr : found->second->peer_shared(peer);
}

uint64_t Context::submitted(const HostLane& lane) {
  std::lock_guard lock(mutex_);
  return lane.next_sequence();
}

// Signatures cross when an operation goes to the device, not when it is submitted: a rank may submit any
// number ahead, but the board remembers kBoard positions, more than the device holds. False: the lane is
// broken now.
bool Context::announce(HostLane& lane, const Flight& flight) {
  post_signature(lane, flight);
  // A peer that opened its region between our last look and our board sees our board; look again for its.
  if (!lane.resolved()) lane.resolve();
  const auto mismatch = find_mismatch(lane, flight);
  if (!mismatch) return true;
  starling::break_lane(lane, FaultKind::kMismatch, flight.sequence, *mismatch);
  fail_waiting(lane, fault_of(lane));
  return false;
}

void Context::feed(HostLane& lane) {
  bool any = false;
  bool ring_daemon = false;
  while (Flight* flight = lane.next_for_device()) {
    ring_daemon |= !flight->waited;
    if (!announce(lane, *flight)) break;
    lane.place(*flight, token_of(lane.id(), flight->sequence));
    unsubmitted_.push_back({lane.id(), int16_t(std::clamp(flight->priority, -32768, 32767)),
                            flight->lowered.operation.block_count, 0, flight->sequence});
    any = true;
  }
  if (any) flush_submissions(ring_daemon);
}

void Context::flush_submissions(bool ring_daemon) {
  bool any = false;
  while (!unsubmitted_.empty() && device::push_submission(host_machine_, memory_.daemon()->submissions,
                                                          block_count(), unsubmitted_.front())) {
    unsubmitted_.pop_front();
    any = true;
  }
  if (any && ring_daemon) cpu::ring_for_launch(&arena_->header()->daemon);
}

void Context::end(Flight& flight, starling_status status, const std::string& message) {
  ++completions_;
  --under_way_;
  waited_ -= flight.waited;
  if (under_way_ == 0) drained_.notify_all();
  for (RequestPtr* request : {&flight.request, &flight.second}) {
    if (*request == nullptr || !(*request)->complete(status, message)) continue;
    if ((*request)->has_callback()) callbacks_.push(std::move(*request));
  }
}

// Ends the residency on the caller's thread once the caller's request is done. Others that it will wait for
// next go on here as long as they can: the daemon's thread would be woken for nothing.
class Context::Waiter final : public cpu::CompletionListener {
 public:
  Waiter(Context& context, const Request& request) : context_(context), request_(request) {}
  void look(bool idle) override {
    context_.poll_once();
    if (!request_.done()) return;
    if (context_.waited_ == 0 || (idle && lingered())) context_.executor_->end_early();
  }

 private:
  bool lingered() {
    if (done_at_ == 0) done_at_ = cpu::monotonic_ns();
    return cpu::monotonic_ns() - done_at_ > kLingerNs;
  }

  uint64_t done_at_ = 0;
  Context& context_;
  const Request& request_;
};

bool Context::wait(const Request& request, int64_t timeout_ns) {
  if (request.done()) return true;
  std::atomic_ref<uint64_t> sleepers(arena_->header()->host.sleepers);
  sleepers.fetch_and(~kPollerBit);  // while we look ourselves, nobody needs to wake the poller
  const uint64_t start = cpu::monotonic_ns();
  Waiter waiter(*this, request);
  const bool eager = ranks_on_host_.load(std::memory_order_relaxed) <= cores_;
  bool asked = false;
  for (uint32_t look = 0; look < kWaiterLooks && !request.done(); ++look) {
    if (timeout_ns >= 0 && cpu::monotonic_ns() - start >= uint64_t(timeout_ns)) break;
    const bool ran = executor_->run_here(waiter, eager);
    if (ran) {
      poll_once();
      continue;
    }
    if (asked || !executor_->ask_to_leave())
      cpu::ring_for_launch(&arena_->header()->daemon);  // it was not rung for us at the submission
    asked = true;
    if (!poll_once()) sched_yield();
  }
  // What others submitted before our bit was away is counted by now; what comes later sets the bit itself.
  if (request.done() && !poller_needed()) return true;
  sleepers.fetch_or(kPollerBit);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  poll_once();  // what was published before the poller's bit was there
  if (request.done()) return true;
  cpu::ring_for_launch(&arena_->header()->daemon);
  if (timeout_ns < 0) return request.wait(-1);
  const uint64_t passed = cpu::monotonic_ns() - start;
  return request.wait(passed < uint64_t(timeout_ns) ? int64_t(uint64_t(timeout_ns) - passed) : 0);
}

void Context::break_lane(const LaneKey& key, FaultKind kind, const std::string& text) {
  std::lock_guard lock(mutex_);
  const auto found = lanes_.find(key);
  if (found == lanes_.end()) return;
  HostLane& lane = *found->second;
  lane.resolve();
  starling::break_lane(lane, kind, lane.next_sequence(), text);
  if (lane.shared() != nullptr) fail_waiting(lane, fault_of(lane));
}

Fault Context::first_fault(const std::vector<LaneKey>& keys) {
  std::lock_guard lock(mutex_);
  for (const LaneKey& key : keys) {
    const auto found = lanes_.find(key);
    if (found == lanes_.end()) continue;
    if (Fault fault = fault_of(*found->second); fault.kind != FaultKind::kNone) return fault;
  }
  return {};
}

void Context::fail(const RequestPtr& request, starling_status status, const std::string& message) {
  if (request->complete(status, message) && request->has_callback()) callbacks_.push(request);
}

bool Context::drain(const std::vector<LaneKey>& keys, uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  auto idle = [&] {
    return std::none_of(keys.begin(), keys.end(), [&](const LaneKey& key) {
      const auto found = lanes_.find(key);
      return found != lanes_.end() && found->second->busy();
    });
  };
  const uint64_t deadline = cpu::monotonic_ns() + timeout_ns;
  while (!idle()) {
    if (cpu::monotonic_ns() > deadline) return false;
    drained_.wait_for(lock, std::chrono::milliseconds(1));
  }
  return true;
}

void Context::add_hook(PollHook* hook) {
  std::lock_guard lock(hooks_mutex_);
  hooks_.push_back(hook);
  ++hook_count_;
}

void Context::remove_hook(PollHook* hook) {
  std::lock_guard lock(hooks_mutex_);
  hook_count_ -= uint32_t(std::erase(hooks_, hook));
}

void Context::statistics(starling_statistics& out) {
  std::lock_guard lock(mutex_);
  out.submissions = submissions_;
  out.completions = completions_;
  DaemonMemory* daemon = memory_.daemon();
  for (uint32_t b = 0; b < block_count(); ++b) {
    const BlockCounters& c = daemon->blocks[b].counters;
    out.launches += c.launches;
    out.quits_idle += c.quits_idle;
    out.quits_stuck += c.quits_stuck;
    out.quits_drained += c.quits_drained;
    out.parks += c.parks;
    out.resumes += c.resumes;
    out.context_saves += c.saves;
    out.context_loads += c.loads;
    out.instructions += c.instructions;
    out.queue_peak = std::max(out.queue_peak, c.queue_peak);
    out.pool_slots += daemon->blocks[b].pool.capacity;
    out.pool_slots_used += daemon->blocks[b].pool.capacity - daemon->blocks[b].pool.free_count;
  }
  out.lanes = lanes_.size();
  for (const auto& [key, lane] : lanes_) out.lane_bytes += lane->region_bytes() + lane->host_bytes();
}

void Context::trace(std::vector<starling_trace_record>& out) {
  DaemonMemory* daemon = memory_.daemon();
  for (uint32_t b = 0; b < block_count(); ++b) {
    const TraceRing& ring = daemon->blocks[b].trace;
    const uint64_t end = host_machine_.load_acquire(&ring.written);
    for (uint64_t k = end > ring.capacity ? end - ring.capacity : 0; k < end; ++k) {
      const TraceRecord& r = ring.records[k & (ring.capacity - 1)];
      const uint64_t ticks = host_machine_.load_relaxed(&r.ticks);
      const uint64_t sequence = host_machine_.load_relaxed(&r.sequence);
      const uint64_t detail = host_machine_.load_relaxed(&r.detail);
      const uint64_t what = host_machine_.load_relaxed(reinterpret_cast<const uint64_t*>(&r.lane));
      // Overrun while we read: the block may have begun the record after the last one it finished.
      if (host_machine_.load_acquire(&ring.written) - k >= ring.capacity) continue;
      out.push_back({ticks, sequence, detail, uint32_t(what), b, uint32_t(what >> 32) & 0xff, 0});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
}

std::string Context::lane_name(uint32_t id) {
  std::lock_guard lock(mutex_);
  return id < lanes_by_id_.size() && lanes_by_id_[id] ? lanes_by_id_[id]->name() : "";
}

}  // namespace starling
