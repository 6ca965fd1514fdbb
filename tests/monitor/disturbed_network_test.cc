// Goal: 100 us in which one of two rails is slow are seen, and placed on that rail. Method: the shipped flow,
// striped over the simulated network with time (link/sim/timed_network.h), writes its records; the rail's
// speed falls at a known moment of virtual time.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "link/sim_rig.h"
#include "monitor/anomaly.h"

namespace starling::monitor {
namespace {

using namespace link::conformance;

constexpr uint64_t kUs = 1000;
constexpr uint64_t kDisturbedNs = 100 * kUs;
constexpr uint64_t kTransfers = 1500;
constexpr uint64_t kSeeds = 4;
constexpr uint64_t kSpeed = 25'000;  // bytes a us: 200 Gb/s

struct Found {
  std::vector<TransferRecord> records[2];  // of each rail, after the beginning
  uint64_t begin_ns = 0;  // of the disturbance
};

// One direction, over two rails; in the middle the rail has a twentieth of its speed.
Found disturbed(uint32_t rail, uint64_t seed) {
  link::sim::WireSettings wires;
  wires.latency_ns = 2 * kUs;
  wires.jitter_ns = 200;
  wires.bytes_per_us = kSpeed;
  auto rings = std::make_unique<std::array<PathRing, 2>>();
  FlowRecorder recorder({&(*rings)[0], &(*rings)[1]});
  SimRig rig({.policy = link::Policy::kStriping, .most_bytes = 100'000, .slots = 64, .seed = seed}, wires,
             link::shipped_flow_core(), &recorder);
  PathReader readers[2] = {PathReader((*rings)[0]), PathReader((*rings)[1])};
  Found found;
  const auto read = [&] {
    for (uint32_t path = 0; path < 2; ++path)
      for (TransferRecord record{}; readers[path].next(record);) found.records[path].push_back(record);
  };
  rig.traffic[0].limit = kTransfers;
  rig.run_until("the middle", [&] { return read(), rig.traffic[0].accepted >= kTransfers / 2; });
  found.begin_ns = rig.now_ns();
  rig.network().wire(rail, 0).bytes_per_us = kSpeed / 20;
  rig.run_until("the end of it", [&] { return read(), rig.now_ns() >= found.begin_ns + kDisturbedNs; });
  rig.network().wire(rail, 0).bytes_per_us = kSpeed;
  rig.run_until("delivery", [&] { return read(), rig.all_there(); });
  EXPECT_EQ(readers[0].missed() + readers[1].missed(), 0u);
  return found;
}

std::vector<Anomaly> of_the_network(const std::vector<TransferRecord>& records, uint32_t window) {
  AnomalyDetector detector({.window = window});
  std::vector<Anomaly> found;
  const auto keep = [&](const std::optional<Anomaly>& one) {
    if (one && one->cause == Cause::kNetwork) found.push_back(*one);
  };
  for (const TransferRecord& record : records) keep(detector.push(record));
  keep(detector.current());
  return found;
}

// Whether one of them meets the disturbance, or what it left in the queue.
bool any_meets(const std::vector<Anomaly>& anomalies, uint64_t begin_ns) {
  return std::any_of(anomalies.begin(), anomalies.end(), [&](const Anomaly& one) {
    return one.end_ns >= begin_ns && one.begin_ns <= begin_ns + 3 * kDisturbedNs;
  });
}

// As many turns of one transfer are lost as windows of 1, 8 and 32 all see.
TEST(DisturbedNetwork, OneHundredMicrosecondsAreSeenOnTheRightRail) {
  try {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed)
      for (uint32_t rail = 0; rail < 2; ++rail) {
        const Found found = disturbed(rail, seed);
        for (const uint32_t window : {1u, 8u, 32u})
          for (uint32_t path = 0; path < 2; ++path)
            EXPECT_EQ(any_meets(of_the_network(found.records[path], window), found.begin_ns), path == rail)
                << "seed " << seed << ", rail " << rail << ", path " << path << ", window " << window;
      }
  } catch (const Failure& failure) {
    FAIL() << failure.why;
  }
}

}  // namespace
}  // namespace starling::monitor
