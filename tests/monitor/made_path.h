// Records of a path that never was: a wire of known speed, served in order, with its user and its troubles on
// simulated time. A seed gives the same records again.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "wire/monitor.h"

namespace starling::monitor {

struct Period {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  bool holds(uint64_t ns) const { return ns >= begin_ns && ns < end_ns; }
};

struct MadePath {
  double bytes_per_ns = 6.5536;  // 64 KiB in 10 us
  uint64_t latency_ns = 0;  // of each transfer, beside others'
  uint32_t depth = 4;  // transfers that its user keeps under way
  uint64_t think_ns = 0;  // between a completion and the post that it allows
  double jitter = 0.2;  // of a transfer's time on the wire, either way
  Period held;  // nothing passes
  Period slowed;  // by this factor
  double factor = 1;
  Period paused;  // the user posts nothing
  std::function<uint64_t(uint64_t)> bytes = [](uint64_t) { return uint64_t(65536); };

  std::vector<TransferRecord> records(uint64_t count, uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> spread(1 - jitter, 1 + jitter);
    std::vector<TransferRecord> records;
    uint64_t wire_free = 0;
    for (uint64_t k = 0; k < count; ++k) {
      uint64_t posted = k < depth ? 1000 : records[k - depth].completed_ns + think_ns;
      if (k > 0) posted = std::max(posted, records[k - 1].posted_ns);
      if (paused.holds(posted)) posted = paused.end_ns;
      uint64_t start = std::max(posted, wire_free);
      if (held.holds(start)) start = held.end_ns;
      double time = double(bytes(k)) / bytes_per_ns * spread(random);
      if (slowed.holds(start)) time *= factor;
      wire_free = start + uint64_t(time);
      if (held.holds(wire_free)) wire_free += held.end_ns - held.begin_ns;
      uint64_t completed = wire_free + latency_ns;
      if (k > 0) completed = std::max(completed, records[k - 1].completed_ns);
      records.push_back({posted, completed, uint32_t(bytes(k)), 0, LinkKind::kTcp, 0});
    }
    for (uint64_t k = 0; k < count; ++k)  // posted by its completion, and later in the row
      for (uint64_t later = k + 1; later < count && records[later].posted_ns <= records[k].completed_ns;
           ++later)
        records[k].left_bytes += records[later].bytes;
    return records;
  }
};

}  // namespace starling::monitor
