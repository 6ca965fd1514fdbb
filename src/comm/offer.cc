#include "comm/offer.h"
#include "comm/context.h"

#include <vector>

#include "base/error.h"

namespace starling {
namespace {

constexpr uint64_t kAlignment = 256;  // copies are as fast as the buffer's own alignment lets them be

// Pieces of a place, until nobody reads them.
class Bounced {
 public:
  explicit Bounced(Place& place) : place_(place) {}
  ~Bounced() {
    for (const auto& [memory, bytes] : pieces_) place_.give_opened(memory, bytes);
  }
  Bounced(const Bounced&) = delete;
  Bounced& operator=(const Bounced&) = delete;

  // Where the slice's first byte goes.
  std::byte* place_for(const std::byte* slice, uint64_t bytes, uint16_t& registration) {
    const uint64_t whole = bytes + kAlignment;
    std::byte* memory = place_.take_bounce(whole, registration);
    pieces_.emplace_back(memory, whole);
    return memory + uintptr_t(slice) % kAlignment;
  }

 private:
  Place& place_;
  std::vector<std::pair<std::byte*, uint64_t>> pieces_;
};

}  // namespace

std::string offer_to_peers(Place& place, Lowered& lowered) {
  Operation& op = lowered.operation;
  std::shared_ptr<Bounced> bounced;
  try {
    for (const BufferKind kind : {BufferKind::kInput, BufferKind::kOutput}) {
      const Extent& offered = lowered.offered.of[kind == BufferKind::kOutput];
      if (offered.end == 0) continue;
      const std::byte* slice = op.buffers[uint32_t(kind)].base + offered.begin;
      uint16_t& registration = op.registrations[uint32_t(kind)];
      registration = place.registration_of(slice, offered.end - offered.begin, lowered.by_copies);
      if (registration != 0) continue;
      if (lowered.by_copies)  // a copy engine has no instruction that could bounce it
        throw Error(Code::unsupported,
                    "other processes cannot open a buffer of " + place.name() +
                        ", which is neither of cudaMalloc nor mapped memory that can be exported (but of "
                        "cudaMallocAsync?)",
                    "set STARLING_SM_FREE=0 on all ranks, or PYTORCH_CUDA_ALLOC_CONF without "
                    "backend:cudaMallocAsync");
      if (bounced == nullptr) bounced = std::make_shared<Bounced>(place);
      op.bounces[kind == BufferKind::kOutput] =
          bounced->place_for(slice, offered.end - offered.begin, registration) - slice;
    }
  } catch (const Error& error) {
    return error.what();
  }
  lowered.bounced = std::move(bounced);
  return "";
}

// Throws Error(invalid_argument). Returns as offer_to_peers().
std::string Context::check_buffers(HostLane& lane, Lowered& lowered) {
  Operation& op = lowered.operation;
  const bool pulls = lowered.plan->protocol() == Protocol::kPull;
  const std::byte* const input = op.buffers[uint32_t(BufferKind::kInput)].base;
  const std::byte* const output = op.buffers[uint32_t(BufferKind::kOutput)].base;
  const bool input_here = place_->check_buffer(input, "input");
  const bool output_here = output == input ? input_here : place_->check_buffer(output, "output");
  if (!output_here || (pulls && !input_here)) op.hints |= kElsewhereInMemory;
  if (!lowered.opens && pulls)
    for (BufferKind kind : {BufferKind::kInput, BufferKind::kOutput})
      place_->check_pulled(op.buffers[uint32_t(kind)].base);
  try {
    lane.bind_tile_scratch(lowered);
  } catch (const std::exception& error) {
    return error.what();
  }
  return lowered.opens ? offer_to_peers(*place_, lowered) : "";
}

}  // namespace starling
