#include "machine/sim/region.h"

#include <sys/mman.h>

#include <cstring>

#include "base/error.h"

namespace starling::sim {

Region::Region(size_t capacity_bytes) : capacity_(capacity_bytes) {
  void* memory = mmap(nullptr, capacity_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw system_error("cannot reserve the memory of a simulation", "simulate fewer ranks");
  base_ = static_cast<std::byte*>(memory);
}

Region::~Region() { munmap(base_, capacity_); }

std::byte* Region::allocate(size_t bytes) {
  std::byte* at = base_ + used_;
  used_ += (bytes + 63) & ~size_t(63);
  if (used_ > capacity_)
    throw Error(Code::exhausted, "a simulation needs more than " + std::to_string(capacity_) + " bytes",
                "simulate fewer ranks, lanes or bytes");
  return at;
}

void Region::forget() { madvise(base_, capacity_, MADV_DONTNEED); }

void Region::reset(bool zero) {
  if (zero) std::memset(base_, 0, used_);
  used_ = 0;
}

}  // namespace starling::sim
