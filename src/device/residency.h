// Residencies of the daemon, as the host sees them: when one is launched, whether it is there, and how it is
// asked to leave. Under the host's lock, as device/stream_host.h, which decides when.
//
//   launch ─────────────────────────────────▶ resident ── leaves, or is drained ──▶ nobody
//   stand_by ──▶ standby ── release: a store ──▶ │
//                 in the daemon's stream, behind a wait value: it takes nothing of the GPU, and to begin it
//                 needs no call of the driver. It may stand behind one that is resident
#pragma once
#include "device/stream_device.h"

namespace starling::device {

// In the host's memory, where blocks or streams read them.
struct ResidencyWords {
  uint64_t* drain;  // DaemonMemory::drain, or what is passed on to it
  uint64_t* go;  // the newest residency that was released
};

template <class M, StreamDevice D>
class Residency {
 public:
  // All live as long as it. `daemon`: as every residency gets it; its number and its ways are filled in here.
  Residency(M& machine, D& device, const DaemonArguments& daemon, const ResidencyWords& words)
      : m_(machine), d_(device), daemon_(daemon), words_(words) {}

  // From when it was asked for until it is known to have left.
  bool resident() const { return resident_; }
  // It was asked for, and may not be there yet.
  bool coming() const { return resident_ && coming_ && !standby_; }
  bool draining() const { return draining_; }
  // Only the host ends it.
  bool stays() const { return resident_ && stays_; }
  // It began with one block, and helpers come and go.
  bool guards() const { return resident_ && guards_; }
  // Another one was asked for, which begins when it is released.
  bool has_standby() const { return standby_; }
  bool standby_ready() const { return standby_ && !coming_; }
  // Of the newest that was asked for, and of those that began.
  uint64_t launches() const { return asked_; }
  uint64_t released() const { return released_; }

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
    if (!resident_ || coming() || d_.daemon_left() < released_ || d_.helpers_resident()) return false;
    resident_ = false;
    return true;
  }

  // None is resident, or stands by.
  void launch(bool stays, bool guards) {
    ask(stays, guards, {nullptr, false});
    begin(stays, guards);
  }
  // None stands by, or is coming. Until it has left, somebody has to look after it.
  void stand_by() {
    ask(true, false, {words_.go, resident_});
    standby_ = true;
  }
  // One stands by, and none is resident.
  void release() {
    standby_ = false;
    begin(true, false);
    // Release: what the host has written for it; pairs with the wait of its stream.
    m_.store_release(words_.go, released_);
  }
  // Asks the one that is resident to end at its blocks' next yields.
  void drain() {
    draining_ = true;
    // Release: pairs with the acquires of `drain` in Daemon.
    m_.store_release(words_.drain, released_);
  }
  // One stands by and is not needed: it begins, and its blocks leave at once.
  void send_away() {
    release();
    drain();
  }
  void launch_helpers() { d_.launch_helpers(daemon_); }

 private:
  void ask(bool stays, bool guards, const ResidencyStart& start) {
    daemon_.launch = ++asked_;
    daemon_.stays = stays;
    daemon_.guards = guards;
    coming_ = true;
    d_.launch_daemon(daemon_, start);
  }
  void begin(bool stays, bool guards) {
    released_ = asked_;
    resident_ = true;
    stays_ = stays;
    guards_ = guards;
    draining_ = false;
  }

  M& m_;
  D& d_;
  DaemonArguments daemon_;
  ResidencyWords words_;
  uint64_t asked_ = 0;
  uint64_t released_ = 0;
  bool resident_ = false;
  bool coming_ = false;  // the newest that was asked for
  bool standby_ = false;
  bool draining_ = false;
  bool stays_ = false;
  bool guards_ = false;
};

}  // namespace starling::device
