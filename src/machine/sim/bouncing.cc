// Buffers that peers cannot open: what is offered of them bounces (comm/offer.cc).
#include <cstring>

#include "base/hash.h"
#include "machine/sim/lane.h"

namespace starling::sim {

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
