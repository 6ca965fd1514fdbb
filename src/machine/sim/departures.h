// What a lane keeps for its peers on other hosts: the halves of connectors that leave (link/carry/channels.h;
// those that arrive are the lane's own), and the words that its host leaves for its proxy, or hears from it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "machine/sim/machine.h"
#include "wire/carried.h"

namespace starling::sim {

class Departures {
 public:
  // size: ranks of the lane; 0: all are on one host.
  void build(World& world, uint32_t size, uint32_t channels);
  // Of a connection that some plan has; again and again.
  void make(const Connection& connection, uint64_t first_message, uint32_t slot_bytes);

  bool has(uint32_t peer, uint32_t channel) const { return slots_[peer * channels_ + channel] != nullptr; }
  CarriedHalf half(uint32_t peer, uint32_t channel) const {
    const uint32_t end = peer * channels_ + channel;
    return {&inboxes_[end], &credits_[end]};
  }
  std::byte* slots(uint32_t peer, uint32_t channel) const { return slots_[peer * channels_ + channel]; }
  // That peer's lane is open; writer: our proxy.
  uint64_t* met(uint32_t peer) const { return &met_[peer]; }
  // The lane broke, which that peer shall hear; writer: our host.
  uint64_t* broken(uint32_t peer) const { return &broken_[peer]; }

  std::string describe(const void* address, uint32_t slot_bytes) const;

 private:
  World* world_ = nullptr;
  uint32_t size_ = 0;
  uint32_t channels_ = 0;
  Inbox* inboxes_ = nullptr;
  Credit* credits_ = nullptr;
  std::vector<std::byte*> slots_;
  uint64_t* met_ = nullptr;
  uint64_t* broken_ = nullptr;
};

}  // namespace starling::sim
