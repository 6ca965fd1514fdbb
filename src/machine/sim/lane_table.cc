#include "machine/sim/lane_table.h"

#include <algorithm>

#include "machine/sim/proxy.h"

namespace starling::sim {

void LaneTable::build(Cluster& cluster, uint32_t rank, std::byte* pool) {
  c_ = &cluster;
  const Program& program = *cluster.program;
  const uint32_t count = uint32_t(program.lanes.size());
  lanes_.resize(count);
  by_number_.assign(count, nullptr);
  mine_.clear();
  connect_after_.assign(count, 0);
  for (uint32_t k = 0; k < count; ++k) {
    const LaneSpec& spec = program.lanes[k];
    const auto member = std::find(spec.ranks.begin(), spec.ranks.end(), rank);
    if (member == spec.ranks.end()) continue;
    const uint32_t rank_in_lane = uint32_t(member - spec.ranks.begin());
    lanes_[k].build(*cluster.world, *cluster.options, spec, k, rank_in_lane, cluster.depth[k], pool);
    by_number_[k] = &lanes_[k];
    mine_.push_back(&lanes_[k]);
    cluster.lanes[k][rank_in_lane] = &lanes_[k];
  }
}

void LaneTable::open(SimLane& lane) {
  if (lane.is_open()) return;
  SimMachine host(*c_->world, nullptr, 0, 0);
  lane.open(host);
  ring_hosts(lane);
  wake_proxy(lane);
  Scheduler& scheduler = c_->world->scheduler;
  connect_after_[lane.core().id] = scheduler.now() + scheduler.random().skewed(c_->options->connect_delay_ns);
}

// As real hosts do, after what peers' pollers look at.
void LaneTable::ring_hosts(const SimLane& lane) {
  SimMachine host(*c_->world, nullptr, 0, 0);
  if (!c_->options->bells) return;
  for (const uint32_t rank : lane.spec().ranks) host.ring_host(c_->world->bells[rank]);
}

void LaneTable::wake_proxy(const SimLane& lane) {
  if (!c_->proxies.empty()) c_->proxies[lane.spec().ranks[lane.rank()]]->wake();
}

bool LaneTable::may_connect(const SimLane& lane) const {
  return c_->world->scheduler.now() >= connect_after_[lane.number()];
}

void LaneTable::connect() {
  SimMachine host(*c_->world, nullptr, 0, 0);
  for (SimLane* lane : mine_) {
    if (!lane->is_open() || lane->resolved()) continue;
    if (may_connect(*lane))
      lane->resolve(host, c_->lanes[lane->number()]);
    else
      c_->world->scheduler.note_deadline(connect_after_[lane->number()]);
  }
}

void LaneTable::open_buffers() {
  if (!c_->options->opens) return;
  SimMachine host(*c_->world, nullptr, 0, 0);
  for (SimLane* lane : mine_)
    if (lane->is_open() && lane->spec().has(Protocol::kPull))
      lane->open_buffers(host, c_->lanes[lane->number()]);
}

bool LaneTable::connected() const {
  return std::all_of(mine_.begin(), mine_.end(),
                     [](const SimLane* lane) { return !lane->is_open() || lane->resolved(); });
}

// On all its ranks, so that nobody waits for it any more.
bool LaneTable::breaks(SimLane& lane) {
  if (!lane.under_way()) return false;
  SimMachine host(*c_->world, nullptr, 0, 0);
  if (host.load_acquire(lane.fault()) != 0) return true;
  const uint64_t deadline = lane.oldest_submission() + c_->options->timeout_ns;
  if (c_->world->scheduler.now() < deadline) {
    c_->world->scheduler.note_deadline(deadline);
    return false;
  }
  break_lane(lane);
  return true;
}

void LaneTable::break_lane(SimLane& lane) {
  SimMachine host(*c_->world, nullptr, 0, 0);
  for (SimLane* peer : c_->lanes[lane.number()])
    if (lane.is_carried(peer->rank()))
      host.store_release(lane.departures().broken(peer->rank()), 1);
    else if (host.load_acquire(peer->fault()) == 0)
      host.store_release(peer->fault(), 1);
  wake_proxy(lane);
  if (c_->options->bells)
    for (const uint32_t rank : lane.spec().ranks) host.notify(&c_->world->bells[rank]);
  ring_hosts(lane);
}

bool LaneTable::give_back(bool closing, bool copies) {
  SimMachine host(*c_->world, nullptr, 0, 0);
  bool all = true;
  for (SimLane* lane : mine_) {
    if (!lane->is_open() || !names_buffers(*lane, copies)) continue;
    const bool broken = host.load_acquire(lane->fault()) != 0;
    if (broken || closing) withdraw(*lane);
    if (!broken || lane->given_back) continue;
    if (is_read(*lane) || lane->on_device() != 0) {
      all = false;
      continue;
    }
    lane->given_back = true;
    if (!copies) lane->reuse_buffers();
  }
  return all;
}

void LaneTable::withdraw(SimLane& lane) {
  SimMachine host(*c_->world, nullptr, 0, 0);
  auto& members = c_->lanes[lane.number()];
  for (uint32_t peer = 0; peer < members.size(); ++peer) {
    if (peer == lane.rank() || lane.told[peer] || !lane.is_connected(peer)) continue;
    if (!c_->core->withdraw(host, lane.on_device(), members[peer]->out_word(lane.rank()))) return;
    lane.told[peer] = 1;
    if (c_->options->bells) host.ring_host(c_->world->bells[lane.spec().ranks[peer]]);
  }
}

void LaneTable::leave(bool copies) {
  SimMachine host(*c_->world, nullptr, 0, 0);
  for (SimLane* lane : mine_) {
    if (!lane->is_open() || !names_buffers(*lane, copies)) continue;
    auto& members = c_->lanes[lane->number()];
    for (uint32_t peer = 0; peer < members.size(); ++peer)
      if (peer != lane->rank() && !lane->told[peer])
        c_->core->withdraw(host, lane->on_device(), members[peer]->out_word(lane->rank()));
    ring_hosts(*lane);
  }
}

// A peer that is not connected got no message of ours.
bool LaneTable::is_read(SimLane& lane) {
  SimMachine host(*c_->world, nullptr, 0, 0);
  auto& members = c_->lanes[lane.number()];
  bool read = false;
  for (uint32_t peer = 0; peer < members.size(); ++peer) {
    if (peer == lane.rank() || !lane.is_connected(peer) || !members[peer]->is_open()) continue;
    const uint32_t rank = lane.spec().ranks[peer];
    if (c_->world->scheduler.dead(rank))
      learn_from_dead(rank);
    else
      read |= !c_->core->has_withdrawn(host, lane.out_word(peer));
  }
  return read;
}

// Who is told of a death by the kernel knows that all the dead one did came before.
void LaneTable::learn_from_dead(uint32_t rank) {
  Scheduler& scheduler = c_->world->scheduler;
  Memory& memory = c_->world->memory;
  if (!memory.checks()) return;
  for (uint32_t fiber = 0; fiber < scheduler.fiber_count(); ++fiber)
    if (scheduler.fiber(fiber).rank == rank)
      memory.join(memory.clock(scheduler.current_id()), memory.clock(fiber));
}

std::string LaneTable::describe(const void* address) const {
  for (const SimLane* lane : mine_) {
    const std::string text = lane->describe(address);
    if (!text.empty()) return text;
  }
  return "";
}

bool LaneTable::whole() const {
  return std::none_of(mine_.begin(), mine_.end(), [](const SimLane* lane) { return lane->broken; });
}

std::string LaneTable::leftovers() const {
  for (const SimLane* lane : mine_) {
    if (lane->broken || lane->submitted() == 0) continue;
    const std::string leak = lane->leaks(c_->lanes[lane->number()]);
    if (!leak.empty()) return "lane " + std::to_string(lane->number()) + ": " + leak;
  }
  return "";
}

}  // namespace starling::sim
