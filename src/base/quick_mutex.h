// A mutex whose holders call no GPU's driver. A call may stand there behind one of the program that waits for
// a stream, and that stream may wait for what only a holder can do (docs/design/0007-start-as-a-kernel.md,
// "Calls that wait for the GPU inside of the driver"). Whoever enters the driver looks (DeviceGuard).
#pragma once
#include <mutex>

namespace starling {

// What the calling thread holds. Not inline: the part for GPUs is a library of its own, and both count alike.
struct DriverRule {
  static void take();
  static void give();
  static void excuse(bool begins);
  static bool forbids();
};

class QuickMutex {
 public:
  void lock() {
    mutex_.lock();
    DriverRule::take();
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    DriverRule::take();
    return true;
  }
  void unlock() {
    DriverRule::give();
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
};

// In its scope the driver may be called all the same. Where it is used it says why nobody waits for us then.
class DriverExcuse {
 public:
  DriverExcuse() { DriverRule::excuse(true); }
  ~DriverExcuse() { DriverRule::excuse(false); }
  DriverExcuse(const DriverExcuse&) = delete;
  DriverExcuse& operator=(const DriverExcuse&) = delete;
};

}  // namespace starling
