#include "link/carry/channels.h"

#include <utility>

namespace starling::link::carry {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

Channels::Channels(Place& place, const ChannelShape& shape, std::unique_ptr<SlotsOnDevice> on_device)
    : place_(place),
      shape_(shape),
      on_device_(std::move(on_device)),
      layout_(LaneShape{1, shape.channels, shape.slots, shape.slot_bytes, 0, 0}),
      half_bytes_(((on_device_ != nullptr ? layout_.slots : layout_.connectors_bytes) + kPage - 1) &
                  ~(kPage - 1)),
      memory_(place.allocate_shared(bytes())),
      arrivals_(half_at(memory_, 0)),
      departures_(half_at(memory_ + half_bytes_, 1)) {
  for (const Half& half : {arrivals_, departures_})
    for (uint32_t c = 0; c < shape_.channels; ++c) {
      half.credit[c].granted = shape_.slots;
      for (uint32_t k = 0; k < shape_.slots; ++k) half.credit[c].grants[k] = k;
    }
}

Channels::~Channels() { place_.release_shared(memory_, bytes()); }

Channels::Half Channels::half_at(std::byte* memory, uint32_t number) const {
  Half half{reinterpret_cast<Inbox*>(memory), reinterpret_cast<Credit*>(memory + layout_.credit),
            memory + layout_.slots, memory + layout_.slots};
  if (on_device_ == nullptr) return half;
  half.slots = on_device_->half(number);
  half.named = on_device_->named_half(number);
  return half;
}

}  // namespace starling::link::carry
