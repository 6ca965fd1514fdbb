#include "machine/sim/machine.h"

#include <cstring>
#include <utility>

#include "device/packets.h"

namespace starling::sim {
namespace {

// The part of a move that belongs to one thread: as device::combine_contiguous cuts it.
struct Part {
  uint64_t begin, end;
};
Part part_of(uint64_t bytes, uint32_t thread, uint32_t threads) {
  const uint64_t steps = (bytes + device::kSpanBytes - 1) / device::kSpanBytes;
  const uint64_t begin = steps * thread / threads * device::kSpanBytes;
  const uint64_t end = steps * (thread + 1) / threads * device::kSpanBytes;
  return {begin, end < bytes ? end : bytes};
}

}  // namespace

void SimMachine::copy_near(std::byte* to, const void* from, uint32_t bytes) {
  if (w_.fast.contains(from))
    w_.scheduler.fail("a block was told to read a plan in another block's fast memory");
  if (thread_ == 0) std::memcpy(to, from, bytes);
}

Lane* SimMachine::stage_lane(uint32_t slot, const Lane* lane) {
  static_assert(sizeof(Lane) <= kLaneStageBytes);
  if (group_->stage == nullptr) return const_cast<Lane*>(lane);
  std::byte* const ours = group_->stage + slot * kStageBytes;
  if (thread_ == 0) std::memcpy(ours, lane, sizeof *lane);
  return reinterpret_cast<Lane*>(ours);
}

void SimMachine::move(const Move& move) {
  const Part part = part_of(move.bytes, thread_, thread_count());
  if (part.begin >= part.end) return;
  w_.scheduler.step(move);
  for (uint32_t s = 0; s < move.source_count; ++s)
    w_.shadow.will_read(move.sources[s] + part.begin, part.end - part.begin);
  device::Combine c;
  for (uint32_t s = 0; s < move.source_count; ++s) c.sources[s] = move.sources[s];
  for (uint32_t d = 0; d < move.destination_count; ++d) c.destinations[d] = move.destinations[d];
  c.bytes = move.bytes;
  c.source_count = move.source_count;
  c.destination_count = move.destination_count;
  c.scaled_source = move.scaled_source;
  c.divisor = move.divisor;
  c.factor = move.factor;
  c.data_type = move.data_type;
  c.reduce_op = move.reduce_op;
  device::combine(*this, c);
  w_.scheduler.note_progress();
}

void copy_slice(SimMachine& m, std::byte* to, const std::byte* from, uint64_t bytes) {
  if (to == from) return;
  Move move{};
  move.sources[0] = from;
  move.destinations[0] = to;
  move.bytes = bytes;
  move.source_count = move.destination_count = move.divisor = 1;
  move.scaled_source = device::kNoSource;
  m.move(move);
}

void SimMachine::reduce_unit(const Move& move, const void* in, void* out) {
  device::Combine c;
  c.source_count = move.source_count;
  c.scaled_source = move.scaled_source;
  c.divisor = move.divisor;
  c.factor = move.factor;
  c.data_type = move.data_type;
  c.reduce_op = move.reduce_op;
  device::reduce_unit(*this, c, static_cast<const Pack*>(in), *static_cast<Pack*>(out));
}

bool SimMachine::meet(bool value) {
  BlockGroup& g = *group_;
  Memory& memory = w_.memory;
  g.value |= value;
  if (++g.arrived < g.threads) {
    w_.scheduler.block();
    return g.result;
  }
  g.arrived = 0;
  g.result = g.value;
  g.value = false;
  w_.shadow.merge(g.unit);
  memory.meet(g.fibers[0]);
  if (memory.checks()) memory.merge(g.fibers, g.threads);
  const bool result = g.result;
  for (uint32_t t = 0; t < g.threads; ++t) {
    if (t == thread_) continue;
    if (w_.scheduler.random().chance(kAlways / 4))
      w_.scheduler.resume(g.fibers[t], w_.scheduler.random().below(w_.scheduler.options().op_ns));
    else
      w_.scheduler.resume_at_once(g.fibers[t]);
  }
  return result;
}

bool SimMachine::expired(uint64_t start, uint64_t budget) {
  const Options& o = w_.scheduler.options();
  if (w_.scheduler.exploring()) return explored_expiry();
  const uint64_t now = w_.scheduler.now();
  if (now - start >= budget) return true;
  const bool leaving = budget == o.quit_period || budget == o.residency_limit;
  if (w_.scheduler.random().chance(leaving ? o.forced_quit_chance : o.forced_park_chance)) return true;
  w_.scheduler.note_deadline(start + budget);
  return false;
}

// Either way, as often as the fiber's allowance lasts; and when nothing else can happen.
bool SimMachine::explored_expiry() {
  Fiber& fiber = w_.scheduler.current();
  bool ended = fiber.must_expire;
  if (!ended && fiber.expiries > 0) {
    ended = w_.scheduler.choose(w_.scheduler.explorer);
    fiber.expiries -= ended;
  }
  if (!ended) w_.scheduler.note_deadline(0);
  return ended;
}

// Between two looks nothing that was seen can change but by a store or by time: so the fiber sleeps until one
// of them does. Not before the first, as only then is the budget's end noted.
void SimMachine::pause(uint32_t attempt) {
  if (attempt == 0) return;
  const uint64_t poll_ns = w_.scheduler.options().poll_ns;
  if (poll_ns != 0) w_.scheduler.note_deadline(w_.scheduler.now() + poll_ns);
  w_.scheduler.sleep();
}

// What changed while it waited for something else, it has not looked at again: so it looks sometimes anyway,
// even in a residency that ends only by order.
void SimMachine::idle(uint32_t pass) {
  Scheduler& scheduler = w_.scheduler;
  const Options& o = scheduler.options();
  if (group_->bell != nullptr) return sleep_at_bell(pass);
  if (!scheduler.exploring()) scheduler.note_deadline(scheduler.now() + o.quit_period);
  if (o.idle_sleeps)
    scheduler.sleep();
  else
    scheduler.yield();
}

// The first pass spins; the second prepares, and one more comes before the sleep, as the doorbell's protocol
// asks.
void SimMachine::sleep_at_bell(uint32_t pass) {
  constexpr uint64_t kSpinNs = 1000;
  Scheduler& scheduler = w_.scheduler;
  if (pass == 1) {
    scheduler.note_deadline(scheduler.now() + kSpinNs);
    return scheduler.sleep();
  }
  if (!std::exchange(group_->listens, true)) {
    scheduler.listen();
    return fence();
  }
  scheduler.note_deadline(scheduler.now() + scheduler.options().sleep_ns);
  scheduler.sleep_until_rung();
  group_->listens = false;
}

// The fence comes between the store that is told of and the look at who sleeps.
void SimMachine::ring(Bell& bell) {
  fence();
  for (const BlockGroup* block : bell.blocks)
    if (block->listens) w_.scheduler.wake(block->fibers[0]);
}

void SimMachine::ring_host(Bell& bell) {
  fence();
  w_.scheduler.wake(bell.poller);
}

}  // namespace starling::sim
