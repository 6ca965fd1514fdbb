#include "machine/sim/rank_core.h"

#include <utility>

namespace starling::sim {

Scheduling scheduling_of(const Options& o) {
  return {o.initial_budget,  o.minimum_budget, o.maximum_budget, o.quit_period,
          o.residency_limit, o.success_factor, o.position_shift, o.fetch_batch,
          o.priority_order,  o.unbounded,      o.in_turn};
}

// ---- memory -------------------------------------------------------------------------------------------

void RankCore::build_core(const Setting& setting, uint32_t lanes, uint64_t operations) {
  w_ = setting.world;
  o_ = setting.options;
  core_ = setting.core;
  index_ = setting.index;
  locked_ = lock_wanted_ = app_ended_ = exit_pushed_ = false;
  unsubmitted_.clear();
  submitted_ = completed_ = synchronizations_ = 0;
  make_queues();
  pool_ = w_->shadow.slots().allocate(uint64_t(o_->pool_slots) * o_->slot_bytes);
  for (uint32_t b = 0; b < o_->blocks; ++b) make_block(b, lanes, operations);
}

void RankCore::make_queues() {
  Region& region = w_->memory.region();
  daemon_ = region.make<DaemonMemory>();
  completions_ = region.make<device::CompletionMemory>();
  daemon_->block_count = o_->blocks;
  daemon_->blocks = region.make<BlockMemory>(o_->blocks);
  daemon_->submissions.capacity = o_->submission_capacity;
  daemon_->submissions.entries = region.make<uint64_t>(o_->submission_capacity);
  daemon_->submissions.heads = region.make<uint64_t>(o_->blocks * SubmissionRing::kHeadStride);
  daemon_->submissions.tail = o_->first_position;
  daemon_->scheduling = scheduling_of(*o_);
  completions_->capacity = o_->completion_capacity;
  completions_->entries = region.make<uint64_t>(o_->completion_capacity);
  completions_->head = region.make<uint64_t>();
  const bool ring = o_->completion_kind != uint32_t(device::CompletionQueueKind::kSlots);
  *completions_->head = completions_->head_seen = completions_->tail = ring ? o_->first_position : 0;
}

void RankCore::make_block(uint32_t number, uint32_t lanes, uint64_t operations) {
  Region& region = w_->memory.region();
  BlockMemory& block = daemon_->blocks[number];
  block.submissions_read = daemon_->submissions.heads[number * SubmissionRing::kHeadStride] =
      o_->first_position;
  block.tasks = region.make<Task>(lanes + 1);
  block.unpublished = region.make<uint64_t>(operations + 1);
  block.pool = {region.make<uint32_t>(o_->pool_slots + 1), 0, 0};
  for (uint32_t s = number; s < o_->pool_slots; s += o_->blocks)
    block.pool.free[block.pool.free_count++] = kPoolSlot + s;
  block.pool.capacity = block.pool.free_count;
}

void RankCore::enter_lane(SimLane& lane) {
  const uint32_t number = lane.number();
  Lane**& segment = daemon_->segments[number / kLaneSegment];
  if (segment == nullptr) segment = w_->memory.region().make<Lane*>(kLaneSegment);
  segment[number % kLaneSegment] = &lane.core();
}

void RankCore::add_host_fibers(uint32_t unit) {
  app_fiber_ = w_->scheduler.add(index_, &run_application, this);
  poller_fiber_ = w_->scheduler.add(index_, &run_poller, this);
  w_->memory.set_unit(app_fiber_, unit);
  w_->memory.set_unit(poller_fiber_, unit);
}

void RankCore::share_core_words() {
  Memory& memory = w_->memory;
  for (uint64_t* word : {&daemon_->drain, &daemon_->exited, &completions_->tail, &completions_->lock,
                         &completions_->head_seen})
    memory.allow_many_writers(word);
  for (uint32_t e = 0; e < o_->completion_capacity; ++e) memory.allow_many_writers(&completions_->entries[e]);
}

// ---- the host -----------------------------------------------------------------------------------------

void RankCore::poller() {
  Scheduler& scheduler = w_->scheduler;
  if (o_->core_only) return;  // explored: nothing polls
  for (;;) {
    scheduler.listen();
    lock();
    const bool any = poll_once();
    const bool end = ended();
    unlock();
    if (end) break;
    if (scheduler.random().chance(o_->poller_away_chance)) {
      const uint64_t back = scheduler.now() + scheduler.random().skewed(o_->poller_away_ns);
      for (; scheduler.now() < back; scheduler.sleep()) scheduler.note_deadline(back);
    } else if (any)
      scheduler.step();
    else if (o_->bells && unsubmitted_.empty())
      scheduler.sleep_until_rung();
    else
      scheduler.sleep();
  }
  end_fibers();
}

bool RankCore::take_completions() {
  SimMachine host(*w_, nullptr, 0, 0);
  bool any = false;
  for (uint64_t token = 0; core_->pop(host, o_->completion_kind, completions_, token); any = true)
    take(token);
  return any;
}

void RankCore::take(uint64_t token) {
  const uint64_t number = (token >> 28) - 1;
  SimLane* lane = lane_numbered(number);
  if (lane == nullptr) fail("a completion that names none of its lanes");
  finish_operation(*lane, lane->index_of(token));
}

void RankCore::finish_operation(SimLane& lane, uint64_t index) {
  const uint64_t number = lane.number();
  SimMachine host(*w_, nullptr, 0, 0);
  const bool faulty = host.load_acquire(lane.fault()) != 0;
  const std::string wrong = lane.complete(index, faulty, expected_of(number));
  if (!wrong.empty())
    fail("lane " + std::to_string(number) + ", operation " + std::to_string(index) + ": " + wrong);
  ++completed_;
  w_->scheduler.note_progress();
  completed(lane, index, faulty);
  feed(lane);
  w_->scheduler.wake(app_fiber_);
}

void RankCore::feed(SimLane& lane) {
  while (lane.has_work_for_core()) unsubmitted_.push_back(place(lane));
  flush();
}

void RankCore::push(const Submission& submission) {
  unsubmitted_.push_back(submission);
  flush();
}

void RankCore::flush() {
  SimMachine host(*w_, nullptr, 0, 0);
  bool any = false;
  for (; !unsubmitted_.empty(); any = true) {
    if (!core_->push(host, daemon_->submissions, o_->blocks, unsubmitted_.front())) break;
    unsubmitted_.pop_front();
  }
  if (any && o_->bells) host.notify(&w_->bells[index_]);
}

void RankCore::push_exit() {
  if (!std::exchange(exit_pushed_, true)) unsubmitted_.push_back(Submission{0, 0, 0, 0, 0});
  flush();
}

void RankCore::lock() {
  while (locked_) {
    lock_wanted_ = true;
    w_->scheduler.sleep();
  }
  locked_ = true;
  Memory& memory = w_->memory;
  if (!memory.checks()) return;
  memory.join(memory.clock(w_->scheduler.current_id()), host_clock_.data());
  learn_more();
}

void RankCore::unlock() {
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

std::string RankCore::describe_core(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  auto within = [&](const auto* object, uint64_t count) {
    return p >= reinterpret_cast<const std::byte*>(object) &&
           p < reinterpret_cast<const std::byte*>(object + count);
  };
  const std::string here = ", " + name();
  const SubmissionRing& ring = daemon_->submissions;
  if (within(ring.entries, ring.capacity)) return "submission queue's entry" + here;
  if (within(ring.heads, daemon_->block_count * SubmissionRing::kHeadStride))
    return "submission queue's head" + here;
  if (within(&daemon_->drain, 1)) return "drain" + here;
  if (within(&daemon_->exited, 1)) return "exited" + here;
  if (within(daemon_->work, 1)) return "work for a daemon" + here;
  if (within(daemon_, 1)) return "daemon's memory" + here;
  if (within(completions_, 1) || within(completions_->head, 1)) return "completion queue" + here;
  if (within(completions_->entries, completions_->capacity)) return "completion queue's entry" + here;
  if (within(daemon_->blocks, daemon_->block_count)) return "block's memory" + here;
  for (uint32_t b = 0; daemon_->parked != nullptr && b < daemon_->block_count; ++b)
    if (within(&daemon_->parked[b], 1) || within(daemon_->parked[b].entries, daemon_->parked[b].capacity))
      return "ring of parked operations" + here;
  if (within(pool_, uint64_t(o_->pool_slots) * o_->slot_bytes)) return "pool slot" + here;
  return "";
}

std::string RankCore::core_leftovers(bool whole) const {
  for (uint32_t b = 0; b < daemon_->block_count; ++b) {
    const BlockMemory& block = daemon_->blocks[b];
    if (block.task_count > 0) return "a task is left in the queue";
    if (block.unpublished_count > 0) return "a completion was never published";
    if (daemon_->parked != nullptr && daemon_->parked[b].head != daemon_->parked[b].tail)
      return "a parked operation was never adopted";
    if (whole && block.pool.free_count != block.pool.capacity)
      return std::to_string(block.pool.capacity - block.pool.free_count) + " pool slots did not come home";
  }
  return "";
}

std::string RankCore::progress_text() const {
  return name() + ": " + std::to_string(completed_) + " of " + std::to_string(submitted_) +
         " operations complete, " + (app_ended_ ? "application ended" : "application under way");
}

}  // namespace starling::sim
