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
#pragma once
#include "machine/place.h"
#include "wire/carried.h"
#include "wire/lane_layout.h"

namespace starling::link::carry {

struct ChannelShape {
  uint32_t channels;
  uint32_t slots;  // a channel; all are granted from the start (wire/connector.h, Grants)
  uint32_t slot_bytes;
};

class Channels {
 public:
  // The place outlives it. Throws Error(exhausted), and std::bad_alloc.
  Channels(Place& place, const ChannelShape& shape);
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  // One side of all channels.
  struct Half {
    Inbox* inbox;  // [channels]
    Credit* credit;  // likewise
    std::byte* slots;

    CarriedHalf of(uint32_t channel) const { return {inbox + channel, credit + channel}; }
  };
  const ChannelShape& shape() const { return shape_; }
  const Half& arrivals() const { return arrivals_; }
  const Half& departures() const { return departures_; }
  std::byte* slot(const Half& half, uint32_t channel, uint32_t number) const {
    return half.slots + (uint64_t(channel) * shape_.slots + number) * shape_.slot_bytes;
  }
  std::byte* memory() const { return memory_; }
  uint64_t bytes() const { return 2 * half_bytes_; }  // of it, both halves

 private:
  Half half_at(std::byte* memory) const;

  Place& place_;
  const ChannelShape shape_;
  const LaneLayout layout_;
  const uint64_t half_bytes_;
  std::byte* const memory_;
  const Half arrivals_;
  const Half departures_;
};

}  // namespace starling::link::carry
