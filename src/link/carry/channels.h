// The connectors of a lane with one rank of another host, both halves of each, in memory that our blocks and
// our proxy share (machine/place.h): a GPU's blocks reach it over its bus. Every word has one writer, and all
// is done by loads and stores: neither side needs an atomic operation, or to be told that there is news.
//
//              Inbox and slots hold          Credit holds               writes              reads
//   arrivals   the peer's messages to us     the peer's grants to us    our proxy           our blocks
//   departures our messages to the peer      our grants to the peer     our blocks          our proxy
//
// Order of stores, on both: message or grant, then its counter (release; who reads the counter acquires). A
// GPU's block releases at system scope, so what the proxy acquires is in the host's memory before.
//
// Departing slots have the numbers of the peer's. One is free again when the peer has granted it again: then
// the message in it was read there, so it had landed, and what landed no path reads again.
//
// Slots lie behind the words; or on the device, in memory that network devices read and write by themselves
// (docs/design/0015-verbs.md, GPUDirect): then the proxy names their bytes and never touches them. Going out,
// the block's release of `posted` covers its stores there, and the proxy has acquired it before the network's
// device is told to read. Coming in, the device's completion is behind all that it wrote; such writes a GPU
// orders before what its blocks see of the host later (Place::has_network_slots()), and the proxy releases
// `posted` behind the completion.
#pragma once
#include <memory>
#include <utility>

#include "link/registration.h"
#include "machine/place.h"
#include "wire/carried.h"
#include "wire/lane_layout.h"

namespace starling::link::carry {

struct ChannelShape {
  uint32_t channels;
  uint32_t slots;  // a channel; all are granted from the start (wire/connector.h, Grants)
  uint32_t slot_bytes;
};

// Those of both halves, from the place's allocation to its release.
class SlotsOnDevice {
 public:
  // Throws Error. The place outlives it.
  SlotsOnDevice(Place& place, uint64_t bytes)
      : place_(place), bytes_(bytes), slots_(place.allocate_for_network(bytes)) {}
  SlotsOnDevice(const SlotsOnDevice&) = delete;
  SlotsOnDevice& operator=(const SlotsOnDevice&) = delete;
  ~SlotsOnDevice() {
    if (slots_.memory == nullptr) return;
    seal(nullptr);
    place_.release_for_network(slots_, bytes_);
  }

  bool exist() const { return slots_.memory != nullptr; }
  Region region() const { return {slots_.named, bytes_, slots_.dma_buf, true}; }
  // From here on nothing of the host may touch them. Null: they could not be registered, and are of no use.
  void seal(RegistrationPtr registered) {
    place_.seal(slots_, bytes_);
    registered_ = std::move(registered);
  }
  const RegistrationPtr& registered() const { return registered_; }
  std::byte* half(uint32_t number) const { return slots_.memory + number * bytes_ / 2; }
  std::byte* named_half(uint32_t number) const { return slots_.named + number * bytes_ / 2; }

 private:
  Place& place_;
  const uint64_t bytes_;
  NetworkSlots slots_;
  RegistrationPtr registered_;
};

class Channels {
 public:
  // The place outlives it. Throws Error(exhausted), and std::bad_alloc.
  // on_device: registered; or null: slots lie behind the words.
  Channels(Place& place, const ChannelShape& shape, std::unique_ptr<SlotsOnDevice> on_device = nullptr);
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  // One side of all channels.
  struct Half {
    Inbox* inbox;  // [channels]
    Credit* credit;  // likewise
    std::byte* slots;  // as blocks address them
    std::byte* named;  // as registrations do

    CarriedHalf of(uint32_t channel) const { return {inbox + channel, credit + channel}; }
  };
  const ChannelShape& shape() const { return shape_; }
  const Half& arrivals() const { return arrivals_; }
  const Half& departures() const { return departures_; }
  std::byte* slot(const Half& half, uint32_t channel, uint32_t number) const {
    return half.slots + offset_of(channel, number);
  }
  // For the proxy: not to be touched where slots are on the device.
  std::byte* named_slot(const Half& half, uint32_t channel, uint32_t number) const {
    return half.named + offset_of(channel, number);
  }
  static uint64_t slots_bytes(const ChannelShape& shape) {  // of one half
    return uint64_t(shape.channels) * shape.slots * shape.slot_bytes;
  }
  // Null: slots lie in memory().
  RegistrationPtr on_device() const { return on_device_ != nullptr ? on_device_->registered() : nullptr; }
  std::byte* memory() const { return memory_; }
  uint64_t bytes() const { return 2 * half_bytes_; }  // of it, both halves

 private:
  Half half_at(std::byte* memory, uint32_t number) const;
  uint64_t offset_of(uint32_t channel, uint32_t number) const {
    return (uint64_t(channel) * shape_.slots + number) * shape_.slot_bytes;
  }

  Place& place_;
  const ChannelShape shape_;
  const std::unique_ptr<SlotsOnDevice> on_device_;
  const LaneLayout layout_;
  const uint64_t half_bytes_;
  std::byte* const memory_;
  const Half arrivals_;
  const Half departures_;
};

}  // namespace starling::link::carry
