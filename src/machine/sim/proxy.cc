#include "machine/sim/proxy.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace starling::sim {
namespace {

constexpr uint64_t kGlanceNs = 50'000;  // a peer that dies does not say so

}  // namespace

void Proxy::build(Cluster& cluster, uint32_t rank, const std::vector<SimLane*>& lanes) {
  c_ = &cluster;
  o_ = cluster.options;
  rank_ = rank;
  cluster.proxies[rank] = this;
  flows_.assign(cluster.program->rank_count, {});
  lines_.clear();
  const uint64_t first = o_->first_message;
  for (SimLane* lane : lanes)
    for (uint32_t peer = 0; peer < lane->spec().ranks.size(); ++peer) {
      if (!lane->is_carried(peer)) continue;
      Line& line = lines_.emplace_back(Line{lane, peer, false, false, false, false, false, {}, {}});
      for (uint32_t channel = 0; channel < lane->channel_count(); ++channel) {
        if (!lane->departures().has(peer, channel)) continue;
        line.channels.push_back(channel);
        line.carried.push_back({first, first + kMaxCredits, first, first + kMaxCredits});
      }
    }
}

void Proxy::add_fiber(uint32_t unit) {
  fiber_ = c_->world->scheduler.add(rank_, &run_fiber, this);
  c_->world->memory.set_unit(fiber_, unit);
}

void Proxy::begin_work() {
  ++begun_;
  if (o_->proxies_hear) wake();
}

void Proxy::end() {
  ending_ = true;
  wake();
}

std::string Proxy::state() const {
  size_t transfers = 0;
  for (const Flow& flow : flows_) transfers += flow.transfers.size();
  return "; proxy: " + std::to_string(begun_ - ended_) + " operations under way, " +
         std::to_string(transfers) + " transfers on their way" + (gone_ ? ", ended" : "");
}

// ---- the fiber ----------------------------------------------------------------------------------------

// As Proxy::doze() does it: of operations that had ended before, the look sees all that their blocks stored.
void Proxy::run() {
  Scheduler& scheduler = c_->world->scheduler;
  for (;;) {
    scheduler.listen();
    const bool was_idle = idle() || !o_->proxies_hear, was_ending = ending_;
    if (look())
      scheduler.step();
    else if (was_ending && all_landed())
      break;
    else
      rest(was_idle);
  }
  gone_ = true;
  for (Proxy* peer : c_->proxies) peer->wake();
}

bool Proxy::look() {
  bool any = false;
  for (uint32_t from = 0; from < flows_.size(); ++from) any |= take(c_->proxies[from]->flows_[rank_], from);
  for (Line& line : lines_) read(line);
  for (Line& line : lines_) tell_open(line);
  for (Line& line : lines_) tell_messages(line);
  for (Line& line : lines_) tell_grants(line);
  for (Line& line : lines_) tell_broken(line);
  for (Flow& flow : flows_) close_batch(flow);
  for (uint32_t to = 0; to < flows_.size(); ++to) any |= transmit(to);
  return any;
}

void Proxy::rest(bool was_idle) {
  Scheduler& scheduler = c_->world->scheduler;
  if (ending_) scheduler.note_deadline(scheduler.now() + kGlanceNs);
  if (scheduler.random().chance(o_->nap_chance)) {
    const uint64_t until = scheduler.now() + scheduler.random().skewed(o_->nap_ns);
    for (; scheduler.now() < until; scheduler.sleep()) scheduler.note_deadline(until);
  } else if (was_idle) {
    scheduler.sleep_until_rung();
  } else {
    scheduler.sleep();
  }
}

// Or nobody is there to whom it could.
bool Proxy::all_landed() const {
  for (uint32_t to = 0; to < flows_.size(); ++to)
    if (!flows_[to].transfers.empty() && !c_->proxies[to]->gone_ && !c_->world->scheduler.dead(to))
      return false;
  return true;
}

// ---- what our side does -------------------------------------------------------------------------------

// The host's last word before what blocks stored: that is told after it.
void Proxy::read(Line& line) {
  SimMachine m(*c_->world, nullptr, 0, 0);
  Departures& departures = line.lane->departures();
  // Acquire: pairs with the release in LaneTable::breaks().
  if (!line.broken) line.broken = m.load_acquire(departures.broken(line.peer)) != 0;
  // Acquire: pairs with the release in SimLane::open().
  if (!line.opened) line.opened = m.load_acquire(line.lane->opened()) != 0;
  if (!line.opened || !line.met) return;
  for (size_t k = 0; k < line.channels.size(); ++k)
    c_->core->look_at_departures(m, departures.half(line.peer, line.channels[k]), line.carried[k]);
}

void Proxy::tell_open(Line& line) {
  if (!line.opened || std::exchange(line.open_told, true)) return;
  flow_of(line).batch.push_back({RecordKind::kOpen, line.lane->number(), {}});
}

void Proxy::tell_messages(Line& line) {
  Flow& flow = flow_of(line);
  for (size_t k = 0; k < line.channels.size(); ++k) {
    const uint32_t channel = line.channels[k];
    const CarriedHalf departing = line.lane->departures().half(line.peer, channel);
    while (line.carried[k].has_message()) {
      const CarriedMessage message =
          c_->core->take_message(line.lane->arrivals(line.peer, channel), departing, line.carried[k]);
      Transfer& transfer = flow.transfers.emplace_back();
      transfer.records.swap(flow.batch);
      transfer.source = line.lane->departures().slots(line.peer, channel) +
                        uint64_t(message.slot) * line.lane->core().slot_bytes;
      transfer.lane = line.lane->number();
      transfer.channel = channel;
      transfer.slot = message.slot;
      transfer.bytes = message.bytes;
      if (message.bytes > line.lane->core().slot_bytes)
        c_->world->scheduler.fail("a message between hosts is longer than its slot");
    }
  }
}

void Proxy::tell_grants(Line& line) {
  for (size_t k = 0; k < line.channels.size(); ++k) {
    if (!line.carried[k].has_grants()) continue;
    const CarriedHalf departing = line.lane->departures().half(line.peer, line.channels[k]);
    flow_of(line).batch.push_back({RecordKind::kGrants, line.lane->number(),
                                   c_->core->take_grants(departing, line.channels[k], line.carried[k])});
  }
}

void Proxy::tell_broken(Line& line) {
  if (!line.broken || std::exchange(line.broken_told, true)) return;
  flow_of(line).batch.push_back({RecordKind::kFault, line.lane->number(), {}});
}

void Proxy::close_batch(Flow& flow) {
  if (!flow.batch.empty()) flow.transfers.emplace_back().records.swap(flow.batch);
}

// A source is read when its transfer is sent, and again if it is sent again.
bool Proxy::transmit(uint32_t to) {
  Scheduler& scheduler = c_->world->scheduler;
  Memory& memory = c_->world->memory;
  Flow& flow = flows_[to];
  bool any = false;
  while (flow.sent < flow.transfers.size()) {
    if (scheduler.now() < flow.down_until_ns) {
      scheduler.note_deadline(flow.down_until_ns);
      break;
    }
    scheduler.step();
    Transfer& transfer = flow.transfers[flow.sent++];
    // Between two chunks there may be bytes that no message has.
    c_->world->shadow.will_copy(transfer.source, transfer.bytes);
    transfer.carried.assign(transfer.source, transfer.source + transfer.bytes);
    if (memory.checks()) {
      transfer.clock.assign(memory.clock(fiber_), memory.clock(fiber_) + memory.width());
      memory.advance(fiber_);
    }
    transfer.due_ns = flow.last_due_ns =
        std::max(flow.last_due_ns, scheduler.now() + scheduler.random().skewed(o_->carry_ns));
    any = true;
    c_->proxies[to]->wake();
    if (scheduler.random().chance(o_->path_break_chance)) break_path(flow);
  }
  return any;
}

void Proxy::break_path(Flow& flow) {
  Scheduler& scheduler = c_->world->scheduler;
  flow.sent = 0;
  flow.down_until_ns = flow.last_due_ns = scheduler.now() + scheduler.random().skewed(o_->path_break_ns);
}

// ---- what comes ---------------------------------------------------------------------------------------

bool Proxy::take(Flow& flow, uint32_t from) {
  Scheduler& scheduler = c_->world->scheduler;
  bool any = false;
  while (flow.sent > 0) {
    if (const uint64_t due = flow.transfers.front().due_ns; due > scheduler.now()) {
      scheduler.note_deadline(due);
      break;
    }
    // It has landed: from here on its source is not read again.
    const Transfer transfer = std::move(flow.transfers.front());
    flow.transfers.pop_front();
    --flow.sent;
    land(transfer, from);
    c_->proxies[from]->wake();
    any = true;
  }
  return any;
}

void Proxy::land(const Transfer& transfer, uint32_t from) {
  Memory& memory = c_->world->memory;
  if (memory.checks()) {
    memory.join(memory.clock(fiber_), transfer.clock.data());
    memory.touch(fiber_);
  }
  for (const Record& record : transfer.records) apply(record, line_of(record.lane, from));
  if (transfer.bytes == 0) return;
  SimMachine m(*c_->world, nullptr, 0, 0);
  Line& line = line_of(transfer.lane, from);
  m.write(line.lane->arriving_slot(line.peer, transfer.channel, transfer.slot), transfer.carried.data(),
          transfer.bytes);
  c_->core->deliver_message(m, line.lane->arrivals(line.peer, transfer.channel));
  ++messages_;
}

void Proxy::apply(const Record& record, Line& line) {
  SimMachine m(*c_->world, nullptr, 0, 0);
  switch (record.kind) {
    case RecordKind::kOpen:
      line.met = true;
      // Release: pairs with the acquire in SimLane::resolve().
      return m.store_release(line.lane->departures().met(line.peer), 1);
    case RecordKind::kGrants:
      return c_->core->deliver_grants(m, line.lane->arrivals(line.peer, record.grants.channel),
                                      record.grants);
    case RecordKind::kFault: return m.store_release(line.lane->fault(), 1);
    default: c_->world->scheduler.fail("proxies of the simulator tell nothing else");
  }
}

Proxy::Line& Proxy::line_of(uint32_t lane, uint32_t rank) {
  return *std::find_if(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.lane->number() == lane && line.lane->spec().ranks[line.peer] == rank;
  });
}

}  // namespace starling::sim
