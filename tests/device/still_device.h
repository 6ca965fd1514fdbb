#pragma once
#include <vector>

#include "device/call.h"
#include "device/stream_device.h"

namespace starling::device {

// A device on which nothing runs: what is launched is kept, and the test says what came of it.
struct StillDevice {
  void launch_daemon(const DaemonArguments&) { ++daemons; }
  bool daemon_put() { return true; }
  bool daemon_come() { return true; }
  bool daemon_begun() { return true; }
  bool daemon_resident() { return resident; }
  void launch_helpers(const DaemonArguments&) {}
  bool helpers_resident() { return false; }
  void launch_start(Stream, const StartArguments* const*, uint32_t) {}
  void launch_call(Stream, const CallArguments& call) { launched.push_back(call); }
  void launch_call_later(Stream, const CallArguments& call) { later.push_back(call); }
  void launch_gate(Stream, const GateArguments&) {}
  void launch_watch(Stream, const DaemonArguments&, uint32_t) {}
  void write_value(Stream, uint64_t*, uint64_t) {}
  void wait_value(Stream, const uint64_t*, uint64_t) {}
  void wait_and_write(Stream, const uint64_t*, uint64_t*, uint64_t) {}
  bool idle(Stream) { return true; }
  uint32_t queued(Stream) { return 0; }
  void release(uint64_t*, uint64_t) {}
  uint64_t now() { return time_ns; }

  std::vector<CallArguments> launched, later;
  uint32_t daemons = 0;
  bool resident = false;
  uint64_t time_ns = 1;
};

}  // namespace starling::device
