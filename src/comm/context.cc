#include "comm/context.h"

#include <algorithm>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/room.h"
#include "base/thread.h"
#include "comm/device.h"
#include "comm/job_store.h"
#include "comm/offer.h"
#include "device/submission_queue.h"
#include "machine/cpu/lock_soon.h"
#include "monitor/publish.h"

namespace starling {
namespace {

constexpr uint64_t kEndingNs = 2'000'000'000;  // a context that is destroyed waits so long for its work

// Ranks usually outnumber cores where this machine is used: look a few times, then let others run.
cpu::WaitPolicy wait_policy() {
  return {.spins = 32, .idle_spins = 2, .idle_yields = 4, .sleep_ns = 300'000};
}

std::unique_ptr<cpu::Arena> make_arena(const starling_context_options& options) {
  remove_stale_job_files();
  cpu::remove_stale_arenas();
  monitor::remove_old_flights();
  const uint64_t bytes = options.arena_bytes ? options.arena_bytes : uint64_t(settings().arena_bytes);
  return std::make_unique<cpu::Arena>(cpu::Arena::Sizes{bytes});
}

uint32_t block_count_of(const starling_context_options& options, const Place& place) {
  if (options.blocks != 0) return options.blocks;
  return settings().blocks != 0 ? uint32_t(settings().blocks) : place.traits().default_blocks;
}

}  // namespace

Context::Context(const starling_context_options& options)
    : arena_(make_arena(options)),
      place_(make_place(options.device, *arena_, wait_policy())),
      disposal_(on_gpu() ? std::make_shared<Disposal>() : nullptr),
      flight_({arena_->name(), place_->name(), block_count_of(options, *place_)}),
      memory_(block_count_of(options, *place_), scheduling_from(options.scheduling), options.completion_queue,
              *place_),
      shelf_(*place_),
      host_machine_(0, wait_policy(), &arena_->header()->host, nullptr) {
  ArenaHeader* header = arena_->header();
  header->pool_slot_bytes = place_->traits().slot_bytes_limit;
  header->blocks = block_count();
  const Pool pool =
      place_->make_pool(options.pool_bytes ? options.pool_bytes : uint64_t(settings().pool_bytes));
  header->pool_offset = pool.offset;
  header->pool_slots = pool.slots;
  memory_.share_pool(pool.slots);
  monitor::publish_rank(*arena_, {place_->name(), uint64_t(settings().window), memory_.counters(),
                                  block_count(), sizeof(BlockMemory)});
  executor_ = place_->start(memory_.start());
  if (StreamOperations* streams = executor_->streams(); streams != nullptr && !streams->shares_queue())
    for (uint32_t k = 0; k < device::kCallBoxes; ++k)
      call_streams_.push_back({streams->make_stream(true), false});
  poller_ = start_thread("st-poller", [this] { run_poller(); });
}

Context::~Context() {
  {
    std::unique_lock lock(mutex_);
    drained_.wait_for(lock, std::chrono::nanoseconds(kEndingNs), [&] { return under_way_ == 0; });
    // The exiting submission: the daemon leaves for good once its queue is empty.
    unsubmitted_.push_back({});
    flush_submissions();
  }
  // Release: the exiting submission; pairs with the acquire in run_poller().
  ending_.store(true, std::memory_order_release);
  cpu::futex_wake_all(&arena_->header()->host.event);
  cpu::ring(&arena_->header()->host);
  poller_.join();  // first: it asks the executor whether lanes are out of use
  hook_thread_.reset();
  late_start_.end();
  copies_.reset();
  // A watch is a kernel of ours: what is still under way, or comes later, must not find that its memory is
  // gone.
  if (settings().guard == Guard::kWatch) for_all_lanes([this](HostLane& lane) { release_streams(lane); });
  executor_.reset();
  poll_once();
  end_everything();
}

HostLane& Context::lane(const LaneKey& key, const std::string& name, uint32_t rank,
                        const std::vector<Member>& members, LaneUse use, HostLane* control,
                        const monitor::FlightPlace& place) {
  std::lock_guard lock(mutex_);
  return find_or_make({key, name, 0, rank, members, block_count(), place_->traits().slot_bytes_limit, true,
                       use == LaneUse::kAnySize, control, place, false, use == LaneUse::kRegistered});
}

HostLane& Context::twin(const LaneKey& key, const std::string& name, const HostLane& lane) {
  std::lock_guard lock(mutex_);
  LaneOptions options = lane.options();
  options.key = key;
  options.name = name;
  options.registered = false;
  return find_or_make(std::move(options));
}

HostLane& Context::find_or_make(LaneOptions options) {
  const LaneKey key = options.key;
  std::unique_ptr<HostLane>& lane = lanes_[key];
  if (lane != nullptr) return *lane;
  uint32_t id = uint32_t(lanes_by_id_.size());
  if (!free_ids_.empty()) {
    id = free_ids_.back();
    free_ids_.pop_back();
  } else if (id == place_->traits().lane_limit) {
    lanes_.erase(key);
    throw Error(Code::exhausted, "a rank can have " + std::to_string(id) + " lanes",
                "destroy communicators, or use fewer names and tags");
  } else {
    lanes_by_id_.push_back(nullptr);
  }
  options.id = id;
  lane = std::make_unique<HostLane>(options, *arena_, *place_, shelf_);
  lanes_by_id_[id] = lane.get();
  flight_.open_lane(id, {options.key.low, options.key.high, options.name, uint32_t(options.members.size()),
                         options.rank, options.place});
  return *lane;
}

HostLane& Context::control_lane(const LaneKey& key, const std::string& name, uint32_t rank,
                                const std::vector<Member>& members, const monitor::FlightPlace& place) {
  std::unique_lock lock(mutex_);
  HostLane& control = find_or_make({key, name, 0, rank, members, block_count(),
                                    place_->traits().slot_bytes_limit, false, false, nullptr, place});
  control.open(0, 0);
  publish(lock, control);
  control.resolve();
  is_broken(control);  // a peer that gave up before could not tell us: now we are told
  return control;
}

void Context::remove_lane(const LaneKey& key) {
  std::unique_lock lock(mutex_);
  faults_of_gone_.erase(key);
  auto found = lanes_.find(key);
  if (found == lanes_.end()) return;
  // Replays that come yet find it broken, before peers hear that our blocks touch nothing of theirs.
  if (HostLane& lane = *found->second; lane.captures() != nullptr && lane.may_replay()) {
    lane.show_fault(uint64_t(FaultKind::kAborted));
    lock.unlock();
    try {
      place_->flush();
    } catch (const Error& error) {  // a device that has failed replays nothing
      log(LogLevel::warn, error.what());
    }
    lock.lock();
    found = lanes_.find(key);
  }
  if (found != lanes_.end()) remove(*found->second);
}

// Under the lock.
void Context::remove(HostLane& lane) {
  if (lane.captures() != nullptr) end_captures(lane);
  lane.close(host_machine_);
  // A stream may still come to a wait for one of its operations.
  if (lane.on_streams()) executor_->streams()->poison(lane.handover(), lane.newest());
  lanes_by_id_[lane.id()] = nullptr;
  flight_.close_lane(lane.id());
  std::erase(connecting_, &lane);
  std::erase(turnless_, &lane);
  std::erase(reading_, &lane);
  if (!lane.busy()) {  // an operation may still stand in a stream
    std::erase(told_, &lane);
    std::erase(meeting_, &lane);
  }
  // Its number is used again when its region is: until then traces may still speak of it.
  const auto found = lanes_.find(lane.key());
  closed_lanes_.push_back(std::move(found->second));
  lanes_.erase(found);
}

// It is under way from here on. Why its buffers cannot be offered, or "".
void Context::count_submitted(HostLane& lane, Flight& flight, const std::string& refused) {
  // Peers have come to this operation to read from us, or will: they are told as well.
  if (!refused.empty())
    starling::break_lane(lane, FaultKind::kMismatch, lane.next_sequence(),
                         "rank " + std::to_string(lane.member(lane.rank()).world_rank) + ": " + refused);
  ++submissions_;
  ++under_way_;
  flight.carried = lane.carried();
  if (flight.carried) proxy_->begin_work();
}

// It has its place in the lane and in the flight record, and peers see the call.
Flight& Context::append(HostLane& lane, Flight&& flight) {
  Flight& appended = lane.append(std::move(flight));
  appended.lane = lane.id();
  appended.record =
      flight_.submitted({lane.id(), appended.sequence, bytes_of(appended.lowered), appended.submitted_ns},
                        appended.lowered.signature);
  post_call(lane);
  return appended;
}

// Under the lock, as what follows. The lane is broken: then so is the operation.
bool Context::refused_by_fault(HostLane& lane, Flight& flight) {
  if (!is_broken(lane)) return false;
  const Fault fault = fault_of(lane);
  record_fault(lane, fault);
  end(flight, status_of(fault.kind), fault.text + " (the lane is broken since then)");
  return true;
}

// Not null: a launch of it is to be put into its stream. `news`: peers have to be told of the lane.
const Flight* Context::take_over(HostLane& lane, Flight&& flight, bool news) {
  const bool left_to_caller = flight.waited || flight.perhaps_waited;
  const bool opens = flight.lowered.opens;
  const bool message = flight.lowered.signature.collective == Collective::kSendRecv;
  const bool for_caller = !flight.on_stream || flight.called;
  Flight& appended = append(lane, std::move(flight));
  if (!left_to_caller && place_->traits().notifies) expect_rings();
  const Flight* entered = nullptr;
  if (appended.on_stream)
    entered = enter_stream(lane, appended);
  else
    guarded_for(lane, [&, now = appended.submitted_ns] { feed(lane, now); });
  connect_soon(lane, opens);
  // The poller is asleep without its bit if a waiter did its work: it has to hear of this one, unless a
  // waiter does its work again, or it looks by itself anyway.
  if (!left_to_caller) {
    const bool lingers = poller_lingers_ && (for_caller || (entered != nullptr && entered->by_rendezvous()));
    if (!std::exchange(poller_looks_, !place_->traits().notifies) || lingers) show_poller();
  }
  if (news)
    ring_peers(lane);
  else if (message)
    ring_receivers(lane);
  return entered;
}

// The poller lets go of it between two completions.
std::unique_lock<QuickMutex> Context::lock_to_submit() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) return lock;
  // Relaxed: a hint.
  submitters_.fetch_add(1, std::memory_order_relaxed);
  lock = cpu::lock_soon(mutex_);
  submitters_.fetch_sub(1, std::memory_order_relaxed);
  return lock;
}

StreamLaunch Context::launch_of(const HostLane& lane, const Flight& flight) const {
  StreamLaunch launch = lane.launch_of(flight);
  launch.scheduling = memory_.scheduling();
  return launch;
}

void Context::submit(HostLane& lane, Flight&& flight) {
  const std::string refused = check_buffers(lane, flight.lowered);
  flight.submit_at(cpu::monotonic_ns());
  if (lane.alone()) return submit_alone(lane, std::move(flight), refused);
  if (lane.by_copies()) return submit_copies(lane, std::move(flight), refused);
  place_->make_room();
  std::unique_lock lock = lock_to_submit();
  lane.prefetch_board();
  if (flight.on_stream) checked_streams();
  if (flight.perhaps_waited) late_start_.begin();
  const bool news = open_lane(lock, lane, flight.lowered);
  if (!flight.on_stream) begin_as_kernel(lane, flight);
  count_submitted(lane, flight, refused);
  if (flight.waited) ++waited_;
  if (flight.perhaps_waited) {
    ++perhaps_waited_;
    perhaps_since_ns_ = flight.submitted_ns;
  }
  if (flight.on_stream) {
    const Departing departing{&lane, &flight};
    prepare_for_stream(lock, {&departing, 1});
  }
  if (refused_by_fault(lane, flight)) return;
  const Flight* const entered = take_over(lane, std::move(flight), news);
  if (entered == nullptr) return;
  const StreamLaunch launch = launch_of(lane, *entered);
  const uint64_t written = entered->written;
  lock.unlock();
  // What a start kernel reads: no submission speaks of it. Without the lock: while we wait, others may need
  // us to complete, or to launch a daemon.
  place_->await(written);
  executor_->streams()->enqueue({&launch, 1});
}

// By the poller: whom it has not met, and what they register.
void Context::connect_soon(HostLane& lane, bool opens) {
  if (!lane.resolved() && std::find(connecting_.begin(), connecting_.end(), &lane) == connecting_.end())
    connecting_.push_back(&lane);
  if (opens && std::find(reading_.begin(), reading_.end(), &lane) == reading_.end())
    reading_.push_back(&lane);
}

void Context::ring_peers(const HostLane& lane) {
  for (uint32_t peer = 0; peer < lane.size(); ++peer)
    if (peer != lane.rank()) cpu::ring(&lane.member(peer).peer.arena->header()->host);
}

// A message may be what an any-source receive waits for. Of other hosts' ranks the proxy need not be woken
// for that: whoever runs the operation looks, or rings when it posts.
void Context::ring_receivers(const HostLane& lane) {
  // The call was posted before, the look comes after; pairs with the fence in count_unmatched().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (uint32_t peer = 0; peer < lane.size(); ++peer) {
    const Peer& there = lane.member(peer).peer;
    if (peer == lane.rank() || there.way != nullptr) continue;
    Doorbell& bell = there.arena->header()->host;
    // Relaxed: nothing is read because of it.
    if (std::atomic_ref<uint32_t>(bell.unmatched).load(std::memory_order_relaxed) != 0) cpu::ring(&bell);
  }
}

void Context::count_unmatched(bool more) {
  std::atomic_ref<uint32_t> unmatched(arena_->header()->host.unmatched);
  // Relaxed: the fence orders it before the look at what senders have posted.
  unmatched.fetch_add(more ? 1 : ~uint32_t(0), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in ring_receivers()
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

void Context::end(Flight& flight, starling_status status, const std::string& message, uint64_t now_ns) {
  if (flight.record != 0)
    flight_.completed(flight.record, flight.lane, uint32_t(status), now_ns ? now_ns : cpu::monotonic_ns());
  if (flight.entered && executor_ != nullptr) executor_->streams()->completed(flight.entry);
  ++completions_;
  --under_way_;
  if (flight.carried) proxy_->end_work();
  if (flight.for_proxy) --for_proxy_;
  if (flight.waited) --waited_;
  if (flight.perhaps_waited) --perhaps_waited_;
  if (under_way_ == 0) drained_.notify_all();
  for (RequestPtr* request : {&flight.request, &flight.second}) {
    if (*request == nullptr || !(*request)->complete(status, message)) continue;
    if ((*request)->callback_is_ours()) callbacks_.push(std::move(*request));
  }
  flight.let_go();
}

Fault Context::first_fault(const std::vector<LaneKey>& keys) {
  std::lock_guard lock(mutex_);
  for (const LaneKey& key : keys) {
    if (const auto gone = faults_of_gone_.find(key); gone != faults_of_gone_.end()) return gone->second;
    const auto found = lanes_.find(key);
    if (found == lanes_.end()) continue;
    if (Fault fault = fault_of(*found->second); fault.kind != FaultKind::kNone) return fault;
  }
  return {};
}

void Context::fail(const RequestPtr& request, starling_status status, const std::string& message) {
  if (request->complete(status, message) && request->callback_is_ours()) callbacks_.push(request);
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
  const std::lock_guard lock(hooks_mutex_);
  if (on_gpu() && hook_thread_ == nullptr)
    hook_thread_ = std::make_unique<CalledThread>(
        "st-hooks", std::vector<std::function<void()>>{[this] { run_hooks_until_all_have_looked(); }});
  hooks_.push_back(hook);
  ++hook_count_;
  // Who rang before found the poller without a hook to call.
  cpu::ring(&arena_->header()->host);
}

void Context::remove_hook(PollHook* hook) {
  std::lock_guard lock(hooks_mutex_);
  hook_count_ -= uint32_t(std::erase(hooks_, hook));
}

Scheduling Context::scheduling() {
  std::lock_guard lock(mutex_);
  return memory_.scheduling();
}

void Context::set_scheduling(const Scheduling& scheduling) {
  {
    const std::lock_guard lock(mutex_);
    memory_.set_scheduling(scheduling);
  }
  place_->flush();
}

void Context::statistics(starling_statistics& out) {
  const std::vector<BlockMemory> blocks = memory_.blocks();
  const std::lock_guard lock(mutex_);
  out.submissions = submissions_;
  out.completions = completions_;
  for (const BlockMemory& block : blocks) {
    const BlockCounters& c = block.counters;
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
    out.pool_slots += block.pool.capacity;
    out.pool_slots_used += block.pool.capacity - block.pool.free_count;
  }
  out.lanes = lanes_.size();
  for (const auto& [key, lane] : lanes_) out.lane_bytes += lane->region_bytes() + lane->host_bytes();
}

void Context::trace(std::vector<starling_trace_record>& out) {
  for (uint32_t b = 0; b < block_count(); ++b) {
    if (memory_.trace_ring(b) == nullptr) continue;
    const TraceRing& ring = *memory_.trace_ring(b);
    // Acquire: pairs with the block's release of `written`; the records before it are there.
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
