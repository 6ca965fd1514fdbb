#include "machine/registered/bounces.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"

namespace starling {
namespace {

constexpr uint64_t kLeastBytes = uint64_t(1) << 20;

// Of few sizes, so that what is given back fits again.
uint64_t rounded(uint64_t bytes) { return std::bit_ceil(std::max(bytes, kLeastBytes)); }

}  // namespace

std::byte* Bounces::take(uint64_t bytes) {
  const uint64_t size = rounded(bytes);
  if (std::byte* memory = take_known(size)) return memory;
  const std::lock_guard growing(growing_);
  do {
    if (std::byte* memory = take_known(size)) return memory;
  } while (grow(size));
  throw Error(Code::exhausted,
              "no " + std::to_string(size >> 20) +
                  " MiB are left to copy a buffer to that peers cannot open (it is not of cudaMalloc, but of "
                  "cudaMallocAsync, or an expandable segment beyond what may be open?)",
              "set STARLING_PULL=0 on all ranks, or leave more memory free");
}

// Of what was given back, or of the last slab's rest.
std::byte* Bounces::take_known(uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (const auto found = free_.find(size); found != free_.end()) {
    std::byte* memory = found->second;
    free_.erase(found);
    return memory;
  }
  if (rest_bytes_ < size) return nullptr;
  std::byte* memory = rest_;
  rest_ += size;
  rest_bytes_ -= size;
  return memory;
}

// By one more slab, or where that is not to be had by what is wanted. Calls the driver, so under no lock that
// others need. False: there is not so much.
bool Bounces::grow(uint64_t size) {
  uint64_t slab = std::max(size, kSlabBytes);
  std::byte* memory = allocate_(slab);
  if (memory == nullptr && slab != size) memory = allocate_(slab = size);
  if (memory == nullptr) return false;
  const std::lock_guard lock(mutex_);
  while (rest_bytes_ >= kLeastBytes) {
    const uint64_t piece = std::bit_floor(rest_bytes_);
    free_.emplace(piece, rest_);
    rest_ += piece;
    rest_bytes_ -= piece;
  }
  rest_ = memory;
  rest_bytes_ = slab;
  return true;
}

void Bounces::give(std::byte* memory, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  free_.emplace(rounded(bytes), memory);
}

}  // namespace starling
