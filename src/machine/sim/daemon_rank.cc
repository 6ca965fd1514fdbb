#include "machine/sim/daemon_rank.h"

namespace starling::sim {

void DaemonRank::build_daemon_rank(const Setting& setting, uint32_t lanes, uint64_t operations) {
  build_core(setting, lanes, operations);
  groups_.assign(o_->blocks, {});
  threads_.clear();
  parked_.resize(o_->blocks);
  for (auto& parked : parked_) parked.clear();
  block_states_.resize(o_->blocks);
  launch_ = restart_at_ = 0;
  resident_ = 0;
  synchronizing_ = exited_ = ending_ = false;
}

void DaemonRank::add_block_fibers() {
  threads_.reserve(size_t(o_->blocks) * o_->threads);
  for (uint32_t b = 0; b < o_->blocks; ++b) {
    block_states_[b] = w_->memory.region().allocate(core_->block_state_bytes);
    groups_[b].threads = o_->threads;
    groups_[b].unit = first_unit() + 1 + b;
    for (uint32_t t = 0; t < o_->threads; ++t) {
      threads_.push_back({this, b, t, 0, 0});
      const uint32_t fiber = w_->scheduler.add(index_, &run_block, &threads_.back());
      threads_.back().fiber = groups_[b].fibers[t] = fiber;
      w_->memory.set_unit(fiber, groups_[b].unit);
    }
    if (!o_->bells) continue;
    groups_[b].bell = &w_->bells[index_];
    w_->bells[index_].blocks.push_back(&groups_[b]);
    w_->bells[index_].poller = poller_fiber_;
  }
}

void DaemonRank::begin_daemon_rank() {
  begin_core();
  device_clock_.assign(w_->memory.width(), 0);
}

// ---- the host -----------------------------------------------------------------------------------------

void DaemonRank::synchronize() {
  lock();
  ++synchronizations_;
  synchronizing_ = resident_ > 0;
  unlock();
  while (resident_ > 0) w_->scheduler.sleep();
  synchronizing_ = false;
  w_->scheduler.wake(poller_fiber_);
}

bool DaemonRank::ended() {
  if (!app_ended_ || outstanding() > 0) return false;
  push_exit();
  launch_if_wanted(true);
  return exited_ && resident_ == 0;
}

void DaemonRank::end_fibers() {
  ending_ = true;
  resume_blocks();
}

// Who sees that a daemon has left has seen what it did.
void DaemonRank::learn_more() {
  if (resident_ == 0) w_->memory.join(w_->memory.clock(w_->scheduler.current_id()), device_clock_.data());
}

void DaemonRank::launch_if_wanted(bool at_once) {
  if (resident_ > 0 || synchronizing_ || o_->core_only) return;
  if (outstanding() == 0 && (!exit_pushed_ || exited_)) return;
  if (at_once || w_->scheduler.now() >= restart_at_)
    launch();
  else
    w_->scheduler.note_deadline(restart_at_);
}

void DaemonRank::launch() {
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
    const uint64_t delay = scheduler.random().skewed(o_->launch_delay_ns);
    for (Thread& thread : threads_)
      if (thread.block == b && scheduler.fiber(thread.fiber).state == FiberState::kBlocked)
        scheduler.resume(thread.fiber, delay);
  }
}

void DaemonRank::resume_blocks() {
  for (Thread& thread : threads_)
    if (w_->scheduler.fiber(thread.fiber).state == FiberState::kBlocked)
      w_->scheduler.resume(thread.fiber, 0);
}

// ---- the blocks ---------------------------------------------------------------------------------------

void DaemonRank::block_thread(Thread& thread) {
  SimMachine machine(*w_, &groups_[thread.block], thread.block, thread.thread);
  run_thread(machine, thread);
}

void DaemonRank::run_thread(SimMachine& machine, Thread& thread) {
  Memory& memory = w_->memory;
  while (!ending_) {
    if (thread.launch == launch_) {
      w_->scheduler.block();
      continue;
    }
    thread.launch = launch_;
    if (memory.checks()) {
      memory.join(memory.clock(thread.fiber), device_clock_.data());
      memory.touch(thread.fiber);
    }
    if (thread.thread == 0) check_parked(thread.block);
    const LeaveReason reason = run_core(machine, thread);
    if (thread.thread == 0) note_parked(thread.block);
    left(thread, reason);
  }
}

LeaveReason DaemonRank::run_core(SimMachine& machine, const Thread& thread) {
  if (thread.thread == 0) groups_[thread.block].listens = false;
  return core_->run(machine, {daemon_, completions_, o_->completion_kind, thread.launch, pool_,
                              block_states_[thread.block]});
}

// A parked collective's connectors are used by nobody else (contract, point 2).
void DaemonRank::note_parked(uint32_t block) {
  const BlockMemory& memory = daemon_->blocks[block];
  parked_[block].clear();
  for (uint32_t t = 0; t < memory.task_count; ++t) {
    const uint32_t lane = memory.tasks[t].lane;
    parked_[block].push_back({lane, lane_numbered(lane)->ends_hash(block)});
  }
}

void DaemonRank::check_parked(uint32_t block) {
  for (const Parked& parked : parked_[block])
    if (lane_numbered(parked.lane)->ends_hash(block) != parked.ends_hash)
      fail("the connectors of lane " + std::to_string(parked.lane) + " changed while it was parked");
}

void DaemonRank::left(const Thread& thread, LeaveReason reason) {
  const uint32_t fiber = thread.fiber;
  Memory& memory = w_->memory;
  memory.fence();
  if (memory.checks()) {
    memory.join(device_clock_.data(), memory.clock(fiber));
    memory.advance(fiber);
  }
  // All leave together: who leaves has raised drain (contract, point 5). The other threads of its block may
  // not see the leader's store yet.
  if (thread.thread == 0 && daemon_->drain < launch_) fail("a block left alone, and the others stay");
  if (reason == LeaveReason::kExit) exited_ = true;
  thread_left(reason);
  if (--resident_ > 0) return;
  all_left();
  restart_at_ = w_->scheduler.now() + w_->scheduler.random().skewed(o_->restart_ns);
  w_->scheduler.wake(poller_fiber_);
  w_->scheduler.wake(app_fiber_);
}

}  // namespace starling::sim
