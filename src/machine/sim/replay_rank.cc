#include "machine/sim/replay_rank.h"

#include <algorithm>

namespace starling::sim {
namespace {

constexpr uint32_t kTraceRecords = 1 << 20;  // of a block, between two looks at them: most are never touched

}  // namespace

// ---- memory -------------------------------------------------------------------------------------------

void ReplayRank::build(ReplayCluster& cluster, uint32_t index) {
  c_ = &cluster;
  uint64_t operations = 0;
  for (uint32_t lane : cluster.mine[index]) operations += cluster.depth[lane];
  build_daemon_rank({cluster.world, &cluster.settings->machine, cluster.core, index},
                    uint32_t(cluster.mine[index].size()), operations);
  build_lanes();
}

void ReplayRank::build_lanes() {
  const std::vector<uint32_t>& mine = c_->mine[index_];
  lanes_.resize(mine.size());
  for (size_t k = 0; k < mine.size(); ++k) {
    const uint32_t number = mine[k];
    const LaneSpec& spec = c_->program->lanes[number];
    const auto member = std::find(spec.ranks.begin(), spec.ranks.end(), index_);
    const uint32_t rank_in_lane = uint32_t(member - spec.ranks.begin());
    lanes_[k].build(*w_, *o_, spec, number, rank_in_lane, c_->depth[number], pool_);
    c_->lanes[number][rank_in_lane] = &lanes_[k];
  }
}

SimLane* ReplayRank::lane_numbered(uint64_t number) {
  const std::vector<uint32_t>& mine = c_->mine[index_];
  const auto at = std::lower_bound(mine.begin(), mine.end(), number);
  return at == mine.end() || *at != number ? nullptr : &lanes_[size_t(at - mine.begin())];
}

void ReplayRank::add_fibers() {
  add_host_fibers(first_unit());
  add_block_fibers();
  make_traces();
  share_core_words();
  for (SimLane& lane : lanes_)
    for (uint32_t s = 0; s < kLaneDepth; ++s) w_->memory.allow_many_writers(&lane.core().finished[s]);
}

// Parks are counted by lane in what blocks trace.
void ReplayRank::make_traces() {
  for (uint32_t b = 0; b < o_->blocks; ++b) {
    trace_.push_back(std::make_unique_for_overwrite<TraceRecord[]>(kTraceRecords));
    TraceRing& ring = daemon_->blocks[b].trace;
    ring.capacity = kTraceRecords;
    ring.records = trace_[b].get();
    groups_[b].trace_written = &ring.written;
  }
  trace_read_.assign(o_->blocks, 0);
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
  SimLane& lane = *lane_numbered(number);
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
  const uint32_t number = lane.number();
  enter_lane(lane);
  lane.open(host);
  lane.resolve(host, c_->lanes[number]);
  for (uint32_t peer : lane.spec().ranks) {
    if (peer == index_) continue;
    ReplayRank& other = (*c_->ranks)[peer];
    other.opened_.push_back({number, &lane});
    w_->scheduler.wake(other.poller_fiber_);
  }
}

// ---- the poller ---------------------------------------------------------------------------------------

bool ReplayRank::poll_once() {
  if (!unsubmitted_.empty()) flush();
  connect();
  count_parks();
  const bool any = take_completions();
  if (resident_ > 0 && w_->scheduler.random().chance(o_->drain_chance)) {
    SimMachine host(*w_, nullptr, 0, 0);
    host.store_release(&daemon_->drain, launch_);
  }
  launch_if_wanted(false);
  return any;
}

void ReplayRank::completed(SimLane&, uint64_t, bool) { ++c_->completed; }

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
    SimLane& lane = *lane_numbered(news.lane);
    if (lane.is_open()) lane.resolve(host, c_->lanes[news.lane]);
  }
}

// ---- the daemon's leaving -----------------------------------------------------------------------------

// One block decides, the others are drained by it; drained are all where the host did it.
void ReplayRank::thread_left(LeaveReason reason) {
  count_parks();
  if (reason != LeaveReason::kDrained) reason_ = reason;
}

void ReplayRank::all_left() {
  stuck_quits_ += reason_ == LeaveReason::kStuck;
  idle_quits_ += reason_ == LeaveReason::kIdle;
  limited_quits_ += reason_ == LeaveReason::kResidency || reason_ == LeaveReason::kDrained;
  reason_ = LeaveReason::kDrained;
}

// What blocks did since the last look.
void ReplayRank::count_parks() {
  for (uint32_t b = 0; b < trace_.size(); ++b) {
    const TraceRing& ring = daemon_->blocks[b].trace;
    if (ring.written - trace_read_[b] > kTraceRecords)
      fail("records of parks were lost; raise kTraceRecords");
    for (uint64_t& k = trace_read_[b]; k < ring.written; ++k) {
      const TraceRecord& record = ring.records[k & (ring.capacity - 1)];
      if (record.event == TraceEvent::kPark) ++c_->parks[record.lane];
    }
  }
}

// ---- for reports --------------------------------------------------------------------------------------

std::string ReplayRank::leftovers() const {
  const std::string left = core_leftovers(true);
  if (!left.empty()) return name() + ": " + left;
  for (const SimLane& lane : lanes_) {
    if (lane.submitted() != lane.completed()) return name() + ": an operation did not complete";
    if (lane.submitted() == 0) continue;
    const std::string leak = lane.leaks(c_->lanes[lane.number()]);
    if (!leak.empty()) return name() + ": " + leak;
  }
  return "";
}

std::string ReplayRank::state() const {
  std::string text = progress_text() + (resident_ ? ", daemon resident" : ", no daemon") +
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
