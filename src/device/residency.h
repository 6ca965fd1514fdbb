// Kernels of the daemon, as the host sees them: when one is launched, whether it is there, and how it is
// asked to leave. Watches (StreamPolicy::watches) come and go without being asked, and serve too: they are
// not known here. Under the host's lock, as device/stream_host.h, which decides when.
#pragma once
#include "device/stream_device.h"

namespace starling::device {

// The host's ends of what it shares with a daemon; where the daemon has copies of its own, the host's.
struct HostEnds {
  const SubmissionRing* submissions;
  uint32_t block_count;
  uint64_t* work;  // DaemonMemory::work
  uint64_t* drain;  // DaemonMemory::drain; with watches, DaemonParts::dismissed
};

template <class M, StreamDevice D>
class Residency {
 public:
  // All live as long as it. `daemon`: as every one gets it; its number and its ways are filled in here.
  // `drain` is where blocks read that they are to leave, or what is passed on to there.
  Residency(M& machine, D& device, const DaemonArguments& daemon, uint64_t* drain)
      : m_(machine), d_(device), daemon_(daemon), drain_(drain) {}

  // From when it was asked for until it is known to have left.
  bool resident() const { return resident_; }
  // It was asked for, and may not be there yet.
  bool coming() const { return resident_ && coming_; }
  // It was asked for, and not one of its blocks has run: what has come into other streams since it came may
  // stand before it.
  bool missing() const { return resident_ && !d_.daemon_begun(); }
  bool draining() const { return draining_; }
  // Only the host ends it.
  bool stays() const { return resident_ && stays_; }
  // It began with one block, and helpers come and go.
  bool guards() const { return resident_ && guards_; }
  uint64_t launches() const { return daemon_.launch; }

  // True: what was asked for has come.
  bool look_for_new() {
    // Both: the device may come to the daemon's stream before the daemon is in it. What stood in front of it
    // then would keep it out: a stream's wait in its hardware queue, a call of the program in the driver.
    if (!coming_ || !d_.daemon_put() || !d_.daemon_come()) return false;
    coming_ = false;
    return true;
  }
  // True: it has left.
  bool look_for_end() {
    if (!resident_ || coming_ || d_.daemon_resident()) return false;
    // They find all parts closed when they come late, and so would the next ones; but where there are watches
    // they take part in what is under way then.
    if (daemon_.tenured == 0 && d_.helpers_resident()) return false;
    resident_ = false;
    return true;
  }

  // None is resident.
  void launch(bool stays, bool guards) {
    ++daemon_.launch;
    daemon_.stays = stays_ = stays;
    daemon_.guards = guards_ = guards;
    resident_ = coming_ = true;
    draining_ = false;
    d_.launch_daemon(daemon_);
  }
  // Asks the one that is resident to end at its blocks' next yields.
  void drain() {
    draining_ = true;
    // Release: pairs with the acquires of `drain` in Daemon.
    m_.store_release(drain_, daemon_.launch);
  }
  // Where there are watches they may come when others are there, whom they must not end, or nobody.
  void launch_helpers() {
    DaemonArguments helping = daemon_;
    if (daemon_.tenured != 0) {
      helping.launch = ~uint64_t(0);
      helping.stays = helping.guards = 0;
    }
    d_.launch_helpers(helping);
  }

 private:
  M& m_;
  D& d_;
  DaemonArguments daemon_;
  uint64_t* drain_;
  bool resident_ = false;
  bool coming_ = false;
  bool draining_ = false;
  bool stays_ = false;
  bool guards_ = false;
};

}  // namespace starling::device
