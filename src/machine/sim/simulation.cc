#include "machine/sim/simulation.h"

#include <algorithm>

namespace starling::sim {

void Report::add(const Report& other) {
  if (failure.empty()) {
    failure = other.failure;
    state = other.state;
  }
  virtual_ns += other.virtual_ns;
  slices += other.slices;
  operations += other.operations;
  instructions += other.instructions;
  parks += other.parks;
  saves += other.saves;
  quits += other.quits;
  launches += other.launches;
  synchronizations += other.synchronizations;
  started_as_kernel += other.started_as_kernel;
  taken_by_kernel += other.taken_by_kernel;
  replayed += other.replayed;
  carried += other.carried;
  copied += other.copied;
}

Simulation::Simulation(const Core& core) : core_(&core) {
  world_.memory.describe = [this](const void* address) {
    for (const Rank& rank : ranks_) {
      std::string text = rank.describe(address);
      if (!text.empty()) return text;
    }
    for (const auto& rank : stream_ranks_) {
      std::string text = rank->describe(address);
      if (!text.empty()) return text;
    }
    return std::string("an unknown word");
  };
}

// Stops a rank for ever: a process that dies leaves its memory as it is.
void Simulation::run_reaper(void* simulation) {
  auto* self = static_cast<Simulation*>(simulation);
  const Options& o = *self->cluster_.options;
  self->world_.scheduler.note_deadline(o.dying_ns);
  self->world_.scheduler.sleep();
  self->world_.scheduler.kill(uint32_t(o.dying_rank));
}

Report Simulation::run(const Program& program, const Options& options, uint64_t seed) {
  prepare(program, options, seed);
  world_.scheduler.run();
  return finish();
}

void Simulation::prepare(const Program& program, const Options& options, uint64_t seed) {
  cluster_ = Cluster{&world_, &options, &program, core_, {}, {}, {}, {}, {}};
  world_.scheduler.reset(options, seed, &Memory::commit_due, &world_.memory);
  world_.memory.reset(world_.scheduler, options);
  world_.shadow.reset(world_.scheduler, world_.memory, options);
  world_.fast.reset(false);
  world_.bells.assign(options.bells ? program.rank_count : 0, {});
  build();
}

Report Simulation::finish() {
  Report report;
  report.failure = world_.scheduler.failure();
  if (report.ok()) check_end(report);
  collect(report);
  if (!report.ok())
    for (const Rank& rank : ranks_) report.state += rank.state() + "\n";
  if (!report.ok())
    for (const auto& rank : stream_ranks_) report.state += rank->state() + "\n";
  return report;
}

void Simulation::build() {
  const Program& program = *cluster_.program;
  cluster_.completed.assign(program.lanes.size(), 0);
  cluster_.expected.assign(program.lanes.size(), {});
  cluster_.depth.resize(program.lanes.size());
  for (uint32_t k = 0; k < program.lanes.size(); ++k) cluster_.depth[k] = program.depth(k);
  cluster_.lanes.resize(program.lanes.size());
  for (size_t k = 0; k < program.lanes.size(); ++k)
    cluster_.lanes[k].assign(program.lanes[k].ranks.size(), nullptr);
  stream_ranks_.clear();
  if (program.streams > 0) {
    ranks_.clear();
    return build_streams();
  }
  // Not cleared: an exploration asks for the same addresses in every execution.
  ranks_.resize(program.rank_count);
  for (uint32_t r = 0; r < program.rank_count; ++r) ranks_[r].build(cluster_, r);
  for (Rank& rank : ranks_) rank.add_fibers();
  if (cluster_.options->dying_rank >= 0)
    world_.memory.set_unit(world_.scheduler.add(program.rank_count, &run_reaper, this), ~0u - 8);
  world_.memory.begin();
  for (Rank& rank : ranks_) rank.begin();
}

void Simulation::build_streams() {
  const Program& program = *cluster_.program;
  for (uint32_t r = 0; r < program.rank_count; ++r) stream_ranks_.push_back(std::make_unique<StreamRank>());
  cluster_.proxies.assign(cluster_.options->hosts > 1 ? program.rank_count : 0, nullptr);
  for (uint32_t r = 0; r < program.rank_count; ++r) stream_ranks_[r]->build(cluster_, r);
  for (auto& rank : stream_ranks_) rank->add_fibers();
  if (cluster_.options->dying_rank >= 0)
    world_.memory.set_unit(world_.scheduler.add(program.rank_count, &run_reaper, this),
                           program.rank_count * StreamRank::unit_count(*cluster_.options));
  world_.memory.begin();
  for (auto& rank : stream_ranks_) rank->begin();
}

void Simulation::connect_all() {
  for (auto& members : cluster_.lanes)
    for (SimLane* lane : members) lane->connect_before(members);
}

void Simulation::check_end(Report& report) {
  Scheduler& scheduler = world_.scheduler;
  for (uint32_t f = 0; f < scheduler.fiber_count(); ++f)
    if (scheduler.fiber(f).state != FiberState::kEnded && !scheduler.dead(scheduler.fiber(f).rank)) {
      report.failure = "deadlock: nothing can happen any more, and not all have ended";
      return;
    }
  for (uint32_t r = 0; r < ranks_.size() && report.ok(); ++r)
    if (!scheduler.dead(r)) report.failure = ranks_[r].leftovers();
  for (uint32_t r = 0; r < stream_ranks_.size() && report.ok(); ++r)
    if (!scheduler.dead(r)) report.failure = stream_ranks_[r]->leftovers();
}

void Simulation::collect(Report& report) const {
  report.virtual_ns = world_.scheduler.now();
  report.slices = world_.scheduler.slices();
  for (uint64_t count : cluster_.completed) report.operations += count;
  auto count = [&report](const auto& rank) {
    report.launches += rank.launches();
    report.synchronizations += rank.synchronizations();
    for (uint32_t b = 0; b < rank.daemon().block_count; ++b) {
      const BlockCounters& counters = rank.daemon().blocks[b].counters;
      report.instructions += counters.instructions;
      report.parks += counters.parks;
      report.saves += counters.saves;
    }
    if (rank.launches() > 0) report.quits += rank.launches() - 1;
  };
  for (const Rank& rank : ranks_) count(rank);
  for (const auto& rank : stream_ranks_) {
    count(*rank);
    report.carried += rank->carried();
    report.started_as_kernel += rank->started_as_kernel();
    report.taken_by_kernel += rank->taken_by_kernel();
    report.replayed += rank->replayed();
    report.copied += rank->copied();
  }
}

std::vector<Simulation::TracedEvent> Simulation::trace() const {
  std::vector<TracedEvent> events;
  auto take = [&events](const TraceRing& ring, uint32_t rank, uint32_t block) {
    for (uint64_t k = ring.written > ring.capacity ? ring.written - ring.capacity : 0; k < ring.written; ++k)
      events.push_back({ring.records[k & (ring.capacity - 1)], rank, block});
  };
  for (uint32_t r = 0; r < ranks_.size(); ++r)
    for (uint32_t b = 0; b < ranks_[r].daemon().block_count; ++b)
      take(ranks_[r].daemon().blocks[b].trace, r, b);
  for (uint32_t r = 0; r < stream_ranks_.size(); ++r)
    for (const auto& [block, ring] : stream_ranks_[r]->traces()) take(*ring, r, block);
  std::stable_sort(events.begin(), events.end(), [](const TracedEvent& a, const TracedEvent& b) {
    return a.record.ticks < b.record.ticks;
  });
  return events;
}

}  // namespace starling::sim
