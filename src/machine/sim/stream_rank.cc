// long: the fibers of one rank share its state and are read together, as in rank.cc.
#include "machine/sim/stream_rank.h"

#include <algorithm>
#include <utility>

#include "machine/sim/rank.h"

namespace starling::sim {

// ---- memory -------------------------------------------------------------------------------------------

void StreamRank::build(Cluster& cluster, uint32_t index) {
  c_ = &cluster;
  w_ = cluster.world;
  index_ = index;
  const Program& program = *c_->program;
  const uint32_t lane_count = uint32_t(program.lanes.size());
  locked_ = lock_wanted_ = app_ended_ = exit_pushed_ = false;
  submitted_ = completed_ = synchronizations_ = 0;
  std::fill(std::begin(by_path_), std::end(by_path_), 0);
  unsubmitted_.clear();
  make_daemon_memory(lane_count);
  lanes_.assign(lane_count, {});
  lane_of_.assign(lane_count, nullptr);
  tickets_.assign(lane_count, {});
  connect_after_.assign(lane_count, 0);
  for (uint32_t k = 0; k < lane_count; ++k) make_lane(k);
  const Options& o = *c_->options;
  gpu_.build(*w_, o, *this, index, index * (o.sm_slots + 2) + 1, program.streams);
  driver_ = c_->core->make_driver(
      {w_, &gpu_, &o, Gpu::shares_queues(o, program.streams), daemon_, completions_, pool_});
}

void StreamRank::make_daemon_memory(uint32_t lane_count) {
  const Options& o = *c_->options;
  Region& region = w_->memory.region();
  daemon_ = region.make<DaemonMemory>();
  completions_ = region.make<device::CompletionMemory>();
  daemon_->block_count = o.blocks;
  daemon_->blocks = region.make<BlockMemory>(o.blocks);
  daemon_->submissions.capacity = o.submission_capacity;
  daemon_->submissions.entries = region.make<uint64_t>(o.submission_capacity);
  daemon_->submissions.heads = region.make<uint64_t>(o.blocks * SubmissionRing::kHeadStride);
  daemon_->submissions.tail = o.first_position;
  daemon_->scheduling = scheduling_of(o);
  daemon_->parked = region.make<ParkedRing>(o.blocks);
  daemon_->work = region.make<uint64_t>();
  completions_->capacity = o.completion_capacity;
  completions_->entries = region.make<uint64_t>(o.completion_capacity);
  const bool ring = o.completion_kind != uint32_t(device::CompletionQueueKind::kSlots);
  completions_->head = region.make<uint64_t>();
  *completions_->head = completions_->head_seen = completions_->tail = ring ? o.first_position : 0;
  pool_ = w_->shadow.slots().allocate(uint64_t(o.pool_slots) * o.slot_bytes);
  for (uint32_t b = 0; b < o.blocks; ++b) {
    BlockMemory& block = daemon_->blocks[b];
    block.submissions_read = daemon_->submissions.heads[b * SubmissionRing::kHeadStride] = o.first_position;
    daemon_->parked[b].capacity = o.start_limit;
    daemon_->parked[b].entries = region.make<Parked>(o.start_limit);
    daemon_->parked[b].head = daemon_->parked[b].tail = o.first_position;
    block.tasks = region.make<Task>(lane_count + 1);
    block.unpublished = region.make<uint64_t>(uint64_t(lane_count) * kLaneDepth);
    block.pool = {region.make<uint32_t>(o.pool_slots + 1), 0, 0};
    for (uint32_t s = b; s < o.pool_slots; s += o.blocks)
      block.pool.free[block.pool.free_count++] = kPoolSlot + s;
    block.pool.capacity = block.pool.free_count;
  }
}

void StreamRank::make_lane(uint32_t number) {
  const LaneSpec& spec = c_->program->lanes[number];
  const Options& o = *c_->options;
  const auto member = std::find(spec.ranks.begin(), spec.ranks.end(), index_);
  if (member == spec.ranks.end()) return;
  const uint32_t rank_in_lane = uint32_t(member - spec.ranks.begin());
  SimLane& lane = lanes_[number];
  lane.build(*w_, o, spec, number, rank_in_lane, c_->program->depth(number), pool_);
  // Wider than the plan at times: a block that has no part hands its turn on.
  const uint32_t blocks = spec.plan->header(rank_in_lane)->block_count;
  lane.add_handover(std::min(o.blocks, blocks + number % 2));
  lane_of_[number] = &lane;
  Lane**& segment = daemon_->segments[number / kLaneSegment];
  if (segment == nullptr) segment = w_->memory.region().make<Lane*>(kLaneSegment);
  segment[number % kLaneSegment] = &lane.core();
  c_->lanes[number][rank_in_lane] = &lane;
}

void StreamRank::add_fibers() {
  const Options& o = *c_->options;
  Memory& memory = w_->memory;
  app_fiber_ = w_->scheduler.add(index_, &run_application, this);
  poller_fiber_ = w_->scheduler.add(index_, &run_poller, this);
  memory.set_unit(app_fiber_, index_ * (o.sm_slots + 2));
  memory.set_unit(poller_fiber_, index_ * (o.sm_slots + 2));
  gpu_.add_fibers();
  block_states_.resize(o.sm_slots);
  for (std::byte*& state : block_states_)
    state = memory.region().allocate(std::max(c_->core->block_state_bytes, c_->core->start_state_bytes));
  make_traces();
  memory.allow_handing_over();
  for (uint64_t* word : {&daemon_->drain, &daemon_->exited, daemon_->work, &completions_->tail,
                         &completions_->lock, &completions_->head_seen})
    memory.allow_many_writers(word);
  for (uint32_t e = 0; e < o.completion_capacity; ++e) memory.allow_many_writers(&completions_->entries[e]);
  for (uint32_t b = 0; b < o.blocks; ++b) memory.allow_many_writers(&daemon_->parked[b].tail);
  for (SimLane* lane : lane_of_) {
    if (lane == nullptr) continue;
    memory.allow_many_writers(lane->fault());
    for (uint32_t s = 0; s < kLaneDepth; ++s) {
      memory.allow_many_writers(&lane->core().finished[s]);
      memory.allow_many_writers(&lane->core().handover->done[s]);
      memory.allow_many_writers(&lane->core().handover->gates[s]);
    }
  }
}

void StreamRank::make_traces() {
  const Options& o = *c_->options;
  records_.clear();
  slot_traces_.assign(o.sm_slots, {});
  if (o.trace_capacity == 0) return;
  auto fill = [&](TraceRing& ring) {
    records_.emplace_back(o.trace_capacity);
    ring = {0, o.trace_capacity, records_.back().data()};
  };
  for (uint32_t b = 0; b < o.blocks; ++b) fill(daemon_->blocks[b].trace);
  for (auto& rings : slot_traces_) {
    rings.resize(o.blocks);
    for (TraceRing& ring : rings) fill(ring);
  }
}

std::vector<std::pair<uint32_t, const TraceRing*>> StreamRank::traces() const {
  std::vector<std::pair<uint32_t, const TraceRing*>> all;
  for (uint32_t b = 0; b < daemon_->block_count; ++b) all.emplace_back(b, &daemon_->blocks[b].trace);
  for (const auto& rings : slot_traces_)
    for (uint32_t b = 0; b < rings.size(); ++b) all.emplace_back(b, &rings[b]);
  return all;
}

void StreamRank::begin() {
  host_clock_.assign(w_->memory.width(), 0);
  gpu_.begin();
}

// ---- kernels ------------------------------------------------------------------------------------------

void StreamRank::run_block(SimMachine& machine, const Kernel& kernel, uint32_t slot, uint32_t thread) {
  switch (kernel.kind) {
    case Kernel::Kind::kDaemon: return run_daemon(machine, kernel, slot, thread);
    case Kernel::Kind::kStart: {
      auto& traces = slot_traces_[slot];
      gpu_.slot(slot).group.trace_written = traces.empty() ? nullptr : &traces[0].written;
      return c_->core->run_start(machine, kernel.arguments, traces.empty() ? nullptr : traces.data(),
                                 block_states_[slot]);
    }
    case Kernel::Kind::kFill:
      if (thread == 0) lanes_[kernel.lane].fill(kernel.index);
      return;
    case Kernel::Kind::kCheck: {
      // What a broken lane leaves is nobody's business.
      if (thread != 0 || *lanes_[kernel.lane].fault() != 0) return;
      const std::string wrong = lanes_[kernel.lane].check(kernel.index);
      if (!wrong.empty())
        w_->scheduler.fail("rank " + std::to_string(index_) + ", lane " + std::to_string(kernel.lane) + ": " +
                           wrong);
      return;
    }
    case Kernel::Kind::kCompute:
      w_->scheduler.note_deadline(w_->scheduler.now() + kernel.ns);
      w_->scheduler.sleep();
      return;
  }
}

void StreamRank::run_daemon(SimMachine& machine, const Kernel& kernel, uint32_t slot, uint32_t thread) {
  const uint32_t b = machine.block_index();
  gpu_.slot(slot).group.trace_written =
      c_->options->trace_capacity ? &daemon_->blocks[b].trace.written : nullptr;
  const uint64_t launch = driver_->launches();
  c_->core->run_daemon(machine, kernel.arguments, block_states_[slot]);
  // All leave together: who leaves has raised drain (contract, point 5).
  w_->memory.fence();
  if (thread == 0 && daemon_->drain < launch)
    w_->scheduler.fail("rank " + std::to_string(index_) + ": a block left alone, and the others stay");
}

void StreamRank::progressed() {
  w_->scheduler.wake(app_fiber_);
  w_->scheduler.wake(poller_fiber_);
}

// ---- the application ----------------------------------------------------------------------------------

void StreamRank::application() {
  Scheduler& scheduler = w_->scheduler;
  const Options& o = *c_->options;
  if (scheduler.random().chance(o.late_rank_chance)) {
    scheduler.note_deadline(scheduler.now() + scheduler.random().skewed(o.late_rank_ns));
    scheduler.sleep();
  }
  for (const Step& step : c_->program->steps[index_]) {
    take(step);
    scheduler.note_progress();
  }
  wait_for_all();
  app_ended_ = true;
  scheduler.wake(poller_fiber_);
}

void StreamRank::take(const Step& step) {
  switch (step.kind) {
    case StepKind::kStart:
    case StepKind::kPrepared: return start(step);
    case StepKind::kStreamWait: return wait_on_stream(step);
    case StepKind::kCompute:
      return put_kernel(step.stream, Kernel::Kind::kCompute, 0, 0, step.ns, step.blocks);
    case StepKind::kSynchronize: ++synchronizations_; return gpu_.synchronize();
    case StepKind::kWait: return wait_for_all();
    case StepKind::kPause: {
      const uint64_t until = w_->scheduler.now() + step.ns;
      do {
        w_->scheduler.note_deadline(until);
        w_->scheduler.sleep();
      } while (w_->scheduler.now() < until);
      return;
    }
    case StepKind::kSubmit: w_->scheduler.fail("a program with streams submits to streams");
  }
}

void StreamRank::start(const Step& step) {
  SimLane& lane = *lane_of_[step.lane];
  if (lane.broken) return;  // the caller gets an error at once
  const uint64_t index = lane.submitted();
  lane.make_buffers();
  if (step.kind == StepKind::kPrepared)
    lane.fill(index);
  else
    put_kernel(step.stream, Kernel::Kind::kFill, step.lane, index, step.ns);
  put_operation(step, lane, index);
  if (step.held && !lane.broken) put_kernel(step.stream, Kernel::Kind::kCheck, step.lane, index);
}

// As device/stream_host.h asks of its callers.
void StreamRank::put_operation(const Step& step, SimLane& lane, uint64_t index) {
  for (lock(); !lane.broken && !driver_->may_enter(step.stream, step.held); lock()) {
    unlock();
    w_->scheduler.sleep();  // until an entry of some stream begins or ends
  }
  if (lane.broken) return unlock();
  open(lane);
  lane.count_submitted(w_->scheduler.now());
  ++submitted_;
  const bool placed = lane.placed() == index && lane.has_work_for_core();
  const Submission submission = placed ? lane.place(c_->options->first_sequence) : Submission{};
  const StreamTicket ticket = driver_->enter(step.stream, step.held, placed);
  tickets_[step.lane].emplace(index, ticket);
  ++by_path_[ticket.path];
  if (placed && ticket.path != kByKernel) {
    Submission marked = submission;
    marked.marked = ticket.path == kByMark;
    push(marked);
  }
  driver_->poll();
  w_->scheduler.wake(poller_fiber_);
  Operation operation{};
  if (placed) operation = lane.operation(index);
  operation.sequence = c_->options->first_sequence + index;
  unlock();
  driver_->enqueue(ticket, step.stream, lane.core(), operation, lane.spec().priority);
}

void StreamRank::wait_on_stream(const Step& step) {
  SimLane& lane = *lane_of_[step.lane];
  if (lane.submitted() == 0) return;
  const uint64_t index = lane.submitted() - 1;
  for (lock(); !driver_->may_hold(); lock()) {
    unlock();
    w_->scheduler.sleep();
  }
  const auto ticket = tickets_[step.lane].find(index);
  const bool under_way = ticket != tickets_[step.lane].end();
  if (under_way) driver_->hold(ticket->second);
  unlock();
  // Complete: the stream need not wait; what the host knows of it, the launch of the check hands on.
  if (under_way) driver_->wait_for(step.stream, *lane.core().handover, c_->options->first_sequence + index);
  put_kernel(step.stream, Kernel::Kind::kCheck, step.lane, index);
}

// ns: also, that a fill is done by the copy engine.
void StreamRank::put_kernel(uint32_t stream, Kernel::Kind kind, uint32_t lane, uint64_t index, uint64_t ns,
                            uint32_t blocks) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.blocks = blocks;
  kernel.lane = lane;
  kernel.index = index;
  kernel.ns = ns;
  kernel.copy = kind == Kernel::Kind::kFill && ns > 0;
  gpu_.put(stream, kernel, false);
}

// For all operations, and all streams.
void StreamRank::wait_for_all() {
  while (outstanding() > 0) w_->scheduler.sleep();
  for (uint32_t s = 0; s < c_->program->streams; ++s)
    while (!gpu_.idle(s)) w_->scheduler.sleep();
  lock();
  unlock();
}

// ---- the poller ---------------------------------------------------------------------------------------

void StreamRank::poller() {
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
  gpu_.end();
}

bool StreamRank::poll_once() {
  flush();
  connect();
  SimMachine host(*w_, nullptr, 0, 0);
  bool any = false;
  for (uint64_t token = 0; c_->core->pop(host, c_->options->completion_kind, completions_, token); any = true)
    completed(token);
  if (c_->options->timeout_ns) check_timeouts();
  if (w_->scheduler.random().chance(c_->options->drain_chance)) driver_->drain();
  driver_->poll();
  const uint64_t next = driver_->next_poll();
  if (next < kForever) w_->scheduler.note_deadline(next);
  return any;
}

void StreamRank::completed(uint64_t token) {
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
  finish_ticket(uint32_t(number), index);
  if (faulty) fail_waiting(lane);
  feed(lane);
  scheduler.wake(app_fiber_);
}

void StreamRank::finish_ticket(uint32_t lane, uint64_t index) {
  const auto ticket = tickets_[lane].find(index);
  driver_->completed(ticket->second);
  tickets_[lane].erase(ticket);
}

void StreamRank::open(SimLane& lane) {
  if (lane.is_open()) return;
  SimMachine host(*w_, nullptr, 0, 0);
  lane.open(host);
  connect_after_[lane.core().id] =
      w_->scheduler.now() + w_->scheduler.random().skewed(c_->options->connect_delay_ns);
}

void StreamRank::connect() {
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

void StreamRank::check_timeouts() {
  const uint64_t now = w_->scheduler.now();
  for (SimLane* lane : lane_of_) {
    if (lane == nullptr || lane->submitted() == lane->completed()) continue;
    SimMachine host(*w_, nullptr, 0, 0);
    if (host.load_acquire(lane->fault()) != 0) {
      if (!lane->broken) fail_waiting(*lane);
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
void StreamRank::break_lane(SimLane& lane) {
  SimMachine host(*w_, nullptr, 0, 0);
  for (SimLane* peer : c_->lanes[lane.core().id])
    if (host.load_acquire(peer->fault()) == 0) host.store_release(peer->fault(), 1);
  fail_waiting(lane);
}

// Also after each completion of a broken lane: see StreamHost::poison().
void StreamRank::fail_waiting(SimLane& lane) {
  lane.broken = true;
  const uint32_t number = lane.core().id;
  driver_->poison(*lane.core().handover, newest(lane));
  const uint64_t before = lane.submitted();
  lane.drop_waiting();
  for (uint64_t index = lane.submitted(); index < before; ++index) finish_ticket(number, index);
  submitted_ -= before - lane.submitted();
  w_->scheduler.wake(app_fiber_);
}

// More than its operations ever were: those that were dropped have streams that wait, too.
uint64_t StreamRank::newest(const SimLane& lane) const {
  return c_->options->first_sequence + lane.submitted();
}

bool StreamRank::ended() {
  if (!app_ended_ || outstanding() > 0) return false;
  if (!std::exchange(exit_pushed_, true)) push(Submission{0, 0, 0, 0, 0});
  driver_->poll();
  return unsubmitted_.empty() && driver_->settled();
}

void StreamRank::feed(SimLane& lane) {
  const uint32_t number = lane.core().id;
  while (lane.has_work_for_core()) {
    const uint64_t index = lane.placed();
    Submission submission = lane.place(c_->options->first_sequence);
    submission.marked = tickets_[number].at(index).path == kByMark;
    push(submission);
  }
}

void StreamRank::push(const Submission& submission) {
  unsubmitted_.push_back(submission);
  flush();
}

void StreamRank::flush() {
  SimMachine host(*w_, nullptr, 0, 0);
  while (!unsubmitted_.empty() &&
         c_->core->push(host, daemon_->submissions, c_->options->blocks, unsubmitted_.front()))
    unsubmitted_.pop_front();
}

// ---- the host's lock ----------------------------------------------------------------------------------

void StreamRank::lock() {
  while (locked_) {
    lock_wanted_ = true;
    w_->scheduler.sleep();
  }
  locked_ = true;
  Memory& memory = w_->memory;
  if (memory.checks()) memory.join(memory.clock(w_->scheduler.current_id()), host_clock_.data());
}

void StreamRank::unlock() {
  locked_ = false;
  if (std::exchange(lock_wanted_, false)) progressed();
  Memory& memory = w_->memory;
  memory.fence();
  if (!memory.checks()) return;
  memory.join(host_clock_.data(), memory.clock(w_->scheduler.current_id()));
  memory.advance(w_->scheduler.current_id());
}

// ---- for reports --------------------------------------------------------------------------------------

std::string StreamRank::describe(const void* address) const {
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
  if (within(daemon_->work, 1)) return "work for a daemon" + here;
  if (within(&daemon_->drain, 1)) return "drain" + here;
  if (within(&daemon_->exited, 1)) return "exited" + here;
  if (within(daemon_, 1)) return "daemon's memory" + here;
  if (within(completions_, 1) || within(completions_->entries, completions_->capacity))
    return "completion queue" + here;
  if (within(daemon_->blocks, daemon_->block_count)) return "block's memory" + here;
  for (uint32_t b = 0; b < daemon_->block_count; ++b)
    if (within(&daemon_->parked[b], 1) || within(daemon_->parked[b].entries, daemon_->parked[b].capacity))
      return "ring of parked operations" + here;
  if (within(pool_, uint64_t(c_->options->pool_slots) * c_->options->slot_bytes)) return "pool slot" + here;
  return "";
}

std::string StreamRank::leftovers() {
  const std::string who = "rank " + std::to_string(index_) + ": ";
  const bool whole = std::none_of(lanes_.begin(), lanes_.end(), [](const SimLane& l) { return l.broken; });
  if (!driver_->quiet()) return who + "the host believes that operations are under way";
  for (uint32_t b = 0; b < daemon_->block_count; ++b) {
    const BlockMemory& block = daemon_->blocks[b];
    if (block.task_count > 0) return who + "a task is left in the queue";
    if (block.unpublished_count > 0) return who + "a completion was never published";
    if (daemon_->parked[b].head != daemon_->parked[b].tail)
      return who + "a parked operation was never adopted";
    if (whole && block.pool.free_count != block.pool.capacity)
      return who + std::to_string(block.pool.capacity - block.pool.free_count) +
             " pool slots did not come home";
  }
  for (uint32_t k = 0; k < lane_of_.size(); ++k) {
    SimLane* lane = lane_of_[k];
    if (lane == nullptr || lane->submitted() == 0) continue;
    const Handover& handover = *lane->core().handover;
    for (uint32_t b = 0; b < handover.width; ++b)
      if (handover.turns[b].next != c_->options->first_sequence + lane->placed() || handover.turns[b].marked)
        return who + "lane " + std::to_string(k) + ": a turn was not handed on to the end";
    if (lane->broken) continue;
    const std::string leak = lane->leaks(c_->lanes[k]);
    if (!leak.empty()) return who + "lane " + std::to_string(k) + ": " + leak;
  }
  return "";
}

std::string StreamRank::state() {
  std::string text = "rank " + std::to_string(index_) + ": " + std::to_string(completed_) + " of " +
                     std::to_string(submitted_) + " operations complete, " +
                     (app_ended_ ? "application ended" : "application under way") + ", " +
                     (driver_->resident() ? "daemon resident" : "no daemon") + ", " +
                     std::to_string(by_path_[0]) + " started as kernels, " + std::to_string(by_path_[1]) +
                     " through the queue, " + std::to_string(by_path_[2]) + " by marks" + gpu_.state();
  if (locked_) text += "; the host's lock is taken";
  for (SimLane* lane : lane_of_)
    if (lane != nullptr && *lane->fault() != 0)
      text += "; lane " + std::to_string(lane->core().id) + " is broken";
  for (uint32_t b = 0; b < daemon_->block_count; ++b) {
    const BlockMemory& block = daemon_->blocks[b];
    text += "; block " + std::to_string(b) + " has tasks";
    for (uint32_t t = 0; t < block.task_count; ++t) {
      const Lane& lane = *daemon_->segments[0][block.tasks[t].lane];
      text += " " + std::to_string(lane.id) + "(next " + std::to_string(lane.blocks[b].next) + ", turn " +
              std::to_string(b < lane.handover->width ? lane.handover->turns[b].next : 0) + ")";
    }
  }
  return text;
}

}  // namespace starling::sim
