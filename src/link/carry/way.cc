// A link as hosts see it (proxy.h).
#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "base/log.h"
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

// Slots are registered up to a limit: all their pages are kept, in use or not.
void Way::pair(uint32_t lane, LaneShared* theirs) {
  constexpr uint64_t kMostBytes = 256 << 20;
  std::unique_lock lock(proxy_.mutex_);
  RegistrationPtr slots = link_->slots_on_device(lane);
  bool must = false;
  if (const Channels* channels = link_->straight_channels(lane, theirs, must);
      channels != nullptr && (must || proxy_.slots_bytes_ + channels->bytes() <= kMostBytes)) {
    slots = proxy_.enroll({channels->memory(), channels->bytes()}, lock);
    if (slots != nullptr) proxy_.slots_bytes_ += channels->bytes();
  }
  if (must && slots == nullptr)
    link_->lose(
        "slots of messages cannot be registered, and the peer's lie in its GPU's memory, where nothing else "
        "reaches: allow more locked memory (ulimit -l), or set STARLING_GPUDIRECT=never on all ranks");
  link_->pair(lane, theirs, std::move(slots));
  proxy_.wake();
}

void Way::unpublish(uint32_t lane) {
  std::lock_guard lock(proxy_.mutex_);
  link_->unpublish(lane);
  proxy_.wake();
}

void Way::forget(uint32_t lane) {
  std::lock_guard lock(proxy_.mutex_);
  proxy_.slots_bytes_ -= link_->forget(lane);
  proxy_.wake();
}

bool Way::uses_rdma(bool received) {
  std::lock_guard lock(proxy_.mutex_);
  return received ? link_->receives_by_rdma() : link_->sends_by_rdma();
}

RegistrationPtr Way::enroll(const Region& region) {
  std::unique_lock lock(proxy_.mutex_);
  try {
    return proxy_.enroll(region, lock);
  } catch (const std::bad_alloc&) {  // then it is copied on its way
    return nullptr;
  }
}

bool Way::reaches_devices() {
  if (!proxy_.options_.gpu_direct || !proxy_.options_.straight || proxy_.rails_ == nullptr) return false;
  constexpr auto kMostWait = std::chrono::seconds(2);
  const auto end = std::chrono::steady_clock::now() + kMostWait;
  for (;;) {
    {
      std::lock_guard lock(proxy_.mutex_);
      if (const auto known = link_->has_only_queue_pairs()) return *known;
    }
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Way::say_where_slots_are(bool on_device) {
  std::lock_guard lock(proxy_.mutex_);
  if (std::exchange(proxy_.said_where_slots_are_, true)) return;
  log(LogLevel::info, on_device ? "links over RDMA: messages lie in the GPU's own memory (GPUDirect)"
                                : "links: messages pass through pinned memory of the host (no GPUDirect)");
}

void Way::expect(uint32_t lane, uint32_t channel, const Landing& landing, RegistrationPtr memory) {
  std::lock_guard lock(proxy_.mutex_);
  try {
    link_->expect(lane, channel, landing, std::move(memory));
  } catch (const std::bad_alloc&) {  // then the messages come to slots
  }
}

void Way::lend(uint32_t lane, uint32_t channel, Loan loan) {
  std::lock_guard lock(proxy_.mutex_);
  try {
    link_->lend(lane, channel, std::move(loan));
  } catch (const std::bad_alloc&) {  // then they are copied on their way
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

bool Way::is_used_by_devices(uint32_t lane) {
  std::lock_guard lock(proxy_.mutex_);
  return link_->is_used_by_devices(lane);
}

}  // namespace starling::link::carry
