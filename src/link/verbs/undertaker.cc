#include "link/verbs/undertaker.h"

namespace starling::link::verbs {

Remains::~Remains() {
  pairs.clear();
  if (queue != nullptr) library.destroy_cq(queue);
  if (events != nullptr) library.destroy_comp_channel(events);
}

Undertaker::~Undertaker() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Undertaker::bury(std::list<Remains>& remains) {
  {
    std::lock_guard lock(mutex_);
    waiting_.splice(waiting_.end(), remains);
  }
  changed_.notify_all();
}

void Undertaker::bury(std::list<std::unique_ptr<Registered>>& memory) {
  {
    std::lock_guard lock(mutex_);
    memory_.splice(memory_.end(), memory);
  }
  changed_.notify_all();
}

void Undertaker::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && memory_.empty() && !busy_; });
}

void Undertaker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty() || !memory_.empty(); });
    if (waiting_.empty() && memory_.empty()) return;
    std::list<Remains> one;
    std::list<std::unique_ptr<Registered>> memory;
    if (!waiting_.empty()) one.splice(one.end(), waiting_, waiting_.begin());
    memory.swap(memory_);
    busy_ = true;
    lock.unlock();
    one.clear();  // its sources may come back to memory_
    memory.clear();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace starling::link::verbs
