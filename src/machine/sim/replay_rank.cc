#include "machine/sim/replay_rank.h"

#include <algorithm>

namespace starling::sim {
namespace {

constexpr uint32_t kTraceRecords = 1 << 20;  // of a block, between two looks at them: most are never touched

}  // namespace

// ---- memory -------------------------------------------------------------------------------------------

void ReplayRank::build(ReplayCluster& cluster, uint32_t index) {
  c_ = &cluster;
  w_ = cluster.world;
  index_ = index;
  build_daemon();
  build_lanes();
}

void ReplayRank::build_daemon() {
  const Options& o = c_->settings->machine;
  const size_t lane_count = c_->mine[index_].size();
  size_t operations = 0;
  for (uint32_t lane : c_->mine[index_]) operations += c_->depth[lane];
  Region& region = w_->memory.region();
  daemon_ = region.make<DaemonMemory>();
  completions_ = region.make<device::CompletionMemory>();
  daemon_->block_count = o.blocks;
  daemon_->blocks = region.make<BlockMemory>(o.blocks);
  daemon_->submissions.capacity = o.submission_capacity;
  daemon_->submissions.entries = region.make<uint64_t>(o.submission_capacity);
  daemon_->submissions.heads = region.make<uint64_t>(o.blocks * SubmissionRing::kHeadStride);
  daemon_->scheduling = {o.initial_budget,  o.minimum_budget, o.maximum_budget, o.quit_period,
                         o.residency_limit, o.success_factor, o.position_shift, o.fetch_batch,
                         o.priority_order,  o.unbounded,      o.in_turn};
  daemon_->submissions.tail = o.first_position;
  completions_->capacity = o.completion_capacity;
  completions_->entries = region.make<uint64_t>(o.completion_capacity);
  const bool ring = o.completion_kind != uint32_t(device::CompletionQueueKind::kSlots);
  completions_->head = region.make<uint64_t>();
  *completions_->head = completions_->head_seen = completions_->tail = ring ? o.first_position : 0;
  pool_ = w_->shadow.slots().allocate(uint64_t(o.pool_slots) * o.slot_bytes);
  for (uint32_t b = 0; b < o.blocks; ++b) {
    BlockMemory& block = daemon_->blocks[b];
    block.submissions_read = daemon_->submissions.heads[b * SubmissionRing::kHeadStride] = o.first_position;
    block.tasks = region.make<Task>(lane_count + 1);
    block.unpublished = region.make<uint64_t>(operations + 1);
    block.pool = {region.make<uint32_t>(o.pool_slots + 1), 0, 0};
    for (uint32_t s = b; s < o.pool_slots; s += o.blocks)
      block.pool.free[block.pool.free_count++] = kPoolSlot + s;
    block.pool.capacity = block.pool.free_count;
  }
}

void ReplayRank::build_lanes() {
  const Options& o = c_->settings->machine;
  const std::vector<uint32_t>& mine = c_->mine[index_];
  lanes_.resize(mine.size());
  for (size_t k = 0; k < mine.size(); ++k) {
    const uint32_t number = mine[k];
    const LaneSpec& spec = c_->program->lanes[number];
    const auto member = std::find(spec.ranks.begin(), spec.ranks.end(), index_);
    const uint32_t rank_in_lane = uint32_t(member - spec.ranks.begin());
    lanes_[k].build(*w_, o, spec, number, rank_in_lane, c_->depth[number], pool_);
    Lane**& segment = daemon_->segments[number / kLaneSegment];
    if (segment == nullptr) segment = w_->memory.region().make<Lane*>(kLaneSegment);
    segment[number % kLaneSegment] = &lanes_[k].core();
    c_->lanes[number][rank_in_lane] = &lanes_[k];
  }
}

SimLane* ReplayRank::find(uint32_t lane) {
  const std::vector<uint32_t>& mine = c_->mine[index_];
  const auto at = std::lower_bound(mine.begin(), mine.end(), lane);
  return at == mine.end() || *at != lane ? nullptr : &lanes_[size_t(at - mine.begin())];
}

void ReplayRank::add_fibers() {
  const Options& o = c_->settings->machine;
  Scheduler& scheduler = w_->scheduler;
  Memory& memory = w_->memory;
  app_fiber_ = scheduler.add(index_, &run_application, this);
  poller_fiber_ = scheduler.add(index_, &run_poller, this);
  const uint32_t units = o.blocks + 1;
  memory.set_unit(app_fiber_, index_ * units);
  memory.set_unit(poller_fiber_, index_ * units);
  groups_.assign(o.blocks, {});
  for (uint32_t b = 0; b < o.blocks; ++b)
    trace_.push_back(std::make_unique_for_overwrite<TraceRecord[]>(kTraceRecords));
  trace_read_.assign(o.blocks, 0);
  threads_.reserve(size_t(o.blocks) * o.threads);
  for (uint32_t b = 0; b < o.blocks; ++b) {
    block_states_.push_back(memory.region().allocate(c_->core->block_state_bytes));
    groups_[b].threads = o.threads;
    groups_[b].unit = index_ * units + 1 + b;
    TraceRing& ring = daemon_->blocks[b].trace;
    ring.capacity = kTraceRecords;
    ring.records = trace_[b].get();
    groups_[b].trace_written = &ring.written;
    for (uint32_t t = 0; t < o.threads; ++t) {
      threads_.push_back({this, b, t, 0, 0});
      const uint32_t fiber = scheduler.add(index_, &run_thread, &threads_.back());
      threads_.back().fiber = groups_[b].fibers[t] = fiber;
      memory.set_unit(fiber, groups_[b].unit);
    }
  }
  for (uint64_t* word : {&daemon_->drain, &daemon_->exited, &completions_->tail, &completions_->lock,
                         &completions_->head_seen})
    memory.allow_many_writers(word);
  for (uint32_t e = 0; e < o.completion_capacity; ++e) memory.allow_many_writers(&completions_->entries[e]);
  for (SimLane& lane : lanes_)
    for (uint32_t s = 0; s < kLaneDepth; ++s) memory.allow_many_writers(&lane.core().finished[s]);
}

void ReplayRank::begin() {
  host_clock_.assign(w_->memory.width(), 0);
  device_clock_.assign(w_->memory.width(), 0);
}

// ---- the application ----------------------------------------------------------------------------------

void ReplayRank::application() {
  Scheduler& scheduler = w_->scheduler;
  for (const Step& step : c_->program->steps[index_]) {
    pace();
    if (step.kind == StepKind::kSubmit)
      submit(step.lane);
    else
      synchronize();
    scheduler.note_progress();
  }
  while (outstanding() > 0) scheduler.sleep();
  lock();
  unlock();
  app_ended_ = true;
  scheduler.wake(poller_fiber_);
}

void ReplayRank::pace() {
  Scheduler& scheduler = w_->scheduler;
  if (c_->settings->pace_ns == 0) return;
  const uint64_t until = scheduler.now() + scheduler.random().between(0, 2 * c_->settings->pace_ns);
  while (scheduler.now() < until) {
    scheduler.note_deadline(until);
    scheduler.sleep();
  }
}

void ReplayRank::submit(uint32_t number) {
  SimLane& lane = *find(number);
  lock();
  if (!lane.is_open()) open(lane);
  lane.submit(w_->scheduler.now());
  ++submitted_;
  feed(lane);
  launch_if_wanted(true);
  unlock();
  w_->scheduler.wake(poller_fiber_);
}

// Lanes appear with their first launch, in any order on each rank; peers learn of it in the background.
void ReplayRank::open(SimLane& lane) {
  SimMachine host(*w_, nullptr, 0, 0);
  const uint32_t number = lane.core().id;
  lane.open(host);
  lane.resolve(host, c_->lanes[number]);
  for (uint32_t peer : lane.spec().ranks) {
    if (peer == index_) continue;
    ReplayRank& other = (*c_->ranks)[peer];
    other.opened_.push_back({number, &lane});
    w_->scheduler.wake(other.poller_fiber_);
  }
}

void ReplayRank::feed(SimLane& lane) {
  while (lane.has_work_for_core()) unsubmitted_.push_back(lane.place(c_->settings->machine.first_sequence));
  flush();
}

void ReplayRank::flush() {
  SimMachine host(*w_, nullptr, 0, 0);
  while (!unsubmitted_.empty() &&
         c_->core->push(host, daemon_->submissions, c_->settings->machine.blocks, unsubmitted_.front()))
    unsubmitted_.pop_front();
}

// What blocks a GPU: nothing is launched until all that runs has left (DFCCL §2.3).
void ReplayRank::synchronize() {
  lock();
  ++synchronizations_;
  synchronizing_ = resident_ > 0;
  unlock();
  while (resident_ > 0) w_->scheduler.sleep();
  synchronizing_ = false;
  w_->scheduler.wake(poller_fiber_);
}

// ---- the poller ---------------------------------------------------------------------------------------

void ReplayRank::poller() {
  Scheduler& scheduler = w_->scheduler;
  for (;;) {
    lock();
    const bool any = poll_once();
    const bool end = ended();
    unlock();
    if (end) break;
    if (any)
      scheduler.step();
    else
      scheduler.sleep();
  }
  ending_ = true;
  for (Thread& thread : threads_)
    if (scheduler.fiber(thread.fiber).state == FiberState::kBlocked) scheduler.resume(thread.fiber, 0);
}

bool ReplayRank::poll_once() {
  if (!unsubmitted_.empty()) flush();
  connect();
  const bool any = drain_completions();
  if (resident_ > 0 && w_->scheduler.random().chance(c_->settings->machine.drain_chance)) {
    SimMachine host(*w_, nullptr, 0, 0);
    host.store_release(&daemon_->drain, launch_);
  }
  launch_if_wanted(false);
  return any;
}

bool ReplayRank::drain_completions() {
  SimMachine host(*w_, nullptr, 0, 0);
  bool any = false;
  count_parks();
  for (uint64_t token = 0; c_->core->pop(host, c_->settings->machine.completion_kind, completions_, token);
       any = true)
    completed(token);
  return any;
}

void ReplayRank::completed(uint64_t token) {
  Scheduler& scheduler = w_->scheduler;
  const uint32_t number = uint32_t((token >> 28) - 1);
  const auto fail = [&](const std::string& why) {
    scheduler.fail("rank " + std::to_string(index_) + ", lane " + std::to_string(number) + ": " + why);
  };
  SimLane* lane = find(number);
  if (lane == nullptr) fail("a completion that names none of its lanes");
  const uint64_t index = lane->index_of(token);
  const std::string wrong = lane->complete(index, false, c_->expected[number]);
  if (!wrong.empty()) fail(wrong);
  ++completed_;
  ++c_->completed;
  scheduler.note_progress();
  feed(*lane);
  scheduler.wake(app_fiber_);
}

void ReplayRank::connect() {
  SimMachine host(*w_, nullptr, 0, 0);
  for (size_t left = opened_.size(); left > 0; --left) {
    const Opened news = opened_.front();
    opened_.pop_front();
    // The news may come before the store that it tells of: look again when that is visible.
    if (host.load_acquire(news.by->opened()) == 0) {
      opened_.push_back(news);
      continue;
    }
    // A lane that is not open here connects when it opens.
    SimLane& lane = *find(news.lane);
    if (lane.is_open()) lane.resolve(host, c_->lanes[news.lane]);
  }
}

bool ReplayRank::ended() {
  if (!app_ended_ || outstanding() > 0) return false;
  if (!exit_pushed_) {
    exit_pushed_ = true;
    unsubmitted_.push_back(Submission{0, 0, 0, 0, 0});
  }
  flush();
  launch_if_wanted(true);
  return exited_ && resident_ == 0;
}

// ---- launches -----------------------------------------------------------------------------------------

// By a submission at once; by the poller when a daemon left work behind (DFCCL §4.4).
void ReplayRank::launch_if_wanted(bool at_once) {
  if (resident_ > 0 || synchronizing_) return;
  if (outstanding() == 0 && (!exit_pushed_ || exited_)) return;
  if (at_once || w_->scheduler.now() >= restart_at_)
    launch();
  else
    w_->scheduler.note_deadline(restart_at_);
}

void ReplayRank::launch() {
  Scheduler& scheduler = w_->scheduler;
  ++launch_;
  resident_ = uint32_t(threads_.size());
  Memory& memory = w_->memory;
  memory.fence();
  if (memory.checks()) {
    memory.join(device_clock_.data(), memory.clock(scheduler.current_id()));
    memory.advance(scheduler.current_id());
  }
  for (uint32_t b = 0; b < groups_.size(); ++b) {
    const uint64_t delay = scheduler.random().skewed(c_->settings->machine.launch_delay_ns);
    for (Thread& thread : threads_)
      if (thread.block == b && scheduler.fiber(thread.fiber).state == FiberState::kBlocked)
        scheduler.resume(thread.fiber, delay);
  }
}

void ReplayRank::block_thread(Thread& thread) {
  Scheduler& scheduler = w_->scheduler;
  Memory& memory = w_->memory;
  SimMachine machine(*w_, &groups_[thread.block], thread.block, thread.thread);
  while (!ending_) {
    if (thread.launch == launch_) {
      scheduler.block();
      continue;
    }
    thread.launch = launch_;
    if (memory.checks()) {
      memory.join(memory.clock(thread.fiber), device_clock_.data());
      memory.touch(thread.fiber);
    }
    const LeaveReason reason =
        c_->core->run(machine, {daemon_, completions_, c_->settings->machine.completion_kind, thread.launch,
                                pool_, block_states_[thread.block]});
    left(thread, reason);
  }
}

void ReplayRank::left(const Thread& thread, LeaveReason reason) {
  const uint32_t fiber = thread.fiber;
  Memory& memory = w_->memory;
  memory.fence();
  if (memory.checks()) {
    memory.join(device_clock_.data(), memory.clock(fiber));
    memory.advance(fiber);
  }
  // All leave together: who leaves has raised drain. (The others of its block may not see the leader's store
  // yet.)
  if (thread.thread == 0 && daemon_->drain < launch_)
    w_->scheduler.fail("rank " + std::to_string(index_) + ": a block left alone, and the others stay");
  if (reason == LeaveReason::kExit) exited_ = true;
  count_parks();
  // One block decides, the others are drained by it; drained are all where the host did it.
  if (reason != LeaveReason::kDrained) reason_ = reason;
  if (--resident_ > 0) return;
  stuck_quits_ += reason_ == LeaveReason::kStuck;
  idle_quits_ += reason_ == LeaveReason::kIdle;
  limited_quits_ += reason_ == LeaveReason::kResidency || reason_ == LeaveReason::kDrained;
  reason_ = LeaveReason::kDrained;
  restart_at_ = w_->scheduler.now() + w_->scheduler.random().skewed(c_->settings->machine.restart_ns);
  w_->scheduler.wake(poller_fiber_);
  w_->scheduler.wake(app_fiber_);
}

// What blocks did since the last look.
void ReplayRank::count_parks() {
  for (uint32_t b = 0; b < trace_.size(); ++b) {
    const TraceRing& ring = daemon_->blocks[b].trace;
    if (ring.written - trace_read_[b] > kTraceRecords)
      w_->scheduler.fail("rank " + std::to_string(index_) +
                         ": records of parks were lost; raise kTraceRecords");
    for (uint64_t& k = trace_read_[b]; k < ring.written; ++k) {
      const TraceRecord& record = ring.records[k & (ring.capacity - 1)];
      if (record.event == TraceEvent::kPark) ++c_->parks[record.lane];
    }
  }
}

// ---- the host's lock ----------------------------------------------------------------------------------

void ReplayRank::lock() {
  while (locked_) w_->scheduler.yield();
  locked_ = true;
  Memory& memory = w_->memory;
  if (!memory.checks()) return;
  memory.join(memory.clock(w_->scheduler.current_id()), host_clock_.data());
  // Who sees that a daemon has left has seen what it did.
  if (resident_ == 0) memory.join(memory.clock(w_->scheduler.current_id()), device_clock_.data());
}

void ReplayRank::unlock() {
  locked_ = false;
  Memory& memory = w_->memory;
  memory.fence();
  if (!memory.checks()) return;
  memory.join(host_clock_.data(), memory.clock(w_->scheduler.current_id()));
  memory.advance(w_->scheduler.current_id());
}

// ---- for reports --------------------------------------------------------------------------------------

std::string ReplayRank::leftovers() const {
  const std::string who = "rank " + std::to_string(index_) + ": ";
  for (uint32_t b = 0; b < daemon_->block_count; ++b) {
    const BlockMemory& block = daemon_->blocks[b];
    if (block.task_count > 0) return who + "a task is left in the queue";
    if (block.unpublished_count > 0) return who + "a completion was never published";
    if (block.pool.free_count != block.pool.capacity) return who + "pool slots did not come home";
  }
  for (const SimLane& lane : lanes_) {
    if (lane.submitted() != lane.completed()) return who + "an operation did not complete";
    if (lane.submitted() == 0) continue;
    const std::string leak = lane.leaks(c_->lanes[c_->mine[index_][size_t(&lane - lanes_.data())]]);
    if (!leak.empty()) return who + leak;
  }
  return "";
}

std::string ReplayRank::state() const {
  std::string text = "rank " + std::to_string(index_) + ": " + std::to_string(completed_) + " of " +
                     std::to_string(submitted_) + " launches complete, " +
                     (app_ended_ ? "application ended" : "application under way") + ", " +
                     (resident_ ? "daemon resident" : "no daemon") +
                     (synchronizing_ ? ", synchronizing" : "");
  const BlockMemory& block = daemon_->blocks[0];
  text += "; lanes in the queue:";
  for (uint32_t t = 0; t < std::min<uint32_t>(block.task_count, 8); ++t)
    text += " " + std::to_string(block.tasks[t].lane);
  return text + (block.task_count > 8 ? " ..." : "");
}

void ReplayRank::add_to(ReplayReport& report) const {
  report.total.launches += launch_;
  report.total.synchronizations += synchronizations_;
  report.total.quits += launch_ > 0 ? launch_ - 1 : 0;
  report.stuck_quits += stuck_quits_;
  report.idle_quits += idle_quits_;
  report.limited_quits += limited_quits_;
  for (uint32_t b = 0; b < daemon_->block_count; ++b) {
    const BlockCounters& counters = daemon_->blocks[b].counters;
    report.total.instructions += counters.instructions;
    report.total.parks += counters.parks;
    report.total.saves += counters.saves;
  }
}

}  // namespace starling::sim
