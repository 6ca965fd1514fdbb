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
  changed_.notify_one();
  thread_.join();
}

void Undertaker::bury(std::list<Remains>& remains) {
  {
    std::lock_guard lock(mutex_);
    waiting_.splice(waiting_.end(), remains);
  }
  changed_.notify_one();
}

void Undertaker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::list<Remains> one;
    one.splice(one.end(), waiting_, waiting_.begin());
    lock.unlock();
    one.clear();
    lock.lock();
  }
}

}  // namespace starling::link::verbs
