// The thread of a rank that has copy engines move messages (device/copy_host.h): no caller and no poller may
// call the driver for it, and nobody else waits for what it waits for.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/carried_copies.h"
#include "device/copy_host.h"
#include "machine/cpu/machine.h"
#include "machine/place.h"

namespace starling {

class CopyProxy {
 public:
  struct Report {
    void* owner;  // of the job
    uint64_t sequence;
    bool finished;
    std::string error;  // not "": a copy failed; the job goes on when its lane is broken
  };

  // `told` runs on the proxy's thread, without locks: take() has something. Throws Error(system).
  CopyProxy(std::unique_ptr<CopyEngine> engine, std::function<void()> told);
  // Waits for copies under way. What is not finished never will be.
  ~CopyProxy();
  CopyProxy(const CopyProxy&) = delete;
  CopyProxy& operator=(const CopyProxy&) = delete;

  // Any thread; returns at once.
  // The next add() needs no memory.
  void make_room();
  void add(device::CopyJob&& job);
  void add(CarriedCopyJob&& job);
  std::vector<Report> take();
  // Will it call the driver, once peers or streams have come? Any thread. False: the engine has all that is
  // needed for what was added to end.
  bool needs_engine();
  // The device has failed: nothing of what it has is touched or reported any more.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

 private:
  // What device/copy_host.h asks of an engine.
  struct Engine {
    CopyEngine& engine;
    uint64_t given[device::kCopyQueues] = {};
    uint64_t copy(const device::CopySend& send);
    uint64_t last(device::CopyQueue queue) const { return given[size_t(queue)]; }
    uint64_t completed(device::CopyQueue queue) const { return engine.completed(queue); }
  };

  void run();
  bool take_jobs();
  bool step_all();
  template <class Job, class Step>
  bool step_each(std::vector<Job>& jobs, Step&& step, bool& reported);
  void report(Report&& report);
  bool has_copies_under_way() const;
  void tell_need();

  std::unique_ptr<CopyEngine> owned_;
  Engine engine_;
  cpu::CpuMachine machine_;
  device::CopyHost<cpu::CpuMachine, Engine> host_;
  const std::function<void()> told_;
  std::vector<device::CopyJob> jobs_;  // the thread's own, as the next
  std::vector<CarriedCopyJob> carried_;
  bool told_need_ = false;  // as `needed_`
  std::atomic<bool> abandoned_{false};

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<device::CopyJob> added_;
  std::vector<CarriedCopyJob> added_carried_;
  std::vector<Report> reports_;
  bool needed_ = false;  // by what it has taken
  bool ending_ = false;

  std::thread thread_;  // last: it begins when all else is there
};

}  // namespace starling
