// A link as hosts see it (proxy.h).
#include <exception>
#include <new>

#include "link/carry/proxy.h"

namespace starling::link::carry {

std::string Way::failure() {
  std::lock_guard lock(proxy_.mutex_);
  return link_->failure();
}

uint32_t Way::open_lane(LaneShared* own, std::shared_ptr<Channels> channels, const OpenRecord& description) {
  std::lock_guard lock(proxy_.mutex_);
  const uint32_t number = link_->open_lane(own, std::move(channels), description);
  proxy_.wake();
  return number;
}

void Way::pair(uint32_t lane, LaneShared* theirs) {
  std::lock_guard lock(proxy_.mutex_);
  link_->pair(lane, theirs);
  proxy_.wake();
}

void Way::unpublish(uint32_t lane) {
  std::lock_guard lock(proxy_.mutex_);
  link_->unpublish(lane);
  proxy_.wake();
}

void Way::forget(uint32_t lane) {
  std::lock_guard lock(proxy_.mutex_);
  link_->forget(lane);
  proxy_.wake();
}

void Way::expect(uint32_t lane, uint32_t channel, const Landing& landing) {
  std::lock_guard lock(proxy_.mutex_);
  try {
    link_->expect(lane, channel, landing);
  } catch (const std::bad_alloc&) {  // then the messages come to slots
  }
}

// Without memory for the copies nothing may be read any more: the link ends.
void Way::take_back(uint32_t lane) {
  std::lock_guard lock(proxy_.mutex_);
  try {
    link_->take_back(lane);
  } catch (const std::exception& why) {
    link_->lose_by(why);
  }
  proxy_.wake();
}

}  // namespace starling::link::carry
