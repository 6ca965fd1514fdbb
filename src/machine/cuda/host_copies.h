// Copies between the host's memory and the GPU's, which nothing of the program can hold up: by a small
// kernel, in a stream of the daemon's priority. And nobody stands in the driver for them but a thread of
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

#include "base/quick_mutex.h"
#include "machine/cuda/driver_thread.h"
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

  // The number of what was asked for last, and of the last before which all has arrived. Once the device has
  // failed nothing arrives any more, and nobody is to wait for it: all has.
  uint64_t asked() const;
  uint64_t arrived() const;
  // Everything asked for before has arrived. Others may ask for more meanwhile. Throws Error(system).
  void flush();
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
  void await(uint64_t number);
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

  mutable QuickMutex mutex_;  // guards the next four
  std::condition_variable_any moved_;
  std::deque<Copy> copies_;
  uint64_t asked_ = 0;
  std::string failure_;
  std::atomic<uint64_t> arrived_{0};

  DriverThread thread_;  // last: it uses all else
};

}  // namespace starling::cuda
