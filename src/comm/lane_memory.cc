// What a lane takes of the segment, of exported memory and of its place's, and how it goes back.
#include <algorithm>
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
  const bool unused = shared_ == nullptr || abandoned();
  if (unused) release_tile_scratch();  // else peers may still write there
  if (shared_ == nullptr || !unused) return;
  for (uint32_t peer = 0; published_ && carried_ && peer < size(); ++peer)
    if (member(peer).peer.way != nullptr) member(peer).peer.way->forget(numbers_[peer]);
  if (published_) arena_.unpublish(options_.key.low, options_.key.high, region_.offset);
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

// Nobody reads of it what was not written there before, so there is nothing to wait for.
std::byte* HostLane::scratch_at(uint32_t at, uint64_t bytes) {
  Private& scratch = scratch_[at];
  if (scratch.bytes >= bytes && scratch.memory != nullptr) return scratch.memory;
  if (scratch.memory != nullptr) place_.release(scratch.memory, scratch.bytes);
  scratch = {};  // the next line may throw
  scratch.memory = place_.allocate_unwritten(bytes);
  scratch.bytes = bytes;
  return scratch.memory;
}

std::byte* HostLane::own_buffer() {
  if (own_buffers_.memory == nullptr) {
    at_least(own_buffers_, depth() * 64);
    note_written();
  }
  return own_buffers_.memory;
}

void HostLane::bind_tile_scratch(Lowered& lowered) {
  Operation& op = lowered.operation;
  if (op.plan->tile_scratch == 0 || op.plan->scratch_chunks == 0) return;
  const uint64_t plan = lowered.plan->hash();
  const auto bind = [&](bool made, const TileScratch& fresh) {
    const std::lock_guard lock(tile_scratch_mutex_);
    const auto found = std::find_if(tile_scratch_.begin(), tile_scratch_.end(),
                                    [&](const TileScratch& known) { return known.plan == plan; });
    const bool missing = found == tile_scratch_.end();
    if (missing && !made) return false;
    if (missing) tile_scratch_.push_back(fresh);
    const TileScratch& known = missing ? tile_scratch_.back() : *found;
    op.buffers[uint32_t(BufferKind::kScratch)].base = known.piece.memory;
    op.registrations[uint32_t(BufferKind::kScratch)] = known.registration;
    return missing == made;
  };
  if (bind(false, {})) return;
  const TileScratch fresh = new_tile_scratch(op, plan);
  if (!bind(true, fresh)) release(fresh);  // another thread was first
}

// As bind_plan() will find it for every operation of the plan. Calls of the driver: under no lock.
HostLane::TileScratch HostLane::new_tile_scratch(const Operation& op, uint64_t plan) const {
  const uint64_t tile_bytes = tile_bytes_of(*op.plan, place_.traits().pull_bytes);
  TileScratch scratch{plan, {nullptr, scratch_bytes(*op.plan, 0, tile_bytes)}, 0, true};
  scratch.piece.memory = place_.take_opened(scratch.piece.bytes, scratch.registration);
  if (scratch.piece.memory != nullptr) return scratch;
  scratch.opened = false;
  scratch.piece.memory = place_.allocate_unwritten(scratch.piece.bytes);
  return scratch;
}

void HostLane::release(const TileScratch& scratch) const {
  if (scratch.opened)
    place_.give_opened(scratch.piece.memory, scratch.piece.bytes);
  else
    place_.release(scratch.piece.memory, scratch.piece.bytes);
}

void HostLane::release_tile_scratch() {
  for (const TileScratch& scratch : tile_scratch_) release(scratch);
}

}  // namespace starling
