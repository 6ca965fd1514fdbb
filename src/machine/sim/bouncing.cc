// Buffers that peers cannot open: what is offered of them bounces (comm/offer.cc).
#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "machine/sim/lane.h"

namespace starling::sim {

// Of the largest operation: buffers are used again and again.
uint64_t SimLane::most_bytes(uint64_t (Oracle::*bytes)(uint32_t) const) const {
  uint64_t most = 0;
  for (uint64_t k = 0; k < spec_->calls.size(); ++k) {
    const Oracle truth = oracle(k);
    most = std::max(most, (truth.*bytes)(rank_));
  }
  return most;
}

// Drawn for each place of the ring.
void SimLane::let_bounce(uint64_t index, Operation& op) {
  const uint64_t place = index % buffers_.size();
  Buffers& b = buffers_[place];
  const std::byte* buffers[] = {b.input, b.output};
  const uint64_t bytes[] = {most_bytes(&Oracle::input_bytes), most_bytes(&Oracle::output_bytes)};
  for (uint32_t k = 0; k < 2; ++k) {
    const uint64_t drawn = hash_combine(hash_combine(core_->id, rank_), 2 * place + k) % 4;
    if (buffers[k] == nullptr || bytes[k] == 0 || drawn >= options_->bounces) continue;
    if (b.bounces[k] == nullptr) b.bounces[k] = world_->shadow.buffers().allocate(bytes[k]);
    op.bounces[k] = b.bounces[k] - buffers[k];
  }
}

void SimLane::reuse_buffers() {
  for (uint64_t index = 0; index < std::min<uint64_t>(placed_, buffers_.size()); ++index) {
    fill(index);
    reuse_bounces(buffers_[index]);
  }
}

// Another operation has the memory.
void SimLane::reuse_bounces(const Buffers& b) {
  const uint64_t bytes[] = {most_bytes(&Oracle::input_bytes), most_bytes(&Oracle::output_bytes)};
  for (uint32_t k = 0; k < 2; ++k) {
    if (b.bounces[k] == nullptr) continue;
    std::memset(b.bounces[k], 0x5a, bytes[k]);
    world_->shadow.wrote(b.bounces[k], bytes[k]);
  }
}

}  // namespace starling::sim
