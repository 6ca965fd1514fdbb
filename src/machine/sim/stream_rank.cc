#include "machine/sim/stream_rank.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace starling::sim {
namespace {

constexpr uint64_t kLookForPeersNs = 1000;  // what peers' hosts say wakes nobody

}  // namespace

// ---- memory -------------------------------------------------------------------------------------------

void StreamRank::build(Cluster& cluster, uint32_t index) {
  c_ = &cluster;
  const Program& program = *cluster.program;
  const uint32_t lanes = uint32_t(program.lanes.size());
  build_core({cluster.world, cluster.options, cluster.core, index}, lanes, uint64_t(lanes) * kLaneDepth);
  make_parked_rings();
  lanes_.build(cluster, index, pool_);
  if (has_proxy()) proxy_.build(cluster, index, lanes_.mine());
  make_handovers();
  tickets_.assign(lanes, {});
  meeting_.assign(lanes, {});
  last_kernels_.assign(lanes, kNoStream);
  before_streams_.assign(lanes, 0);
  for (uint32_t& count : before_streams_)
    if (w_->scheduler.random().chance(o_->before_streams_chance)) count = 1 + w_->scheduler.random().below(4);
  // Then some lanes, or all, are never used by streams.
  const bool all_called = o_->before_streams_chance == kAlways;
  if (o_->call_boxes != 0)
    for (uint32_t& count : before_streams_)
      if (all_called || w_->scheduler.random().chance(kAlways / 2)) count *= 64;
  std::fill(std::begin(by_path_), std::end(by_path_), 0);
  static const std::vector<Graph> kNone;
  const std::vector<Graph>& graphs = program.graphs.empty() ? kNone : program.graphs[index];
  const uint32_t streams = program.streams + RankGraphs::branch_streams(graphs);
  graphs_.build(*w_, graphs, program.streams);
  first_call_stream_ = streams;
  boxes_taken_.assign(o_->call_boxes, 0);
  taken_by_kernel_ = 0;
  gpu_.build(*w_, *o_, *this, index, first_unit() + 1, streams + o_->call_boxes);
  all_given_back_ = true;
  aborted_ = false;
  copied_ = 0;
  if (program.has_copies()) copy_proxy_.build(*w_, *core_, gpu_);
  driver_ = core_->make_driver(
      {w_, &gpu_, o_, Gpu::shares_queues(*o_, streams), alone_, daemon_, completions_, pool_});
}

void StreamRank::make_parked_rings() {
  Region& region = w_->memory.region();
  daemon_->parked = region.make<ParkedRing>(o_->blocks);
  daemon_->work = region.make<uint64_t>();
  daemon_->parts = region.make<DaemonParts>();
  daemon_->parts->roam_after = 16 * o_->quit_period;
  daemon_->parts->leave_after = 32 * o_->quit_period;
  daemon_->parts->holders = region.make<uint64_t>(o_->blocks);
  alone_ = region.make<AloneWords>();
  // Replays ask for no place.
  uint64_t captured = 0;
  for (const LaneSpec& lane : c_->program->lanes) captured += lane.captured ? kLaneDepth : 0;
  const uint64_t places = std::bit_ceil(o_->start_limit + captured);
  for (uint32_t b = 0; b < o_->blocks; ++b)
    daemon_->parked[b] = {o_->first_position, o_->first_position, places, region.make<Parked>(places)};
}

// Wider than the plan at times: a block that has no part hands its turn on.
void StreamRank::make_handovers() {
  for (SimLane* lane : lanes_.mine()) {
    if (lane->spec().copies) continue;
    const uint32_t blocks = lane->spec().block_count();
    lane->add_handover(std::min(o_->blocks, blocks + lane->number() % 2));
  }
}

void StreamRank::add_fibers() {
  Memory& memory = w_->memory;
  add_host_fibers(first_unit());
  gpu_.add_fibers();
  if (has_proxy()) proxy_.add_fiber(c_->program->rank_count * unit_count(*o_) + 1 + index_);
  if (copy_proxy_.exists()) copy_proxy_.add_fiber(index_, first_unit() + unit_count(*o_) - 1, poller_fiber_);
  block_states_.resize(o_->sm_slots);
  for (std::byte*& state : block_states_)
    state = memory.region().allocate(std::max(core_->block_state_bytes, core_->start_state_bytes));
  make_traces();
  memory.allow_handing_over();
  share_core_words();
  memory.allow_many_writers(daemon_->work);
  memory.allow_many_writers(&alone_->leaving);
  DaemonParts& parts = *daemon_->parts;
  for (uint64_t* word : {&parts.serving, &parts.roamed, &parts.tenure, &parts.anchors})
    memory.allow_many_writers(word);
  for (uint32_t b = 0; b < o_->blocks; ++b) memory.allow_many_writers(&daemon_->parts->holders[b]);
  for (uint32_t b = 0; b < o_->blocks; ++b) memory.allow_many_writers(&daemon_->parked[b].tail);
  for (SimLane* lane : lanes_.mine()) {
    memory.allow_many_writers(lane->fault());
    if (lane->spec().copies) {
      lane->copies().share_words(memory);
      continue;
    }
    memory.allow_many_writers(&lane->handover().turns[0].issued);
    memory.allow_many_writers(&lane->handover().turns[0].waiting);
    for (uint32_t s = 0; s < kLaneDepth; ++s) {
      memory.allow_many_writers(&lane->core().finished[s]);
      memory.allow_many_writers(&lane->handover().done[s].done);
      memory.allow_many_writers(&lane->handover().done[s].told);
      memory.allow_many_writers(&lane->handover().gates[s]);
      for (const uint32_t at : {s, kLaneDepth + s}) memory.allow_many_writers(&lane->handover().came[at]);
      auto* words = reinterpret_cast<uint64_t*>(&lane->core().operations[s]);
      for (uint32_t w = 0; w < sizeof(Operation) / sizeof(uint64_t); ++w)
        memory.allow_many_writers(words + w);
    }
  }
}

void StreamRank::make_traces() {
  records_.clear();
  slot_traces_.assign(o_->sm_slots, {});
  if (o_->trace_capacity == 0) return;
  auto fill = [&](TraceRing& ring) {
    records_.emplace_back(o_->trace_capacity);
    ring = {0, o_->trace_capacity, records_.back().data()};
  };
  for (uint32_t b = 0; b < o_->blocks; ++b) fill(daemon_->blocks[b].trace);
  for (auto& rings : slot_traces_) {
    rings.resize(o_->blocks);
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
  begin_core();
  gpu_.begin();
  if (copy_proxy_.exists()) copy_proxy_.begin();
}

// ---- kernels ------------------------------------------------------------------------------------------

void StreamRank::run_block(SimMachine& machine, const Kernel& kernel, uint32_t slot, uint32_t thread) {
  switch (kernel.kind) {
    case Kernel::Kind::kDaemon:
    case Kernel::Kind::kWatch: return run_daemon(machine, kernel, slot, thread);
    case Kernel::Kind::kStart: {
      auto& traces = slot_traces_[slot];
      gpu_.slot(slot).group.trace_written = traces.empty() ? nullptr : &traces[0].written;
      return core_->run_start(machine, kernel.arguments.data(), traces.empty() ? nullptr : traces.data(),
                              block_states_[slot]);
    }
    case Kernel::Kind::kCall:
      gpu_.slot(slot).group.trace_written = nullptr;
      return core_->run_call(machine, kernel.arguments.data(), block_states_[slot]);
    case Kernel::Kind::kGate: return core_->run_gate(machine, kernel.arguments.data());
    case Kernel::Kind::kFill:
      // What a replay of a broken lane reads is nobody's business, and peers may still read the last one's.
      if (SimLane& lane = *lanes_.at(kernel.lane); lane.spec().captured && *lane.fault() != 0) return;
      if (thread == 0) lanes_.at(kernel.lane)->fill(kernel.index);
      return;
    case Kernel::Kind::kCheck: {
      SimLane& lane = *lanes_.at(kernel.lane);
      // What a broken lane leaves is nobody's business.
      if (thread != 0 || *lane.fault() != 0) return;
      const std::string wrong = lane.check(kernel.index);
      if (!wrong.empty()) fail("lane " + std::to_string(kernel.lane) + ": " + wrong);
      return;
    }
    case Kernel::Kind::kCopy: {
      CopyArguments copy;
      std::memcpy(&copy, kernel.arguments.data(), sizeof copy);
      w_->shadow.will_read(copy.from, copy.bytes);
      return machine.write(copy.to, copy.from, copy.bytes);
    }
    case Kernel::Kind::kCompute:
      w_->scheduler.note_deadline(w_->scheduler.now() + kernel.ns);
      w_->scheduler.sleep();
      return;
  }
}

void StreamRank::run_daemon(SimMachine& machine, const Kernel& kernel, uint32_t slot, uint32_t thread) {
  const uint32_t b = machine.block_index();
  BlockGroup& group = gpu_.slot(slot).group;
  group.trace_written = o_->trace_capacity ? &daemon_->blocks[b].trace.written : nullptr;
  group.daemon_blocks = o_->trace_capacity ? daemon_->blocks : nullptr;
  const uint64_t launch = driver_->launches();
  const LeaveReason reason = core_->run_daemon(machine, kernel.arguments.data(), block_states_[slot]);
  group.daemon_blocks = nullptr;
  // All leave together: who leaves has raised drain (contract, point 5), or others serve its parts.
  w_->memory.fence();
  if (thread == 0 && o_->watch_limit == 0 && reason != LeaveReason::kElsewhere && daemon_->drain < launch)
    fail("a block left alone, and the others stay");
}

void StreamRank::progressed() {
  w_->scheduler.wake(app_fiber_);
  w_->scheduler.wake(poller_fiber_);
}

// ---- the application ----------------------------------------------------------------------------------

void StreamRank::application() {
  Scheduler& scheduler = w_->scheduler;
  if (scheduler.random().chance(o_->late_rank_chance)) {
    scheduler.note_deadline(scheduler.now() + scheduler.random().skewed(o_->late_rank_ns));
    scheduler.sleep();
  }
  const std::span<const Step> steps = c_->program->steps[index_];
  for (size_t k = 0; k < steps.size();) {
    size_t end = k + 1;
    while (steps[k].together != 0 && end < steps.size() && steps[end].together == steps[k].together) ++end;
    if (steps[k].together != 0)
      start(steps.subspan(k, end - k));
    else
      take(steps[k]);
    k = end;
    scheduler.note_progress();
  }
  wait_for_all();
  app_ended_ = true;
  scheduler.wake(poller_fiber_);
}

void StreamRank::take(const Step& step) {
  switch (step.kind) {
    case StepKind::kStart:
    case StepKind::kPrepared: return start({&step, 1});
    case StepKind::kStreamWait: return wait_on_stream(step);
    case StepKind::kCompute:
      return put_kernel(step.stream, Kernel::Kind::kCompute, 0, 0, step.ns, step.blocks);
    case StepKind::kSynchronize: ++synchronizations_; return gpu_.synchronize();
    case StepKind::kWait: return wait_for_all();
    case StepKind::kReplay: return replay(step.lane);
    case StepKind::kCopyBack: return gpu_.wait_in_driver(step.stream);
    case StepKind::kLoadKernels: return gpu_.wait_in_driver({});
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

// Nobody is asked: a replay reaches no code of ours on a host.
void StreamRank::replay(uint32_t graph) {
  lock();
  for (const uint32_t number : graphs_.lanes_of(graph)) {
    SimLane& lane = *lanes_.at(number);
    lane.open_to_streams();
    enter_lane(lane);
    lanes_.open(lane);
  }
  if (!graphs_.is_captured(graph)) graphs_.capture(graph, lanes_, *driver_);
  for (const uint32_t number : graphs_.lanes_of(graph)) {
    SimLane& lane = *lanes_.at(number);
    lane.count_replay();  // what will be checked
    submitted_ += lane.spec().calls.size();
    by_path_[kByKernel] += lane.spec().calls.size();
    replayed_ += lane.spec().calls.size();
  }
  w_->scheduler.wake(poller_fiber_);
  unlock();
  graphs_.replay(graph, gpu_);
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
  if (kind == Kernel::Kind::kFill && ns > 0) kernel.copy = 0;
  gpu_.put(stream, kernel, false);
}

// For all operations, and all streams.
void StreamRank::wait_for_all() {
  while (outstanding() + kept() > 0) w_->scheduler.sleep();
  for (uint32_t s = 0; s < gpu_.daemon_stream(); ++s)
    while (!gpu_.idle(s)) w_->scheduler.sleep();
  lock();
  reuse_given_back();
  unlock();
}

// ---- the poller ---------------------------------------------------------------------------------------

bool StreamRank::poll_once() {
  flush();
  if (o_->driver_connects && !lanes_.connected()) gpu_.wait_for_driver();
  lanes_.connect();
  lanes_.open_buffers();
  const bool any = take_completions() | take_told() | take_copied();
  look_after_copies();
  if (o_->timeout_ns) lanes_.check_timeouts([this](SimLane& lane) { fail_waiting(lane); });
  if (w_->scheduler.random().chance(o_->drain_chance)) driver_->drain();
  for (SimLane* lane : lanes_.mine()) submit_met(*lane);
  const auto waits = [](const auto& meeting) { return !meeting.empty(); };
  if (std::any_of(meeting_.begin(), meeting_.end(), waits))
    w_->scheduler.note_deadline(w_->scheduler.now() + kLookForPeersNs);
  if (driver_->asks_for_calls()) driver_->note_calls(calls_missing());
  driver_->note_called(any_called());
  wake_watches();
  driver_->poll();
  const uint64_t next = driver_->next_poll();
  if (next < kForever) w_->scheduler.note_deadline(next);
  return any;
}

// What began as a kernel goes by no queue. A lane's operations complete in their order.
bool StreamRank::take_told() {
  SimMachine host(*w_, nullptr, 0, 0);
  bool any = false;
  bool replays = false;
  for (SimLane* lane : lanes_.mine()) {
    if (lane->spec().copies) continue;
    if (lane->spec().captured) {
      if (lane->submitted() == 0) continue;
      any |= take_told_captured(*lane);
      replays |= lane->look_at_begun(host, w_->scheduler.now());
      continue;
    }
    auto& tickets = tickets_[lane->number()];
    for (auto oldest = tickets.begin(); oldest != tickets.end();) {
      if (oldest->second.path != kByKernel) {
        ++oldest;
        continue;
      }
      const uint64_t index = oldest->first;
      if (!core_->was_told(host, lane->handover(), o_->first_sequence + index)) break;
      finish_operation(*lane, index);
      any = true;
      oldest = tickets.upper_bound(index);
    }
  }
  driver_->note_replays(replays);
  return any;
}

// As Context::submit_met(): of the lane all arrivals, and what has met.
void StreamRank::submit_met(SimLane& lane) {
  if (lane.spec().copies || lane.spec().captured) return;
  SimMachine host(*w_, nullptr, 0, 0);
  auto& meeting = meeting_[lane.number()];
  bool in_order = true;
  for (uint64_t index = lane.oldest(); index < lane.placed(); ++index) {
    const auto found = meeting.find(index);
    const bool meets = found != meeting.end();
    if (!lane.broken) {
      const uint64_t sequence = o_->first_sequence + index;
      if (meets && host.load_acquire(lane.arrival(index)) != sequence + 1) return;
      lane.note_arrival(index);
    }
    if (!meets) continue;
    const auto& ranks = c_->lanes[lane.number()];
    in_order = in_order && (lane.broken || std::all_of(ranks.begin(), ranks.end(), [&](const SimLane* peer) {
                              return peer->has_arrived(index);
                            }));
    if (!in_order) continue;
    Submission submission = found->second;
    submission.marked = lane.broken;
    meeting.erase(found);
    driver_->met(tickets_[lane.number()].at(index));
    push(submission);
  }
}

// What the CPU submits is nobody's ticket.
bool StreamRank::any_called() const {
  return std::any_of(lanes_.mine().begin(), lanes_.mine().end(), [this](const SimLane* lane) {
    return !lane->spec().copies && !lane->spec().captured &&
           lane->submitted() - lane->completed() > tickets_[lane->number()].size();
  });
}

// As Context::calls_missing().
bool StreamRank::calls_missing() const {
  bool any = false;
  for (const SimLane* lane : lanes_.mine()) {
    if (lane->spec().copies || !lane->under_way()) continue;
    const auto& tickets = tickets_[lane->number()];
    // Of replays, and of what the CPU submits, nothing is known.
    if (lane->spec().captured || lane->submitted() - lane->completed() > tickets.size()) return false;
    const auto by_kernel = [](const auto& ticket) { return ticket.second.path == kByKernel; };
    const auto oldest = std::find_if(tickets.begin(), tickets.end(), by_kernel);
    if (oldest == tickets.end()) continue;
    if (lane->broken) return false;
    any = true;
    const auto& meeting = meeting_[lane->number()];
    if (!meeting.empty() && meeting.begin()->first < oldest->first) continue;
    const auto& ranks = c_->lanes[lane->number()];
    if (std::all_of(ranks.begin(), ranks.end(),
                    [&](const SimLane* peer) { return peer->submitted() > oldest->first; }))
      return false;
  }
  return any;
}

bool StreamRank::take_told_captured(SimLane& lane) {
  SimMachine host(*w_, nullptr, 0, 0);
  const uint64_t before = lane.completed();
  while (lane.completed() < lane.submitted() &&
         core_->was_told(host, lane.handover(), o_->first_sequence + lane.completed()))
    finish_operation(lane, lane.completed());
  // What comes to a closed lane begins no more: nobody will tell of it.
  if (const uint64_t skipped = lane.drop_skipped(); skipped != 0) {
    submitted_ -= skipped;
    w_->scheduler.wake(app_fiber_);
  }
  return lane.completed() > before;
}

void StreamRank::completed(SimLane& lane, uint64_t index, bool faulty) {
  ++c_->completed[lane.number()];
  if (lane.carried()) proxy_.end_work(1);
  finish_ticket(lane.number(), index);
  if (faulty && lane.spec().copies) keep(lane);
  if (faulty) fail_waiting(lane);
  lane.make_turns();
}

Submission StreamRank::place(SimLane& lane) {
  const auto ticket = tickets_[lane.number()].find(lane.placed());
  Submission submission = lane.place(o_->first_sequence);
  submission.marked = ticket != tickets_[lane.number()].end() && ticket->second.path == kByMark;
  return submission;
}

void StreamRank::finish_ticket(uint32_t lane, uint64_t index) {
  const auto ticket = tickets_[lane].find(index);
  if (ticket == tickets_[lane].end()) return;  // of no stream
  driver_->completed(ticket->second);
  if (ticket->second.box != 0) boxes_taken_[ticket->second.box - 1] = 0;
  tickets_[lane].erase(ticket);
}

// Also after each completion of a broken lane: see StreamHost::poison().
void StreamRank::fail_waiting(SimLane& lane) {
  lane.broken = true;
  const uint32_t number = lane.number();
  driver_->poison(lane.handover(), newest(lane));
  const uint64_t before = lane.submitted();
  lane.drop_waiting();
  for (uint64_t index = lane.submitted(); index < before; ++index) finish_ticket(number, index);
  submitted_ -= before - lane.submitted();
  if (lane.carried()) proxy_.end_work(before - lane.submitted());
  w_->scheduler.wake(app_fiber_);
}

// More than its operations ever were: those that were dropped have streams that wait, too.
uint64_t StreamRank::newest(const SimLane& lane) const { return o_->first_sequence + lane.submitted(); }

bool StreamRank::ended() {
  if (!app_ended_ || outstanding() > 0 || !all_given_back_) return false;
  push_exit();
  driver_->poll();
  if (!unsubmitted_.empty() || !driver_->settled()) return false;
  if (copy_proxy_.exists()) lanes_.leave(true);
  return true;
}

void StreamRank::end_fibers() {
  gpu_.end();
  if (has_proxy()) proxy_.end();
  if (copy_proxy_.exists()) copy_proxy_.end();
}

}  // namespace starling::sim
