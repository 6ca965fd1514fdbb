#include "machine/sim/rank.h"

#include <algorithm>

namespace starling::sim {

void Rank::build(Cluster& cluster, uint32_t index) {
  c_ = &cluster;
  const uint32_t lanes = uint32_t(cluster.program->lanes.size());
  build_daemon_rank({cluster.world, cluster.options, cluster.core, index}, lanes,
                    uint64_t(lanes) * kLaneDepth);
  lanes_.build(cluster, index, pool_);
  callbacks_.assign(lanes, 0);
  submitted_all_ = false;
  all_given_back_ = true;
}

void Rank::add_fibers() {
  add_host_fibers(first_unit());
  add_block_fibers();
  make_trace();
  share_core_words();
  for (SimLane* lane : lanes_.mine()) {
    // Plans may give a connection to different blocks.
    if (lane->spec().calls.size() > 1) w_->memory.allow_handing_over();
    w_->memory.allow_many_writers(lane->fault());
    for (uint32_t s = 0; s < kLaneDepth; ++s) w_->memory.allow_many_writers(&lane->core().finished[s]);
  }
}

void Rank::make_trace() {
  trace_.clear();
  if (o_->trace_capacity == 0) return;
  for (uint32_t b = 0; b < o_->blocks; ++b) {
    TraceRing& ring = daemon_->blocks[b].trace;
    trace_.emplace_back(o_->trace_capacity);
    ring.capacity = o_->trace_capacity;
    ring.records = trace_.back().data();
    groups_[b].trace_written = &ring.written;
  }
}

// ---- the application ----------------------------------------------------------------------------------

void Rank::application() {
  Scheduler& scheduler = w_->scheduler;
  if (o_->core_only) return explored_application();
  if (scheduler.random().chance(o_->late_rank_chance)) {
    scheduler.note_deadline(scheduler.now() + scheduler.random().skewed(o_->late_rank_ns));
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
  SimLane& lane = *lanes_.at(number);
  lock();
  // Perhaps the callback of the lane's operation under way submits this one.
  if (lane.submitted() > lane.completed() && w_->scheduler.random().chance(o_->callback_submits))
    ++callbacks_[number];
  else
    submit_locked(lane);
  unlock();
}

void Rank::submit_locked(SimLane& lane) {
  SimMachine host(*w_, nullptr, 0, 0);
  enter_lane(lane);
  lanes_.open(lane);
  if (!lane.resolved() && lanes_.may_connect(lane)) lane.resolve(host, c_->lanes[lane.number()]);
  if (lane.broken) return;  // the caller gets an error at once
  lane.submit(w_->scheduler.now());
  ++submitted_;
  feed(lane);
  launch_if_wanted(true);
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

bool Rank::poll_once() {
  if (!unsubmitted_.empty()) flush();
  lanes_.connect();
  lanes_.open_buffers();
  const bool any = take_completions();
  if (o_->timeout_ns) {
    lanes_.check_timeouts([this](SimLane& lane) { fail_waiting(lane); });
    all_given_back_ = lanes_.give_back(app_ended_ && outstanding() == 0);
  }
  if (resident_ > 0 && w_->scheduler.random().chance(o_->drain_chance)) {
    SimMachine host(*w_, nullptr, 0, 0);
    host.store_release(&daemon_->drain, launch_);
  }
  launch_if_wanted(false);
  return any;
}

bool Rank::ended() {
  if (!all_given_back_ || !DaemonRank::ended()) return false;
  if (o_->timeout_ns) lanes_.leave();
  return true;
}

void Rank::completed(SimLane& lane, uint64_t, bool faulty) {
  const uint32_t number = lane.number();
  ++c_->completed[number];
  if (faulty) fail_waiting(lane);
  if (callbacks_[number] == 0) return;
  --callbacks_[number];
  submit_locked(lane);
}

void Rank::fail_waiting(SimLane& lane) {
  lane.broken = true;
  const uint64_t before = lane.submitted();
  lane.drop_waiting();
  submitted_ -= before - lane.submitted();
  callbacks_[lane.number()] = 0;
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
      submit_locked(*lanes_.at(step.lane));
      if (w_->memory.checks()) w_->memory.join(device_clock_.data(), w_->memory.clock(app_fiber_));
      w_->memory.fence();
      scheduler.end_atomic();
    }
    resume_blocks();
  }
  submitted_all_ = true;
  resume_blocks();
}

bool Rank::finished_by_core() const {
  const auto& mine = lanes_.mine();
  return std::all_of(mine.begin(), mine.end(), [](const SimLane* lane) { return lane->finished_by_core(); });
}

void Rank::run_thread(SimMachine& machine, Thread& thread) {
  if (o_->core_only)
    explored_block(machine, thread);
  else
    DaemonRank::run_thread(machine, thread);
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
    const LeaveReason reason = run_core(machine, thread);
    w_->memory.fence();
    if (daemon_->drain < launch_) scheduler.fail("a block left without raising drain");
    if (reason == LeaveReason::kExit) scheduler.fail("a block says that it was told to exit");
    scheduler.current().must_expire = false;
    resident_ = 0;
    if (synchronizing_) scheduler.resume(app_fiber_, 0);
  }
  for (SimLane* lane : lanes_.mine())
    while (lane->oldest() < lane->submitted()) {
      const std::string wrong = lane->complete(lane->oldest(), false, c_->expected[lane->number()]);
      if (!wrong.empty()) scheduler.fail("lane " + std::to_string(lane->number()) + ": " + wrong);
    }
  app_ended_ = true;
}

// ---- for reports --------------------------------------------------------------------------------------

std::string Rank::describe(const void* address) const {
  const std::string text = lanes_.describe(address);
  return text.empty() ? describe_core(address) : text + ", " + name();
}

std::string Rank::leftovers() const {
  std::string text = core_leftovers(lanes_.whole());
  if (text.empty()) text = lanes_.leftovers();
  return text.empty() ? "" : name() + ": " + text;
}

uint64_t Rank::host_hash() const {
  uint64_t hash = hash_combine(submitted_ << 32 | completed_, launch_ << 32 | resident_);
  hash =
      hash_combine(hash, uint64_t(locked_) | uint64_t(synchronizing_) << 1 | uint64_t(app_ended_) << 2 |
                             uint64_t(exit_pushed_) << 3 | uint64_t(exited_) << 4 | uint64_t(ending_) << 5 |
                             uint64_t(submitted_all_) << 6 | uint64_t(unsubmitted_.size()) << 8);
  for (const SimLane* lane : lanes_.mine())
    hash = hash_combine(hash, lane->submitted() << 32 | lane->oldest());
  return hash;
}

std::string Rank::state() const {
  std::string text = progress_text() + (resident_ ? ", daemon resident" : ", no daemon") +
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
