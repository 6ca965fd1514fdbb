// What a lane takes of the segment, of exported memory and of its place's, and how it goes back.
#include <utility>

#include "comm/lane.h"
#include "link/carry/proxy.h"

namespace starling {

// A peer may still grant us slots that it read late: only an abandoned region is used again.
HostLane::~HostLane() {
  if (device_memory_.memory != nullptr) place_.release(device_memory_.memory, device_memory_.bytes);
  if (own_buffers_.memory != nullptr) place_.release(own_buffers_.memory, own_buffers_.bytes);
  if (turns_.memory != nullptr) place_.release(turns_.memory, turns_.bytes);
  for (Private& scratch : scratch_)
    if (scratch.memory != nullptr) place_.release(scratch.memory, scratch.bytes);
  if (tables_ != nullptr) place_.release_shared(tables_, depth() * tables_bytes());
  if (captures_ != nullptr) release_captures();
  give_back_shared();
  if (shared_ == nullptr || !abandoned()) return;
  for (uint32_t peer = 0; carried_ && peer < size(); ++peer)
    if (member(peer).peer.way != nullptr) member(peer).peer.way->forget(numbers_[peer]);
  arena_.unpublish(options_.key.low, options_.key.high, region_.offset);
  arena_.release(region_.offset, region_.bytes);
  if (connectors_.bytes > 0) place_.release_exported(connectors_.offset, connectors_.bytes);
}

void HostLane::give_back_shared() {
  if (operations_ != nullptr)
    place_.release_shared(reinterpret_cast<std::byte*>(operations_), depth() * sizeof(Operation));
  if (introductions_ != nullptr)
    place_.release_shared(reinterpret_cast<std::byte*>(introductions_), ends() * sizeof(PeerIntroduction));
  operations_ = nullptr;
  introductions_ = nullptr;
}

// Of a lane that could not be opened: nobody has seen it.
void HostLane::give_back_region() {
  if (shared_ != nullptr) give_back_shared();
  shared_ = nullptr;
  const Piece region = std::exchange(region_, {}), connectors = std::exchange(connectors_, {});
  if (region.bytes > 0) arena_.release(region.offset, region.bytes);
  if (connectors.bytes > 0) place_.release_exported(connectors.offset, connectors.bytes);
}

std::byte* HostLane::at_least(Private& memory, uint64_t bytes) {
  if (memory.bytes >= bytes && memory.memory != nullptr) return memory.memory;
  if (memory.memory != nullptr) place_.release(memory.memory, memory.bytes);
  memory = {};  // the next line may throw
  memory.memory = place_.allocate(bytes);
  memory.bytes = bytes;
  return memory.memory;
}

}  // namespace starling
