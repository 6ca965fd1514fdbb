// Copies between the host's memory and the GPU's, which nothing of the program can hold up: by a small
// kernel, in a stream of a priority of its own. And nobody stands in the driver for them but a thread of
// their own.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/called_thread.h"
#include "base/quick_mutex.h"
#include "machine/place.h"

namespace starling::cuda {

// The driver's own copies stand where a copy of any other stream stands: FSDP2's two ranks stood in the
// upload of a new plan, behind streams that waited for operations, and held a lock without which those could
// not go on. Streams of another priority have a hardware queue of their own (docs/GPU_PROBE.md), and a kernel
// needs no copy engine. But its launch may stand in the driver behind a copy to pageable memory of the
// program's. All methods: any thread; none but flush() and read() waits, and they call no driver either.
class HostCopies {
 public:
  explicit HostCopies(int device);  // throws Error
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // In order; `from` may be reused at once.
  void write(void* to, const void* from, uint64_t bytes);
  void zero(void* memory, uint64_t bytes);
  // After all that was written before.
  std::shared_ptr<const PendingRead> begin_read(const void* from, uint64_t bytes);

  // The number of what was asked for last, and of the last before which all has arrived.
  // Relaxed: who asks has asked for what it means itself, or under a lock that it holds.
  uint64_t asked() const { return asked_.load(std::memory_order_relaxed); }
  // Acquire: pairs with the release in move_some(); a submission that speaks of what has arrived is stored
  // behind it.
  uint64_t arrived() const { return arrived_.load(std::memory_order_acquire); }
  // Until all up to that number has arrived; or all that was asked for. Others may ask for more meanwhile.
  // Throw Error(system).
  void await(uint64_t number);
  void flush();
  // Why nothing arrives any more; "" while all is well.
  std::string failure();
  void read(void* to, const void* from, uint64_t bytes);

 private:
  struct Copy {
    std::byte* to;  // the GPU's memory, but for what is read
    std::unique_ptr<std::byte[]> data;  // null: zeros
    uint64_t bytes;
    std::shared_ptr<PendingRead> reading;  // of `from`
    const std::byte* from;
  };

  void ask(Copy&& copy);
  // On the thread of their own.
  void move();
  bool move_some();
  void move_one(const Copy& copy);
  void read_now(PendingRead& reading, const std::byte* from);
  std::byte* stage(uint64_t bytes);
  void launch(void* to, const void* from, uint64_t bytes);
  void finish();

  const int device_;
  cudaStream_t stream_ = nullptr;
  std::byte* staging_ = nullptr;  // pinned; [0, used_) is read by kernels under way
  uint64_t used_ = 0;

  QuickMutex mutex_;  // guards the next three, and who writes the two behind them
  std::condition_variable_any moved_;
  std::deque<Copy> copies_;
  std::string failure_;
  std::atomic<uint64_t> asked_{0};
  std::atomic<uint64_t> arrived_{0};
  std::atomic<bool> failed_{false};

  CalledThread thread_;  // last: it uses all else
};

}  // namespace starling::cuda
