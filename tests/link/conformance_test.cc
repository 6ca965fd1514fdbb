// Goal: every link does what links have to do. Method: one list of cases (conformance.h), for shared memory,
// for TCP over loopback with wires that are cut, and for the simulated network with time, clean and noisy.
// RDMA runs the same list in a guest (tests/verbs/conformance_program.cc).
#include "link/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "link/shared_rig.h"
#include "link/sim_rig.h"
#include "link/tcp_rig.h"

namespace starling::link::conformance {
namespace {

// The simulated network is one thread: sanitizers see in its twentieth failover what they see in its last.
#ifdef STARLING_SANITIZED
constexpr uint32_t kFailoversOverTcp = 10, kSimulatedFailovers = 20;
#else
constexpr uint32_t kFailoversOverTcp = 40, kSimulatedFailovers = 200;
#endif

// ThreadSanitizer would find nothing there in an hour.
#ifdef __SANITIZE_THREAD__
constexpr bool kSimulates = false;
#else
constexpr bool kSimulates = true;
#endif

sim::WireSettings noisy() {
  sim::WireSettings wires;
  wires.jitter_ns = 30'000;
  wires.bytes_per_us = 1'250;  // 10 Gb/s
  wires.lost = wires.late = wires.doubled = 300;
  return wires;
}

const LinkKind kLinks[] = {
    {"shm", 0, 0, [](const RigOptions& o) { return std::make_unique<SharedRig>(o, 0); }},
    {"pooled_shm", 0, 0, [](const RigOptions& o) { return std::make_unique<SharedRig>(o, kMaxCredits - 2); }},
    {"tcp", kAllFaults, kFailoversOverTcp, [](const RigOptions& o) { return std::make_unique<TcpRig>(o); }},
    {"sim", kAllFaults, kSimulatedFailovers,
     [](const RigOptions& o) { return std::make_unique<SimRig>(o, sim::WireSettings()); }},
    {"noisy_sim", kAllFaults, kSimulatedFailovers,
     [](const RigOptions& o) { return std::make_unique<SimRig>(o, noisy()); }},
};

struct Instance {
  const LinkKind* link;
  const Case* entry;
};

std::vector<Instance> instances() {
  std::vector<Instance> all;
  for (const LinkKind& link : kLinks) {
    if (!kSimulates && std::string_view(link.name).ends_with("sim")) continue;
    for (const Case& entry : kCases)
      if (applies(entry, link)) all.push_back({&link, &entry});
  }
  return all;
}

class Conformance : public testing::TestWithParam<Instance> {};

TEST_P(Conformance, Holds) {
  try {
    GetParam().entry->run(*GetParam().link);
  } catch (const Failure& failure) {
    FAIL() << failure.why;
  }
}

INSTANTIATE_TEST_SUITE_P(Links, Conformance, testing::ValuesIn(instances()), [](const auto& info) {
  return std::string(info.param.link->name) + "_" + info.param.entry->name;
});

TEST(ConformanceCases, ApplyToEveryLinkThatCanFail) {
  for (const Case& entry : kCases)
    EXPECT_EQ(
        std::count_if(std::begin(kLinks), std::end(kLinks), [&](const auto& l) { return applies(entry, l); }),
        entry.faults == 0 ? 5 : 3)
        << entry.name;
}

}  // namespace
}  // namespace starling::link::conformance
