#include "machine/sim/scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/assert.h"

namespace starling::sim {
namespace {

constexpr uint32_t kTieBits = 12;

}  // namespace

void Scheduler::reset(const Options& options, uint64_t seed, Commit commit, void* memory) {
  options_ = &options;
  random_ = Random(seed, 1);
  fibers_.clear();
  agenda_.reset(0);
  at_once_.clear();
  commit_ = commit;
  memory_ = memory;
  now_ = last_progress_ = slices_ = 0;
  slice_ = 1;
  light_steps_ = ended_ = 0;
  std::fill(std::begin(dead_), std::end(dead_), 0);
  failure_.clear();
  exploring_ = atomic_ = false;
  choose = nullptr;
  touched = nullptr;
}

uint32_t Scheduler::add(uint32_t rank, void (*entry)(void*), void* argument) {
  const uint32_t id = uint32_t(fibers_.size());
  Fiber fiber{};
  fiber.context = boost::context::detail::make_fcontext(stacks_.top(id), StackPool::kStackBytes / 2, &enter);
  fiber.entry = entry;
  fiber.argument = argument;
  fiber.deadline = kForever;
  fiber.rank = rank;
  fiber.slowness = random_.chance(options_->slow_chance) ? 1 + random_.below(options_->slow_factor) : 1;
  fibers_.push_back(fiber);
  agenda_.admit(2 * id + 1);
  schedule(id, random_.below(options_->op_ns * 16 + 1));
  return id;
}

// First thing on a new stack.
void Scheduler::enter(boost::context::detail::transfer_t from) {
  auto* self = static_cast<Scheduler*>(from.data);
  self->arrived(from.fctx);
  Fiber& fiber = self->current();
  fiber.entry(fiber.argument);
  self->current().state = FiberState::kEnded;
  ++self->ended_;
  self->switch_away();
  STARLING_ASSERT(false, "a fiber that ended was resumed");
}

void Scheduler::run() {
  running_ = kMain;
  const uint32_t first = next();
  if (first != kMain) jump(first);
}

// Whoever jumps leaves its context with whom it jumps to.
void Scheduler::arrived(Context from) {
  if (previous_ == kMain)
    main_ = from;
  else
    fibers_[previous_].context = from;
}

void Scheduler::jump(uint32_t to) {
  previous_ = std::exchange(running_, to);
  const Context target = to == kMain ? main_ : fibers_[to].context;
  arrived(boost::context::detail::jump_fcontext(target, this).fctx);
}

// What earlier calls left below the fiber's stack pointer becomes part of its stack again when it calls
// deeper, and would tell apart states that are the same.
void Scheduler::run_fiber(uint32_t id) {
  constexpr size_t kDeadBytes = 4096;
  Fiber& fiber = fibers_[id];
  running_ = kMain;
  fiber.state = FiberState::kReady;
  fiber.started = true;
  fiber.next_word = nullptr;
  fiber.next_move = nullptr;
  auto* stack = static_cast<std::byte*>(fiber.context);
  std::memset(stack - kDeadBytes, 0, kDeadBytes);
  slice_ = 1;
  jump(id);
}

void Scheduler::explored_step() {
  if (!atomic_) return jump(kMain);
  if (current().next_word != nullptr) touched(explorer, current().next_word);
  current().next_word = nullptr;
  slice_ = 1;
}

void Scheduler::switch_away() {
  if (exploring_) return jump(kMain);
  const uint32_t to = next();
  if (to != running_) jump(to);
}

uint64_t Scheduler::key_at(uint64_t time) { return time << kTieBits | random_.next() >> (64 - kTieBits); }

void Scheduler::commit_at(uint64_t time, uint32_t fiber) {
  const uint64_t key = key_at(time);
  if (!agenda_.has(2 * fiber + 1) || agenda_.key_of(2 * fiber + 1) > key) agenda_.set(2 * fiber + 1, key);
}

uint32_t Scheduler::next() {
  while (!at_once_.empty()) {
    const uint32_t id = at_once_.back();
    at_once_.pop_back();
    if (dead(fibers_[id].rank)) continue;
    draw_slice();
    return id;
  }
  for (;;) {
    if (agenda_.empty()) return kMain;
    const Agenda::Event event = agenda_.take_first();
    const uint32_t id = event.who / 2;
    Fiber& fiber = fibers_[id];
    if (dead(fiber.rank)) continue;
    now_ = event.key >> kTieBits;
    if (event.who & 1) {
      commit_(memory_, id);
      continue;
    }
    if (now_ - last_progress_ > options_->progress_bound_ns || slices_ > options_->step_bound) {
      failure_ =
          slices_ > options_->step_bound
              ? "too many steps: " + std::to_string(slices_)
              : "no progress for " + std::to_string((now_ - last_progress_) / 1000) + " us of virtual time";
      return kMain;
    }
    fiber.state = FiberState::kReady;
    draw_slice();
    return id;
  }
}

void Scheduler::draw_slice() { slice_ = 1 + random_.below(2 * options_->mean_slice - 1); }

void Scheduler::end_slice() {
  ++slices_;
  Fiber& fiber = current();
  if (exploring_) return explored_step();
  uint64_t delay = uint64_t(random_.below(2 * options_->op_ns)) * fiber.slowness;
  if (random_.chance(options_->stall_chance)) delay += random_.skewed(options_->stall_ns);
  const uint64_t time = now_ + delay;
  if (at_once_.empty() && !agenda_.empty() && agenda_.first_key() >> kTieBits > time && !dead(fiber.rank)) {
    // Nobody else is due before: go on without a switch.
    now_ = time;
    draw_slice();
    return;
  }
  schedule(running_, time);
  switch_away();
}

void Scheduler::sleep() {
  Fiber& fiber = current();
  ++slices_;
  if (exploring_) {
    if (!fiber.woken) fiber.state = FiberState::kSleeping;
    fiber.must_expire = false;
    jump(kMain);
    current().deadline = kForever;
    current().woken = false;
    return;
  }
  const uint64_t deadline = std::exchange(fiber.deadline, kForever);
  if (std::exchange(fiber.woken, false)) {
    schedule(running_, now_ + random_.below(2 * options_->op_ns) * fiber.slowness);
  } else {
    fiber.state = FiberState::kSleeping;
    if (deadline != kForever) schedule(running_, deadline > now_ ? deadline : now_);
  }
  switch_away();
  current().woken = false;
}

void Scheduler::block() {
  current().must_expire = false;
  current().state = FiberState::kBlocked;
  switch_away();
}

void Scheduler::sleep_until_rung() {
  if (current().rung) {
    current().deadline = kForever;
    return end_slice();
  }
  current().woken = false;  // what changed since listen() was looked at
  current().deaf = true;
  sleep();
  current().deaf = false;
}

void Scheduler::rouse(uint32_t id) {
  Fiber& fiber = fibers_[id];
  if (fiber.state != FiberState::kSleeping) {
    fiber.woken = true;
    return;
  }
  if (fiber.woken) return;  // on its way already
  fiber.woken = true;
  if (exploring_) return;
  schedule(id, now_ + random_.below(4 * options_->op_ns) * fiber.slowness);
}

void Scheduler::resume(uint32_t id, uint64_t delay_ns) {
  STARLING_ASSERT(fibers_[id].state == FiberState::kBlocked, "resumed a fiber that is not blocked");
  fibers_[id].state = FiberState::kReady;
  if (!exploring_) schedule(id, now_ + delay_ns);
}

void Scheduler::resume_at_once(uint32_t id) {
  STARLING_ASSERT(fibers_[id].state == FiberState::kBlocked, "resumed a fiber that is not blocked");
  fibers_[id].state = FiberState::kReady;
  if (!exploring_) at_once_.push_back(id);
}

void Scheduler::fail(std::string why) {
  failure_ = std::move(why);
  jump(kMain);
  std::abort();  // nobody comes back here
}

}  // namespace starling::sim
