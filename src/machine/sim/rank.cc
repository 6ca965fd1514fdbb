// long: the fibers of one rank (application, poller, daemon blocks) share its state and are read together.
#include "machine/sim/rank.h"

#include <algorithm>
#include <utility>

namespace starling::sim {

Scheduling scheduling_of(const Options& o) {
  return {o.initial_budget,  o.minimum_budget, o.maximum_budget, o.quit_period,
          o.residency_limit, o.success_factor, o.position_shift, o.fetch_batch,
          o.priority_order,  o.unbounded,      o.in_turn};
}

// ---- memory -------------------------------------------------------------------------------------------

// What a seed leaves behind goes, but for memory: the next one finds it at the same addresses.
void Rank::forget() {
  Rank fresh;
  fresh.lanes_ = std::move(lanes_);
  fresh.lane_of_ = std::move(lane_of_);
  fresh.groups_ = std::move(groups_);
  fresh.threads_ = std::move(threads_);
  fresh.block_states_ = std::move(block_states_);
  fresh.host_clock_ = std::move(host_clock_);
  fresh.device_clock_ = std::move(device_clock_);
  fresh.callbacks_ = std::move(callbacks_);
  fresh.connect_after_ = std::move(connect_after_);
  *this = std::move(fresh);
}

void Rank::build(Cluster& cluster, uint32_t index) {
  forget();
  c_ = &cluster;
  w_ = cluster.world;
  index_ = index;
  const Options& o = *c_->options;
  const Program& program = *c_->program;
  const uint32_t lane_count = uint32_t(program.lanes.size());
  Region& region = w_->memory.region();
  daemon_ = region.make<DaemonMemory>();
  completions_ = region.make<device::CompletionMemory>();
  daemon_->block_count = o.blocks;
  daemon_->blocks = region.make<BlockMemory>(o.blocks);
  daemon_->submissions.capacity = o.submission_capacity;
  daemon_->submissions.entries = region.make<uint64_t>(o.submission_capacity);
  daemon_->submissions.heads = region.make<uint64_t>(o.blocks * SubmissionRing::kHeadStride);
  daemon_->scheduling = scheduling_of(o);
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
    block.unpublished = region.make<uint64_t>(uint64_t(lane_count) * kLaneDepth);
    block.pool = {region.make<uint32_t>(o.pool_slots + 1), 0, 0};
    for (uint32_t s = b; s < o.pool_slots; s += o.blocks)
      block.pool.free[block.pool.free_count++] = kPoolSlot + s;
    block.pool.capacity = block.pool.free_count;
  }
  lanes_.resize(lane_count);
  lane_of_.assign(lane_count, nullptr);
  callbacks_.assign(lane_count, 0);
  connect_after_.assign(lane_count, 0);
  for (uint32_t k = 0; k < lane_count; ++k) {
    const LaneSpec& spec = program.lanes[k];
    const auto member = std::find(spec.ranks.begin(), spec.ranks.end(), index);
    if (member == spec.ranks.end()) continue;
    const uint32_t rank_in_lane = uint32_t(member - spec.ranks.begin());
    lanes_[k].build(*w_, o, spec, k, rank_in_lane, program.depth(k), pool_);
    lane_of_[k] = &lanes_[k];
    Lane**& segment = daemon_->segments[k / kLaneSegment];
    if (segment == nullptr) segment = region.make<Lane*>(kLaneSegment);
    segment[k % kLaneSegment] = &lanes_[k].core();
    c_->lanes[k][rank_in_lane] = &lanes_[k];
  }
}

void Rank::add_fibers() {
  const Options& o = *c_->options;
  Scheduler& scheduler = w_->scheduler;
  app_fiber_ = scheduler.add(index_, &run_application, this);
  poller_fiber_ = scheduler.add(index_, &run_poller, this);
  const uint32_t units = o.blocks + 1;
  w_->memory.set_unit(app_fiber_, index_ * units);
  w_->memory.set_unit(poller_fiber_, index_ * units);
  groups_.assign(o.blocks, {});
  block_states_.resize(o.blocks);
  threads_.clear();
  threads_.reserve(o.blocks * o.threads);
  for (uint32_t b = 0; b < o.blocks; ++b) {
    block_states_[b] = w_->memory.region().allocate(c_->core->block_state_bytes);
    groups_[b].threads = o.threads;
    groups_[b].unit = index_ * units + 1 + b;
    if (o.trace_capacity) {
      TraceRing& ring = daemon_->blocks[b].trace;
      trace_.emplace_back(o.trace_capacity);
      ring.capacity = o.trace_capacity;
      ring.records = trace_.back().data();
      groups_[b].trace_written = &ring.written;
    }
    for (uint32_t t = 0; t < o.threads; ++t) {
      threads_.push_back({this, b, t, 0, 0});
      const uint32_t fiber = scheduler.add(index_, &run_thread, &threads_.back());
      threads_.back().fiber = groups_[b].fibers[t] = fiber;
      w_->memory.set_unit(fiber, groups_[b].unit);
    }
  }
  Memory& memory = w_->memory;
  for (uint64_t* word : {&daemon_->drain, &daemon_->exited, &completions_->tail, &completions_->lock,
                         &completions_->head_seen})
    memory.allow_many_writers(word);
  for (uint32_t e = 0; e < o.completion_capacity; ++e) memory.allow_many_writers(&completions_->entries[e]);
  for (SimLane* lane : lane_of_) {
    if (lane == nullptr) continue;
    memory.allow_many_writers(lane->fault());
    for (uint32_t s = 0; s < kLaneDepth; ++s) memory.allow_many_writers(&lane->core().finished[s]);
  }
}

void Rank::begin() {
  host_clock_.assign(w_->memory.width(), 0);
  device_clock_.assign(w_->memory.width(), 0);
}

// ---- the application ----------------------------------------------------------------------------------

void Rank::application() {
  Scheduler& scheduler = w_->scheduler;
  const Options& o = *c_->options;
  if (o.core_only) return explored_application();
  if (scheduler.random().chance(o.late_rank_chance)) {
    scheduler.note_deadline(scheduler.now() + scheduler.random().skewed(o.late_rank_ns));
    scheduler.sleep();
  }
  for (const Step& step : c_->program->steps[index_]) {
    switch (step.kind) {
      case StepKind::kSubmit: submit(step.lane); break;
      case StepKind::kSynchronize: synchronize(); break;
      case StepKind::kWait: wait_for_all(); break;
      case StepKind::kPause:
        scheduler.note_deadline(scheduler.now() + step.ns);
        scheduler.sleep();
        break;
      default: scheduler.fail("a step of a program with streams");
    }
    scheduler.note_progress();
  }
  wait_for_all();
  app_ended_ = true;
  scheduler.wake(poller_fiber_);
}

void Rank::submit(uint32_t number) {
  SimLane& lane = *lane_of_[number];
  lock();
  // Perhaps the callback of the lane's operation under way submits this one.
  if (lane.submitted() > lane.completed() && w_->scheduler.random().chance(c_->options->callback_submits))
    ++callbacks_[number];
  else
    submit_locked(lane);
  unlock();
}

void Rank::submit_locked(SimLane& lane) {
  SimMachine host(*w_, nullptr, 0, 0);
  const uint32_t number = lane.core().id;
  if (!lane.is_open()) {
    lane.open(host);
    connect_after_[number] =
        w_->scheduler.now() + w_->scheduler.random().skewed(c_->options->connect_delay_ns);
  }
  if (!lane.resolved() && w_->scheduler.now() >= connect_after_[number])
    lane.resolve(host, c_->lanes[number]);
  if (lane.broken) return;  // the caller gets an error at once
  lane.submit(w_->scheduler.now());
  ++submitted_;
  feed(lane);
  launch_if_wanted(true);
  w_->scheduler.wake(poller_fiber_);
}

void Rank::feed(SimLane& lane) {
  while (lane.has_work_for_core()) unsubmitted_.push_back(lane.place(c_->options->first_sequence));
  flush();
}

void Rank::flush() {
  SimMachine host(*w_, nullptr, 0, 0);
  while (!unsubmitted_.empty() &&
         c_->core->push(host, daemon_->submissions, c_->options->blocks, unsubmitted_.front()))
    unsubmitted_.pop_front();
}

// What blocks a GPU: nothing is launched until all that runs has left (DFCCL §2.3).
void Rank::synchronize() {
  lock();
  ++synchronizations_;
  synchronizing_ = resident_ > 0;
  unlock();
  while (resident_ > 0) w_->scheduler.sleep();
  synchronizing_ = false;
  w_->scheduler.wake(poller_fiber_);
}

void Rank::wait_for_all() {
  auto waiting = [&] {
    return outstanding() > 0 ||
           std::any_of(callbacks_.begin(), callbacks_.end(), [](uint32_t n) { return n > 0; });
  };
  while (waiting()) w_->scheduler.sleep();
  lock();
  unlock();
}

// ---- the poller ---------------------------------------------------------------------------------------

void Rank::poller() {
  Scheduler& scheduler = w_->scheduler;
  if (c_->options->core_only) return;
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

bool Rank::poll_once() {
  if (!unsubmitted_.empty()) flush();
  connect();
  const bool any = drain_completions();
  if (c_->options->timeout_ns) check_timeouts();
  if (resident_ > 0 && w_->scheduler.random().chance(c_->options->drain_chance)) {
    SimMachine host(*w_, nullptr, 0, 0);
    host.store_release(&daemon_->drain, launch_);
  }
  launch_if_wanted(false);
  return any;
}

bool Rank::drain_completions() {
  SimMachine host(*w_, nullptr, 0, 0);
  bool any = false;
  for (uint64_t token = 0; c_->core->pop(host, c_->options->completion_kind, completions_, token); any = true)
    completed(token);
  return any;
}

void Rank::completed(uint64_t token) {
  Scheduler& scheduler = w_->scheduler;
  const uint64_t number = (token >> 28) - 1;
  if (number >= lane_of_.size() || lane_of_[number] == nullptr)
    scheduler.fail("rank " + std::to_string(index_) + ": a completion that names no lane");
  SimLane& lane = *lane_of_[number];
  const uint64_t index = lane.index_of(token);
  SimMachine host(*w_, nullptr, 0, 0);
  const bool faulty = host.load_acquire(lane.fault()) != 0;
  const std::string wrong = lane.complete(index, faulty, c_->expected[number]);
  if (!wrong.empty())
    scheduler.fail("rank " + std::to_string(index_) + ", lane " + std::to_string(number) + ", operation " +
                   std::to_string(index) + ": " + wrong);
  ++completed_;
  ++c_->completed[number];
  scheduler.note_progress();
  if (faulty) fail_waiting(lane);
  if (callbacks_[number] > 0) {
    --callbacks_[number];
    submit_locked(lane);
  }
  feed(lane);
  scheduler.wake(app_fiber_);
}

void Rank::connect() {
  SimMachine host(*w_, nullptr, 0, 0);
  for (uint32_t k = 0; k < lane_of_.size(); ++k) {
    SimLane* lane = lane_of_[k];
    if (lane == nullptr || !lane->is_open() || lane->resolved()) continue;
    if (w_->scheduler.now() < connect_after_[k])
      w_->scheduler.note_deadline(connect_after_[k]);
    else
      lane->resolve(host, c_->lanes[k]);
  }
}

void Rank::check_timeouts() {
  const uint64_t now = w_->scheduler.now();
  for (SimLane* lane : lane_of_) {
    if (lane == nullptr || lane->submitted() == lane->completed()) continue;
    SimMachine host(*w_, nullptr, 0, 0);
    if (host.load_acquire(lane->fault()) != 0) {
      fail_waiting(*lane);
      continue;
    }
    const uint64_t deadline = lane->oldest_submission() + c_->options->timeout_ns;
    if (now >= deadline)
      break_lane(*lane);
    else
      w_->scheduler.note_deadline(deadline);
  }
}

// Here and on all peers, so that nobody waits for it any more.
void Rank::break_lane(SimLane& lane) {
  SimMachine host(*w_, nullptr, 0, 0);
  for (SimLane* peer : c_->lanes[lane.core().id])
    if (host.load_acquire(peer->fault()) == 0) host.store_release(peer->fault(), 1);
  fail_waiting(lane);
}

void Rank::fail_waiting(SimLane& lane) {
  lane.broken = true;
  const uint64_t before = lane.submitted();
  lane.drop_waiting();
  submitted_ -= before - lane.submitted();
  callbacks_[lane.core().id] = 0;
  w_->scheduler.wake(app_fiber_);
}

bool Rank::ended() {
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
void Rank::launch_if_wanted(bool at_once) {
  if (resident_ > 0 || synchronizing_ || c_->options->core_only) return;
  if (outstanding() == 0 && (!exit_pushed_ || exited_)) return;
  if (at_once || w_->scheduler.now() >= restart_at_)
    launch();
  else
    w_->scheduler.note_deadline(restart_at_);
}

void Rank::launch() {
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
    const uint64_t delay = scheduler.random().skewed(c_->options->launch_delay_ns);
    for (Thread& thread : threads_)
      if (thread.block == b && scheduler.fiber(thread.fiber).state == FiberState::kBlocked)
        scheduler.resume(thread.fiber, delay);
  }
}

void Rank::block_thread(Thread& thread) {
  Scheduler& scheduler = w_->scheduler;
  Memory& memory = w_->memory;
  SimMachine machine(*w_, &groups_[thread.block], thread.block, thread.thread);
  if (c_->options->core_only) return explored_block(machine, thread);
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
    const LeaveReason reason = c_->core->run(machine, {daemon_, completions_, c_->options->completion_kind,
                                                       thread.launch, pool_, block_states_[thread.block]});
    left(thread, reason);
  }
}

void Rank::left(const Thread& thread, LeaveReason reason) {
  const uint32_t fiber = thread.fiber;
  Memory& memory = w_->memory;
  memory.fence();
  if (memory.checks()) {
    memory.join(device_clock_.data(), memory.clock(fiber));
    memory.advance(fiber);
  }
  // All leave together: who leaves has raised drain (contract, point 5).
  if (thread.thread == 0 && daemon_->drain < launch_)
    w_->scheduler.fail("rank " + std::to_string(index_) + ": a block left alone, and the others stay");
  if (reason == LeaveReason::kExit) exited_ = true;
  if (--resident_ > 0) return;
  restart_at_ = w_->scheduler.now() + w_->scheduler.random().skewed(c_->options->restart_ns);
  w_->scheduler.wake(poller_fiber_);
  w_->scheduler.wake(app_fiber_);
}

// ---- explored (explore.h) -----------------------------------------------------------------------------

// What is submitted up to a synchronization is one step; the first one comes before all else.
void Rank::explored_application() {
  Scheduler& scheduler = w_->scheduler;
  for (const Step& step : c_->program->steps[index_]) {
    if (step.kind == StepKind::kSynchronize) {
      scheduler.yield();
      ++synchronizations_;
      synchronizing_ = resident_ > 0;
      while (resident_ > 0) scheduler.block();
      synchronizing_ = false;
    } else {
      scheduler.begin_atomic();
      submit_locked(*lane_of_[step.lane]);
      if (w_->memory.checks()) w_->memory.join(device_clock_.data(), w_->memory.clock(app_fiber_));
      w_->memory.fence();
      scheduler.end_atomic();
    }
    resume_blocks();
  }
  submitted_all_ = true;
  resume_blocks();
}

void Rank::resume_blocks() {
  for (Thread& thread : threads_)
    if (w_->scheduler.fiber(thread.fiber).state == FiberState::kBlocked)
      w_->scheduler.resume(thread.fiber, 0);
}

bool Rank::finished_by_core() const {
  return std::all_of(lane_of_.begin(), lane_of_.end(),
                     [](const SimLane* lane) { return lane == nullptr || lane->finished_by_core(); });
}

// No poller: a daemon that leaves is launched again at once, as soon as there is something to do and no
// synchronization waits.
void Rank::explored_block(SimMachine& machine, Thread& thread) {
  Scheduler& scheduler = w_->scheduler;
  while (!submitted_all_ || !finished_by_core()) {
    if (synchronizing_ || finished_by_core()) {
      scheduler.block();
      continue;
    }
    if (w_->memory.checks()) w_->memory.join(w_->memory.clock(thread.fiber), device_clock_.data());
    resident_ = 1;
    thread.launch = ++launch_;
    const LeaveReason reason = c_->core->run(machine, {daemon_, completions_, c_->options->completion_kind,
                                                       launch_, pool_, block_states_[thread.block]});
    w_->memory.fence();
    if (daemon_->drain < launch_) scheduler.fail("a block left without raising drain");
    if (reason == LeaveReason::kExit) scheduler.fail("a block says that it was told to exit");
    scheduler.current().must_expire = false;
    resident_ = 0;
    if (synchronizing_) scheduler.resume(app_fiber_, 0);
  }
  for (uint32_t k = 0; k < lane_of_.size(); ++k)
    while (lane_of_[k] && lane_of_[k]->oldest() < lane_of_[k]->submitted()) {
      const std::string wrong = lane_of_[k]->complete(lane_of_[k]->oldest(), false, c_->expected[k]);
      if (!wrong.empty()) scheduler.fail("lane " + std::to_string(k) + ": " + wrong);
    }
  app_ended_ = true;
}

// ---- the host's lock ----------------------------------------------------------------------------------

void Rank::lock() {
  while (locked_) {
    lock_wanted_ = true;
    w_->scheduler.sleep();
  }
  locked_ = true;
  Memory& memory = w_->memory;
  if (!memory.checks()) return;
  memory.join(memory.clock(w_->scheduler.current_id()), host_clock_.data());
  // Who sees that a daemon has left has seen what it did.
  if (resident_ == 0) memory.join(memory.clock(w_->scheduler.current_id()), device_clock_.data());
}

void Rank::unlock() {
  locked_ = false;
  if (std::exchange(lock_wanted_, false)) {
    w_->scheduler.wake(app_fiber_);
    w_->scheduler.wake(poller_fiber_);
  }
  Memory& memory = w_->memory;
  memory.fence();
  if (!memory.checks()) return;
  memory.join(host_clock_.data(), memory.clock(w_->scheduler.current_id()));
  memory.advance(w_->scheduler.current_id());
}

// ---- for reports --------------------------------------------------------------------------------------

std::string Rank::describe(const void* address) const {
  const std::string here = ", rank " + std::to_string(index_);
  for (const SimLane* lane : lane_of_) {
    if (lane == nullptr) continue;
    const std::string text = lane->describe(address);
    if (!text.empty()) return text + here;
  }
  const auto* p = static_cast<const std::byte*>(address);
  auto within = [&](const auto* object, uint64_t count) {
    return p >= reinterpret_cast<const std::byte*>(object) &&
           p < reinterpret_cast<const std::byte*>(object + count);
  };
  const SubmissionRing& ring = daemon_->submissions;
  if (within(ring.entries, ring.capacity)) return "submission queue's entry" + here;
  if (within(ring.heads, daemon_->block_count * SubmissionRing::kHeadStride))
    return "submission queue's head" + here;
  if (within(&daemon_->drain, 1)) return "drain" + here;
  if (within(&daemon_->exited, 1)) return "exited" + here;
  if (within(completions_, 1) || within(completions_->head, 1)) return "completion queue" + here;
  if (within(completions_->entries, completions_->capacity)) return "completion queue's entry" + here;
  if (within(daemon_->blocks, daemon_->block_count)) return "block's memory" + here;
  if (within(pool_, uint64_t(c_->options->pool_slots) * c_->options->slot_bytes)) return "pool slot" + here;
  return "";
}

std::string Rank::leftovers() const {
  const std::string who = "rank " + std::to_string(index_) + ": ";
  const bool whole = std::none_of(lanes_.begin(), lanes_.end(), [](const SimLane& l) { return l.broken; });
  for (uint32_t b = 0; b < daemon_->block_count; ++b) {
    const BlockMemory& block = daemon_->blocks[b];
    if (block.task_count > 0) return who + "a task is left in the queue";
    if (block.unpublished_count > 0) return who + "a completion was never published";
    if (whole && block.pool.free_count != block.pool.capacity)
      return who + std::to_string(block.pool.capacity - block.pool.free_count) +
             " pool slots did not come home";
  }
  for (uint32_t k = 0; k < lane_of_.size(); ++k) {
    if (lane_of_[k] == nullptr || lane_of_[k]->broken) continue;
    if (lane_of_[k]->submitted() == 0) continue;
    const std::string leak = lane_of_[k]->leaks(c_->lanes[k]);
    if (!leak.empty()) return who + "lane " + std::to_string(k) + ": " + leak;
  }
  return "";
}

uint64_t Rank::host_hash() const {
  uint64_t hash = hash_combine(submitted_ << 32 | completed_, launch_ << 32 | resident_);
  hash =
      hash_combine(hash, uint64_t(locked_) | uint64_t(synchronizing_) << 1 | uint64_t(app_ended_) << 2 |
                             uint64_t(exit_pushed_) << 3 | uint64_t(exited_) << 4 | uint64_t(ending_) << 5 |
                             uint64_t(submitted_all_) << 6 | uint64_t(unsubmitted_.size()) << 8);
  for (const SimLane* lane : lane_of_)
    if (lane != nullptr) hash = hash_combine(hash, lane->submitted() << 32 | lane->oldest());
  return hash;
}

std::string Rank::state() const {
  std::string text = "rank " + std::to_string(index_) + ": " + std::to_string(completed_) + " of " +
                     std::to_string(submitted_) + " operations complete, " +
                     (app_ended_ ? "application ended" : "application under way") + ", " +
                     (resident_ ? "daemon resident" : "no daemon") +
                     (synchronizing_ ? ", synchronizing" : "");
  for (uint32_t b = 0; b < daemon_->block_count; ++b) {
    const BlockMemory& block = daemon_->blocks[b];
    text += "; block " + std::to_string(b) + " has tasks";
    for (uint32_t t = 0; t < block.task_count; ++t) {
      const LaneBlock& part = daemon_->segments[0][block.tasks[t].lane]->blocks[b];
      text += " " + std::to_string(block.tasks[t].lane) + "(" + std::to_string(part.context.tile) + "," +
              std::to_string(part.context.instruction) + ")";
    }
  }
  return text;
}

}  // namespace starling::sim
