// A link as hosts see it (proxy.h).
#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "base/error.h"
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
  RegistrationPtr slots;
  bool must = false;
  if (const Channels* channels = link_->straight_channels(lane, theirs, must);
      channels != nullptr && (must || proxy_.slots_bytes_ + channels->bytes() <= kMostBytes)) {
    if (must || proxy_.options_.straight)
      slots = proxy_.enroll({channels->memory(), channels->bytes()}, lock);
    if (slots != nullptr) proxy_.slots_bytes_ += channels->bytes();
    if (must && slots == nullptr) {
      const Error why(
          Code::system,
          "slots of messages cannot be registered, and the peer's lie in its GPU's memory, where nothing "
          "else reaches",
          "allow more locked memory (ulimit -l), or set STARLING_GPUDIRECT=never on all ranks");
      link_->lose_by(why);
    }
  }
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
  const RegisteredBytes registered = link_->forget(lane);
  proxy_.slots_bytes_ -= registered.pinned;
  proxy_.device_slots_bytes_ -= registered.on_device;
  proxy_.wake();
}

bool Way::uses_rdma(bool received) {
  std::lock_guard lock(proxy_.mutex_);
  return received ? link_->receives_by_rdma() : link_->sends_by_rdma();
}

// On the device up to a limit, too: more lanes than anybody has should not take a GPU's memory.
RegistrationPtr Way::enroll(const Region& region) {
  constexpr uint64_t kMostDeviceBytes = uint64_t(4) << 30;
  std::unique_lock lock(proxy_.mutex_);
  if (!proxy_.options_.straight) return nullptr;
  if (region.on_device && proxy_.device_slots_bytes_ + region.bytes > kMostDeviceBytes) return nullptr;
  try {
    RegistrationPtr registered = proxy_.enroll(region, lock);
    if (registered != nullptr && region.on_device) proxy_.device_slots_bytes_ += region.bytes;
    return registered;
  } catch (const std::bad_alloc&) {  // then it is copied on its way
    return nullptr;
  }
}

bool Way::reaches_devices(std::chrono::steady_clock::time_point end) {
  if (!proxy_.options_.gpu_direct || !proxy_.options_.straight || proxy_.rails_ == nullptr) return false;
  for (;;) {
    {
      std::lock_guard lock(proxy_.mutex_);
      if (!reaches_devices_) reaches_devices_ = link_->has_only_queue_pairs();
      if (!reaches_devices_ && std::chrono::steady_clock::now() > end) reaches_devices_ = false;
      if (reaches_devices_) return *reaches_devices_;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Way::say_where_slots_are(bool on_device) {
  std::lock_guard lock(proxy_.mutex_);
  if (std::exchange(said_where_slots_are_, true)) return;
  log(LogLevel::info, "messages with rank ", link_->peer_rank(),
      on_device ? " lie in this GPU's own memory (GPUDirect)"
                : " pass through pinned memory of this host (no GPUDirect)");
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
