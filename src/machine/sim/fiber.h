// Stacks and switches of the simulator's fibers. Boost.Context's assembly does the switch: no system call,
// no signal mask, some ten nanoseconds.
#pragma once
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace starling::sim {

using Context = boost::context::detail::fcontext_t;

// Stacks of one simulation thread, used again from run to run. A fiber that a failed run abandons leaves
// nothing behind but its stack, so fibers own no heap memory while they may be switched away from.
class StackPool {
 public:
  static constexpr size_t kStackBytes = 256 * 1024;

  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  // The top of stack `index`; made at the first call. The page below it is a guard.
  void* top(uint32_t index);

 private:
  std::vector<std::byte*> stacks_;
};

}  // namespace starling::sim
