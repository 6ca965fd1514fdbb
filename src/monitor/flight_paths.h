// Keeps in a rank's flight record what its paths did lately (wire/flight.h): a watcher inside of the rank,
// which looks seldom, so that who comes after a crash sees what one would have seen who had watched.
// Transfers pay nothing for it. Of a path that had more transfers than `kMostRecords` since the last look the
// newest are read.
//
// Thread-safety: the poller's alone.
#pragma once
#include <cstdint>
#include <deque>

#include "machine/cpu/arena.h"
#include "monitor/path_follower.h"
#include "wire/flight.h"

namespace starling::monitor {

class FlightPaths {
 public:
  static constexpr uint64_t kBetweenLooksNs = 250'000'000;
  static constexpr uint64_t kMostRecords = 256;

  FlightPaths(cpu::Arena& arena, FlightRecord& record) : arena_(arena), record_(record) {}

  // Looks, unless it has within kBetweenLooksNs.
  void follow(uint64_t now_ns);

 private:
  struct Path {
    PathFollower follower;
    FlightPath& entry;
    uint64_t end_ns = 0;  // completion of the last record; 0: there was none
    uint64_t lost_ns = 0;  // so far
  };

  void find_paths();
  void follow(Path& path, uint64_t now_ns);
  static void write(FlightPath& entry, const FlightSample& sample);

  cpu::Arena& arena_;
  FlightRecord& record_;
  uint64_t next_ns_ = 0;
  uint64_t newest_ring_ = 0;
  std::deque<Path> paths_;
};

}  // namespace starling::monitor
