#include "machine/sim/fiber.h"

#include <sys/mman.h>

#include "base/error.h"

namespace starling::sim {
namespace {

constexpr size_t kGuardBytes = 4096;

}  // namespace

StackPool::~StackPool() {
  for (std::byte* stack : stacks_) munmap(stack, kStackBytes);
}

void* StackPool::top(uint32_t index) {
  while (stacks_.size() <= index) {
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
      throw system_error("cannot make the stack of a fiber",
                         "simulate fewer ranks, or raise the memory limit");
    mprotect(stack, kGuardBytes, PROT_NONE);
    stacks_.push_back(static_cast<std::byte*>(stack));
  }
  // Stacks begin at different cache sets: page-aligned ones would push each other out.
  const size_t colour = (index * 7 % 61) * 64;
  return stacks_[index] + kStackBytes - colour;
}

}  // namespace starling::sim
