#include "machine/sim/gpu.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "wire/handover.h"

namespace starling::sim {
namespace {

constexpr uint64_t kStepsBetween = 256;  // a daemon's two launches, at most

}  // namespace

void Gpu::build(World& world, const Options& options, Client& client, uint32_t rank, uint32_t first_unit,
                uint32_t streams) {
  w_ = &world;
  o_ = &options;
  client_ = &client;
  rank_ = rank;
  first_unit_ = first_unit;
  streams_.assign(streams + kCopyEngines + 1, {});
  queues_.clear();
  queues_.resize(options.hardware_queues);
  later_.clear();
  resident_.clear();
  for (CopyEngine& engine : engines_) {
    engine.copies.clear();
    engine.ends_at = 0;
  }
  slots_.assign(options.sm_slots, {});
  threads_.clear();
  driver_taken_ = ending_ = false;
  entries_ = 0;
}

void Gpu::add_fibers() {
  Scheduler& scheduler = w_->scheduler;
  front_fiber_ = scheduler.add(rank_, &run_front, this);
  launcher_fiber_ = scheduler.add(rank_, &run_launcher, this);
  w_->memory.set_unit(front_fiber_, first_unit_);
  w_->memory.set_unit(launcher_fiber_, first_unit_);
  threads_.reserve(slots_.size() * o_->threads);
  for (uint32_t s = 0; s < slots_.size(); ++s) {
    slots_[s].group.threads = o_->threads;
    slots_[s].group.unit = first_unit_ + 1 + s;
    slots_[s].group.stage = w_->fast.allocate(SimMachine::kStageSlots * SimMachine::kStageBytes);
    slots_[s].group.plan_room = std::min(o_->plan_room, SimMachine::kPlanStageBytes);
    for (uint32_t t = 0; t < o_->threads; ++t) {
      threads_.push_back({this, s, t, 0});
      const uint32_t fiber = scheduler.add(rank_, &run_thread, &threads_.back());
      threads_.back().fiber = slots_[s].group.fibers[t] = fiber;
      w_->memory.set_unit(fiber, slots_[s].group.unit);
    }
  }
}

void Gpu::begin() {
  for (SimStream& stream : streams_) stream.clock.assign(w_->memory.width(), 0);
}

// ---- clocks: a stream knows what its entries did, an entry what its host knew ---------------------------

void Gpu::join(std::vector<uint32_t>& to, const uint32_t* from) {
  if (w_->memory.checks()) w_->memory.join(to.data(), from);
}

void Gpu::learn(const std::vector<uint32_t>& clock) {
  if (!w_->memory.checks()) return;
  const uint32_t fiber = w_->scheduler.current_id();
  w_->memory.join(w_->memory.clock(fiber), clock.data());
  w_->memory.touch(fiber);
}

// ---- the host's side ------------------------------------------------------------------------------------

void Gpu::wait_for_driver() {
  while (driver_taken_) w_->scheduler.sleep();
}

bool Gpu::driver_takes(uint32_t stream) const {
  const bool copies = stream > daemon_stream() && stream != helper_stream();
  return !driver_taken_ || (by_stream_ && copies);
}

bool Gpu::has_room(uint32_t stream) {
  return driver_takes(stream) && queue_of(stream).size() < o_->queue_depth;
}

void Gpu::wait_for_room(uint32_t stream) {
  while (!has_room(stream)) w_->scheduler.sleep();
}

// A launch shows the device all that its host stored before.
Gpu::Entry Gpu::known(uint32_t stream, Entry entry) {
  Memory& memory = w_->memory;
  memory.fence();
  if (memory.checks()) {
    const uint32_t fiber = w_->scheduler.current_id();
    entry.clock.assign(memory.clock(fiber), memory.clock(fiber) + memory.width());
    memory.advance(fiber);
  }
  entry.stream = stream;
  if (entry.kernel) entry.kernel->stream = stream;
  return entry;
}

void Gpu::add(Entry entry) {
  const uint32_t stream = entry.stream;
  entry.number = ++entries_;
  ++streams_[stream].put;
  queue_of(stream).push_back(std::move(entry));
  w_->scheduler.wake(front_fiber_);
}

void Gpu::put(uint32_t stream, const Kernel& kernel, bool ours) {
  wait_for_room(stream);
  add(known(stream, {EntryKind::kKernel, ours, 0, std::make_unique<Kernel>(kernel), nullptr, 0, 0, {}}));
}

void Gpu::put_later(uint32_t stream, const Kernel& kernel) {
  later_.push_back(
      known(stream, {EntryKind::kKernel, true, 0, std::make_unique<Kernel>(kernel), nullptr, 0, 0, {}}));
  w_->scheduler.wake(launcher_fiber_);
}

void Gpu::herald_later(uint32_t stream) {
  ++streams_[stream].heralds;
  later_.push_back(known(stream, {EntryKind::kHerald, true, 0, nullptr, nullptr, 0, 0, {}}));
  w_->scheduler.wake(launcher_fiber_);
}

void Gpu::put_write(uint32_t stream, uint64_t* word, uint64_t value) {
  wait_for_room(stream);
  add(known(stream, {EntryKind::kWrite, true, 0, nullptr, word, value, 0, {}}));
}

void Gpu::put_wait(uint32_t stream, const uint64_t* word, uint64_t value) {
  wait_for_room(stream);
  add(known(stream, {EntryKind::kWait, true, 0, nullptr, const_cast<uint64_t*>(word), value, 0, {}}));
}

void Gpu::launcher() {
  while (!ending_) {
    if (later_.empty() || !has_room(later_.front().stream)) {
      w_->scheduler.sleep();
      continue;
    }
    const bool herald = later_.front().kind == EntryKind::kHerald;
    add(std::move(later_.front()));
    later_.pop_front();
    progressed();
    // This thread is one of many: between its two launches it may lose its core.
    for (uint64_t steps = herald ? w_->scheduler.random().skewed(kStepsBetween) : 0; steps > 0 && !ending_;
         --steps)
      w_->scheduler.step();
  }
}

// An entry began or ended: hosts that wait look again.
void Gpu::progressed() {
  w_->scheduler.wake(launcher_fiber_);
  client_->progressed();
}

bool Gpu::idle(uint32_t stream) {
  if (!ended(stream)) return false;
  learn(streams_[stream].clock);
  return true;
}

uint32_t Gpu::queued(uint32_t stream) const {
  const auto& queue = queues_[queue_index(stream)];
  return uint32_t(std::count_if(queue.begin(), queue.end(), [](const Entry& e) { return e.ours; }));
}

bool Gpu::is_put(uint32_t stream) const {
  return std::none_of(later_.begin(), later_.end(), [stream](const Entry& e) { return e.stream == stream; });
}

bool Gpu::begun(uint32_t stream) const {
  const auto& queue = queues_[queue_index(stream)];
  const auto waits = [stream](const auto& kernel) {
    return kernel->stream == stream && kernel->dispatched == 0;
  };
  return is_put(stream) && std::none_of(resident_.begin(), resident_.end(), waits) &&
         std::none_of(queue.begin(), queue.end(), [stream](const Entry& e) { return e.stream == stream; });
}

void Gpu::synchronize() { wait_for_entries(0, uint32_t(streams_.size())); }

void Gpu::wait_for_entries(uint32_t from_stream, uint32_t to_stream) {
  for (uint32_t s = from_stream; s < to_stream; ++s) {
    // What was put in before the call, in this stream: others may add to it meanwhile.
    for (const uint64_t target = streams_[s].put; streams_[s].ended < target;) w_->scheduler.sleep();
  }
  for (uint32_t s = from_stream; s < to_stream; ++s) learn(streams_[s].clock);
}

void Gpu::wait_in_driver(std::optional<uint32_t> stream) {
  wait_for_driver();
  driver_taken_ = true;
  by_stream_ = stream.has_value();
  if (stream)
    wait_for_entries(*stream, *stream + 1);
  else
    wait_for_entries(0, uint32_t(streams_.size()));
  driver_taken_ = false;
  progressed();
}

void Gpu::end() {
  ending_ = true;
  w_->scheduler.wake(front_fiber_);
  w_->scheduler.wake(launcher_fiber_);
  for (Thread& thread : threads_)
    if (w_->scheduler.fiber(thread.fiber).state == FiberState::kBlocked)
      w_->scheduler.resume(thread.fiber, 0);
}

// ---- the front end ----------------------------------------------------------------------------------------

void Gpu::front() {
  while (!ending_) {
    bool any = false;
    for (auto& queue : queues_) any |= advance(queue);
    any |= dispatch();
    for (CopyEngine& engine : engines_) any |= serve_copies(engine);
    if (any) {
      progressed();
      w_->scheduler.step();
    } else {
      w_->scheduler.sleep();
    }
  }
}

// One entry at most.
bool Gpu::advance(std::deque<Entry>& queue) {
  if (queue.empty()) return false;
  Entry& head = queue.front();
  SimStream& stream = streams_[head.stream];
  if (stream.busy) return false;
  const uint64_t now = w_->scheduler.now();
  if (head.begins_at == 0) head.begins_at = 1 + now + w_->scheduler.random().skewed(o_->begin_delay_ns);
  if (now < head.begins_at) {
    w_->scheduler.note_deadline(head.begins_at);
    return false;
  }
  if (head.kind == EntryKind::kWait && !value_is_there(head, stream)) return false;
  if (is_kept_out(head)) return false;
  Entry entry = std::move(head);
  queue.pop_front();
  if (entry.kind == EntryKind::kKernel) {
    stream.busy = true;
    join(entry.clock, stream.clock.data());
    entry.kernel->clock = std::move(entry.clock);
    const uint32_t engine = entry.kernel->copy;
    (engine < kCopyEngines ? engines_[engine].copies : resident_).push_back(std::move(entry.kernel));
    return true;
  }
  if (entry.kind == EntryKind::kWrite) write_value(entry, stream);
  stream.heralds -= entry.kind == EntryKind::kHerald;
  ++stream.ended;
  return true;
}

// Where as many streams stand as there are hardware queues, what was put in behind them does not begin
// (GPU_PROBE.md). Here it is the daemon's kernel alone, its herald not, and one stream with a watch is
// enough.
bool Gpu::is_kept_out(const Entry& entry) const {
  if (o_->daemon_kept_out == 0 || entry.kind != EntryKind::kKernel || entry.stream != daemon_stream())
    return false;
  return std::any_of(queues_.begin(), queues_.end(), [&](const std::deque<Entry>& queue) {
    if (queue.size() < 3 || queue[0].kind != EntryKind::kWait || queue[0].number > entry.number) return false;
    const Entry& third = queue[2];  // behind the write of StreamHost::wait_for()
    return third.stream == queue[0].stream && third.kernel && third.kernel->kind == Kernel::Kind::kWatch;
  });
}

bool Gpu::value_is_there(const Entry& entry, SimStream& stream) {
  if (!reached(w_->memory.load(entry.word, true), entry.value)) return false;
  join(stream.clock, w_->memory.clock(front_fiber_));
  join(stream.clock, entry.clock.data());
  if (w_->memory.checks()) w_->memory.advance(front_fiber_);
  return true;
}

void Gpu::write_value(const Entry& entry, SimStream& stream) {
  join(stream.clock, entry.clock.data());
  learn(stream.clock);
  w_->memory.store(entry.word, entry.value, true);
}

// The daemon has the highest priority; the others come in their order.
Kernel* Gpu::next_to_dispatch() {
  Kernel* next = nullptr;
  for (const auto& kernel : resident_) {
    if (kernel->dispatched == kernel->blocks) continue;
    if (kernel->kind == Kernel::Kind::kDaemon) return kernel.get();
    if (next == nullptr) next = kernel.get();
  }
  return next;
}

bool Gpu::dispatch() {
  bool any = false;
  for (uint32_t s = 0; s < slots_.size(); ++s) {
    SmSlot& slot = slots_[s];
    if (slot.running > 0) continue;
    Kernel* kernel = next_to_dispatch();
    if (kernel == nullptr) return any;
    slot.kernel = kernel;
    slot.block = kernel->first + kernel->dispatched++;
    slot.running = o_->threads;
    ++slot.generation;
    any = true;
    const uint64_t delay = w_->scheduler.random().skewed(o_->launch_delay_ns);
    for (const uint32_t fiber : std::span(slot.group.fibers, o_->threads))
      if (w_->scheduler.fiber(fiber).state == FiberState::kBlocked) w_->scheduler.resume(fiber, delay);
  }
  return any;
}

// One after the other.
bool Gpu::serve_copies(CopyEngine& engine) {
  if (engine.copies.empty()) return false;
  const uint64_t now = w_->scheduler.now();
  if (engine.ends_at == 0) engine.ends_at = 1 + now + engine.copies.front()->ns;
  if (now < engine.ends_at) {
    w_->scheduler.note_deadline(engine.ends_at);
    return false;
  }
  engine.ends_at = 0;
  Kernel* copy = engine.copies.front().get();
  learn(copy->clock);
  SimMachine machine(*w_, nullptr, 0, 0);
  client_->run_block(machine, *copy, ~0u, 0);
  if (w_->memory.checks()) {
    w_->memory.join(copy->clock.data(), w_->memory.clock(front_fiber_));
    w_->memory.advance(front_fiber_);
  }
  kernel_ended(copy);
  return true;
}

// ---- SM slots ---------------------------------------------------------------------------------------------

void Gpu::slot_thread(Thread& thread) {
  SmSlot& slot = slots_[thread.slot];
  for (uint64_t generation = 0; !ending_;) {
    if (slot.generation == generation) {
      w_->scheduler.block();
      continue;
    }
    generation = slot.generation;
    learn(slot.kernel->clock);
    SimMachine machine(*w_, &slot.group, slot.block, thread.thread);
    client_->run_block(machine, *slot.kernel, thread.slot, thread.thread);
    thread_ended(thread);
  }
}

void Gpu::thread_ended(Thread& thread) {
  SmSlot& slot = slots_[thread.slot];
  Memory& memory = w_->memory;
  memory.fence();
  // What it did is known behind the kernel. Blocks that begin later know it too, which hides nothing that the
  // stream's order would not order anyway.
  if (memory.checks()) {
    memory.join(slot.kernel->clock.data(), memory.clock(thread.fiber));
    memory.advance(thread.fiber);
  }
  if (--slot.running > 0) return;
  Kernel* kernel = std::exchange(slot.kernel, nullptr);
  if (++kernel->ended == kernel->blocks) kernel_ended(kernel);
  w_->scheduler.wake(front_fiber_);
}

void Gpu::kernel_ended(Kernel* kernel) {
  SimStream& stream = streams_[kernel->stream];
  join(stream.clock, kernel->clock.data());
  stream.busy = false;
  ++stream.ended;
  auto& begun = kernel->copy < kCopyEngines ? engines_[kernel->copy].copies : resident_;
  std::erase_if(begun, [kernel](const auto& k) { return k.get() == kernel; });
  progressed();
}

std::string Gpu::state() const {
  std::string text;
  if (driver_taken_) text += "; a call waits for the GPU inside of the driver";
  for (size_t q = 0; q < queues_.size(); ++q) {
    if (queues_[q].empty()) continue;
    static constexpr const char* kWhat[] = {"a kernel", "a write", "a wait", "a herald"};
    const Entry& head = queues_[q].front();
    text += "; hardware queue " + std::to_string(q) + " has " + std::to_string(queues_[q].size()) +
            " entries, first " + kWhat[uint32_t(head.kind)] + " of stream " + std::to_string(head.stream);
  }
  static constexpr const char* kNames[] = {"daemon", "start", "fill", "check", "compute",
                                           "gate",   "watch", "copy", "call"};
  for (const auto& kernel : resident_)
    text += "; kernel '" + std::string(kNames[uint32_t(kernel->kind)]) + "' of stream " +
            std::to_string(kernel->stream) + ": " + std::to_string(kernel->dispatched - kernel->ended) +
            " blocks resident, " + std::to_string(kernel->blocks - kernel->dispatched) + " wait for a slot";
  return text;
}

}  // namespace starling::sim
