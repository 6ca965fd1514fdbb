#include "link/sim/timed_network.h"

#include <algorithm>

#include "base/assert.h"

namespace starling::link::sim {

TimedNetwork::TimedNetwork(uint32_t paths, uint64_t seed, const WireSettings& wires)
    : random_(seed), paths_(paths) {
  STARLING_ASSERT(paths >= 1 && paths <= kMaxPaths, "1 to 8 paths");
  for (Path& path : paths_)
    for (Wire& wire : path.from) wire.settings = wires;
}

// ---- time ----------------------------------------------------------------------------------------------
bool TimedNetwork::step() {
  if (agenda_.empty()) return false;
  auto next = agenda_.extract(agenda_.begin());
  now_ns_ = next.key().first;
  next.mapped()();
  return true;
}

void TimedNetwork::at(uint64_t when_ns, Step step) {
  agenda_.emplace(std::pair(std::max(when_ns, now_ns_), asked_++), std::move(step));
}

void TimedNetwork::to_rank(uint32_t rank, Step step) {
  if (ranks_[rank].dead) return;
  ranks_[rank].steps.push_back(std::move(step));
  serve_later(rank);
}

void TimedNetwork::serve_later(uint32_t rank) {
  Rank& r = ranks_[rank];
  if (r.busy || r.held || r.dead || r.steps.empty()) return;
  r.busy = true;
  at(r.free_ns, [this, rank] { serve(rank); });
}

void TimedNetwork::serve(uint32_t rank) {
  Rank& r = ranks_[rank];
  r.busy = false;
  if (r.held || r.dead || r.steps.empty()) return;
  const Step step = std::move(r.steps.front());
  r.steps.pop_front();
  r.free_ns = now_ns_ + r.step_ns;
  step();
  serve_later(rank);
}

// ---- wires ---------------------------------------------------------------------------------------------
std::pair<uint64_t, uint64_t> TimedNetwork::send(uint32_t path, uint32_t from, uint64_t bytes) {
  Wire& wire = paths_[path].from[from];
  const WireSettings& s = wire.settings;
  wire.free_ns = std::max(wire.free_ns, now_ns_) + bytes * 1000 / s.bytes_per_us;
  const uint64_t jitter = s.jitter_ns == 0 ? 0 : random_.between(0, s.jitter_ns);
  return {wire.free_ns, wire.free_ns + s.latency_ns + jitter};
}

bool TimedNetwork::passes(uint32_t path, uint32_t from) const {
  const Path& p = paths_[path];
  return !p.from[from].silent && p.port_up[0] && p.port_up[1] && !ranks_[0].silent && !ranks_[1].silent;
}

void TimedNetwork::called_from(uint32_t path, uint32_t rank, uint32_t address) {
  for (Listener* listener : listeners_) listener->called_from(path, rank, address);
}

// ---- what goes wrong -----------------------------------------------------------------------------------
void TimedNetwork::set_port(uint32_t path, uint32_t rank, bool up) {
  if (paths_[path].port_up[rank] == up) return;
  paths_[path].port_up[rank] = up;
  at(now_ns_ + kPortEventNs, [=, this] {
    to_rank(rank, [=, this] {
      for (Listener* listener : listeners_) listener->port_changed(path, rank, up);
    });
  });
}

void TimedNetwork::cut(uint32_t path, uint32_t heard_by) {
  paths_[path].refuses = true;
  paths_[path].tells_resets = heard_by == 3;
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    if (heard_by >> rank & 1)
      for (Listener* listener : listeners_) listener->reset(path, rank);
}

void TimedNetwork::heal(uint32_t path) {
  paths_[path].refuses = false;
  paths_[path].tells_resets = true;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    silence(path, rank, false);
    set_port(path, rank, true);
  }
}

void TimedNetwork::hold(uint32_t rank, bool held) {
  ranks_[rank].held = held;
  serve_later(rank);
}

void TimedNetwork::die(uint32_t rank, bool silently) {
  for (uint32_t p = 0; p < path_count() && !silently; ++p)
    for (Listener* listener : listeners_)
      for (uint32_t r = 0; r < kRanks; ++r) listener->reset(p, r);
  ranks_[rank].dead = true;
  ranks_[rank].silent = silently;
  ranks_[rank].steps.clear();
}

}  // namespace starling::link::sim
