#include "machine/sim/copy_proxy.h"

#include <utility>

namespace starling::sim {

void CopyProxy::build(World& world, const Core& core, Gpu& gpu) {
  w_ = &world;
  driver_ = core.make_copies({&world, &gpu});
  added_ = {};
  finished_ = {};
  ending_ = false;
}

void CopyProxy::add_fiber(uint32_t rank, uint32_t unit, uint32_t poller) {
  fiber_ = w_->scheduler.add(rank, &run_fiber, this);
  w_->memory.set_unit(fiber_, unit);
  poller_ = poller;
}

void CopyProxy::begin() {
  added_.clock.assign(w_->memory.width(), 0);
  finished_.clock.assign(w_->memory.width(), 0);
}

void CopyProxy::end() {
  ending_ = true;
  w_->scheduler.wake(fiber_);
}

template <class T>
void CopyProxy::put(Box<T>& box, const T& item) {
  box.items.push_back(item);
  Memory& memory = w_->memory;
  memory.fence();
  if (!memory.checks()) return;
  memory.join(box.clock.data(), memory.clock(w_->scheduler.current_id()));
  memory.advance(w_->scheduler.current_id());
}

template <class T>
void CopyProxy::learn(const Box<T>& box) {
  Memory& memory = w_->memory;
  if (!memory.checks()) return;
  memory.join(memory.clock(w_->scheduler.current_id()), box.clock.data());
  memory.touch(w_->scheduler.current_id());
}

void CopyProxy::add(const CopyWork& work) {
  put(added_, work);
  w_->scheduler.wake(fiber_);
}

bool CopyProxy::take(Finished& finished) {
  if (finished_.items.empty()) return false;
  learn(finished_);
  finished = finished_.items.front();
  finished_.items.erase(finished_.items.begin());
  return true;
}

void CopyProxy::run() {
  while (!ending_) {
    if (!added_.items.empty()) learn(added_);
    for (const CopyWork& work : std::exchange(added_.items, {})) driver_->add(work);
    const bool any = driver_->step([this](SimLane* lane, uint64_t index) {
      put(finished_, {lane, index});
      w_->scheduler.wake(poller_);
    });
    if (any)
      w_->scheduler.step();
    else
      w_->scheduler.sleep();
  }
}

}  // namespace starling::sim
