// Goal: failover keeps its promises over time: how soon a fault is found and traffic goes on, what is not
// taken for a fault, what a flow carries while a rail is out; and 200 failovers in a row lose and double
// nothing. Method: both shipped ends over the simulated network with time (link/sim/timed_network.h), whose
// clock is virtual and whose chances come from a seed, so figures are exact and a failure replays.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <cstdio>

#include "link/sim_rig.h"

namespace starling::link::conformance {
namespace {

constexpr uint64_t kMs = 1'000'000;

// What a case of the suite says is what a test says.
template <class Test>
void checked(Test&& test) {
  try {
    test();
  } catch (const Failure& failure) {
    FAIL() << failure.why;
  }
}

// From the fault until something arrives by the other path.
uint64_t standstill_ns(Fault fault) {
  SimRig rig({.most_bytes = 8192}, {});
  rig.deliver(40);
  rig.add(2000);
  rig.run_until("some of them", [&] { return rig.traffic[0].accepted >= 100; });
  rig.fail(0, fault);
  const uint64_t begin = rig.now_ns();
  rig.run_until("the backup", [&] { return rig.uses(2); });
  const uint64_t accepted[] = {rig.traffic[0].accepted, rig.traffic[1].accepted};
  rig.run_until(
      "data", [&] { return rig.traffic[0].accepted > accepted[0] && rig.traffic[1].accepted > accepted[1]; });
  const uint64_t end = rig.now_ns();
  rig.run_until("delivery", [&] { return rig.all_there(); });
  return end - begin;
}

TEST(InTime, APortOrAResetCostsMillisecondsAndASilentPathLessThanASecond) {
  checked([] {
    for (const Fault fault : {kCut, kOwnPort}) EXPECT_LT(standstill_ns(fault), 20 * kMs) << fault;
    for (const Fault fault : {kSilent, kOneWay, kHalfOpen, kPeerPort})
      EXPECT_LT(standstill_ns(fault), 1000 * kMs) << fault;
    // It is found by a watchdog and a probe, not by luck.
    EXPECT_GT(standstill_ns(kSilent), 100 * kMs);
  });
}

TEST(InTime, ASlowPeerIsNotADeadOne) {
  checked([] {
    SimRig rig({}, {});
    rig.network().slow(1, 2 * kMs);
    rig.deliver(300);
    EXPECT_EQ(rig.sender(0)->epoch, 1u);
    EXPECT_EQ(rig.sender(1)->epoch, 1u);
    EXPECT_EQ(rig.up(), 3u);
  });
}

TEST(InTime, APeerWithNothingToSendIsNotADeadOne) {
  checked([] {
    SimRig rig({}, {});
    rig.deliver(10);
    rig.run_for(60'000 * kMs);
    EXPECT_EQ(rig.sender(0)->epoch, 1u);
    EXPECT_EQ(rig.up(), 3u);
    rig.deliver(10);
  });
}

// Half of all frames are lost for ten seconds: connections are slow, and no transfer is.
TEST(InTime, AStormOfLossesPasses) {
  checked([] {
    SimRig rig({}, {});
    rig.deliver(20);
    for (uint32_t path = 0; path < 2; ++path)
      for (uint32_t from = 0; from < 2; ++from) rig.network().wire(path, from).lost = 32768;
    rig.add(500);
    rig.run_for(10'000 * kMs);
    for (uint32_t path = 0; path < 2; ++path)
      for (uint32_t from = 0; from < 2; ++from) rig.network().wire(path, from).lost = 0;
    rig.run_until("delivery", [&] { return rig.all_there(); });
    rig.run_until("the first path", [&] { return rig.uses(1); });
  });
}

// A device that forgets a frame of a connection that lives: the path lost data, and fails for it.
TEST(InTime, WhatALivingPathForgetsIsFoundByAProbe) {
  checked([] {
    SimRig rig({}, {});
    rig.deliver(20);
    rig.network().wire(0, 0).forgotten = 65535;
    rig.traffic[0].limit += 5;
    rig.run_until("posts", [&] { return rig.transmitted(0) == rig.traffic[0].limit; });
    rig.run_for(kMs);
    rig.network().wire(0, 0).forgotten = 0;
    rig.run_until("delivery", [&] { return rig.all_there(); });
    EXPECT_EQ(rig.sender(0)->paths[0].cause, FailureCause::kLost);
    EXPECT_GT(rig.sender(0)->epoch, 1u);
  });
}

// A port that heals has another address, and the old one answers nobody: connections that it had are silent
// for ever. Either end's port, of a path that failed in any way.
TEST(AnotherAddress, OfAPortThatHealsIsFound) {
  checked([] {
    for (const Fault fault : {kCut, kSilent, kOneWay, kOwnPort, kPeerPort, kHalfOpen})
      for (const uint32_t rank : {0u, 1u}) {
        SimRig rig({.most_bytes = 8192}, {});
        rig.deliver(40);
        rig.add(200);
        rig.fail(0, fault);
        rig.run_until("the backup", [&] { return rig.uses(2); });
        for (uint32_t lease = 0; lease < 2; ++lease) {
          rig.heal_elsewhere(0, rank);
          rig.run_until("the first path", [&] { return rig.uses(1); });
          rig.deliver(200);
          rig.fail(0, fault);
          rig.run_until("the backup", [&] { return rig.uses(2); });
        }
        rig.run_until("delivery", [&] { return rig.all_there(); });
      }
  });
}

// Without a fault before it: the path falls silent, and comes back without being healed.
TEST(AnotherAddress, OfALivingPortIsFoundByTheWatchdog) {
  checked([] {
    for (const uint32_t rank : {0u, 1u}) {
      SimRig rig({.most_bytes = 8192}, {});
      rig.deliver(40);
      rig.add(500);
      rig.network().move(0, rank);
      rig.run_until("the backup", [&] { return rig.uses(2); });
      EXPECT_EQ(rig.sender(0)->paths[0].cause, FailureCause::kSilent);
      rig.run_until("the first path", [&] { return rig.uses(1); });
      rig.run_until("delivery", [&] { return rig.all_there(); });
    }
  });
}

// What the other direction's call is listened to for: without it nobody finds who has moved.
TEST(AnotherAddress, IsNotFoundByWhoCallsTheOldOne) {
  checked([] {
    SimRig rig({.most_bytes = 8192}, {}, shipped_flow_core(), nullptr, false);
    rig.deliver(40);
    rig.fail(0, kSilent);
    rig.run_until("the backup", [&] { return rig.uses(2); });
    rig.heal_elsewhere(0, 0);
    rig.run_for(90'000 * kMs);
    EXPECT_EQ(rig.sender(0)->use, 1u) << "who has moved calls";
    EXPECT_EQ(rig.sender(1)->use, 2u);
    rig.deliver(100);
  });
}

// Virtual time in which that many transfers of 64 KiB cross, one way.
uint64_t crossing_ns(SimRig& rig, uint64_t transfers) {
  const uint64_t begin = rig.now_ns();
  rig.traffic[0].limit += transfers;
  rig.run_until("delivery", [&] { return rig.all_there(); });
  return rig.now_ns() - begin;
}

TEST(InTime, OneOfTwoStripedRailsCarriesWhatARailCanCarry) {
  checked([] {
    sim::WireSettings wires;
    wires.bytes_per_us = 1250;  // 10 Gb/s
    const RigOptions large{.most_bytes = 100'000, .slots = 64};
    SimRig alone({.paths = 1, .most_bytes = large.most_bytes, .slots = large.slots}, wires);
    SimRig striped({.policy = Policy::kStriping, .most_bytes = large.most_bytes, .slots = large.slots},
                   wires);
    const uint64_t one_rail = crossing_ns(alone, 1000);
    const uint64_t two_rails = crossing_ns(striped, 1000);
    EXPECT_LT(double(two_rails), 0.6 * double(one_rail));
    striped.fail(1, kSilent);
    striped.traffic[0].limit += 20;
    striped.run_until("one rail", [&] { return striped.uses(1); });
    striped.run_until("delivery", [&] { return striped.all_there(); });
    const uint64_t left = crossing_ns(striped, 1000);
    EXPECT_GE(double(one_rail) / double(left), 0.95);
    std::printf("1000 transfers: one rail %.2f ms, two %.2f ms, one of two %.2f ms\n", double(one_rail) / 1e6,
                double(two_rails) / 1e6, double(left) / 1e6);
  });
}

// ---- many failovers --------------------------------------------------------------------------------------
struct Storm {
  uint32_t failovers = 0;  // epochs, of both flows
  uint64_t transfers = 0;
  uint64_t ended_ns = 0;
  bool operator==(const Storm&) const = default;
};

// Faults of all kinds on paths of any kind, some of them while another one is out, ranks that stand still.
Storm storm(uint64_t seed, uint32_t faults) {
  starling::sim::Random random(seed, 7);
  sim::WireSettings wires;
  wires.latency_ns = random.between(1'000, 100'000);
  wires.jitter_ns = random.below(2) * random.between(1, 100'000);
  wires.bytes_per_us = random.between(100, 20'000);
  wires.lost = random.below(2) * random.below(1000);
  wires.late = random.below(2) * random.below(1000);
  wires.doubled = random.below(2) * random.below(1000);
  wires.forgotten = random.below(4) == 0 ? random.below(50) : 0;
  const uint32_t paths = 2 + random.below(2);
  SimRig rig({.policy = Policy(random.below(2)), .paths = paths, .most_bytes = 8192, .seed = seed}, wires);
  const uint32_t moves = random.below(3);  // the rank whose ports heal with other addresses; 2: neither
  if (random.below(3) == 0) rig.network().slow(random.below(2), random.between(100, 50'000));
  for (uint32_t k = 0; k < faults; ++k) {
    rig.add(1 + random.below(60));
    rig.run_for(random.skewed(100 * kMs));
    const uint32_t path = random.below(4) == 0 ? random.below(paths) : 0;
    rig.fail(path, Fault(1u << random.below(6)));
    if (random.below(8) == 0) {
      const uint32_t rank = random.below(2);
      rig.hold(rank, true);
      rig.run_for(random.skewed(1000 * kMs));
      rig.hold(rank, false);
    }
    rig.run_for(random.skewed(2000 * kMs));
    moves < 2 && random.below(2) ? rig.heal_elsewhere(path, moves) : rig.heal(path);
    if (random.below(2)) rig.run_until("delivery", [&] { return rig.all_there(); });
  }
  rig.run_until("delivery", [&] { return rig.all_there(); });
  rig.run_until("all paths", [&] { return rig.up() == (1u << paths) - 1; });
  return {rig.sender(0)->epoch + rig.sender(1)->epoch - 2, 2 * rig.traffic[0].accepted, rig.now_ns()};
}

TEST(Storms, LoseAndDoubleNothing) {
#ifdef STARLING_SANITIZED
  constexpr uint64_t kSeeds = 4;
#else
  constexpr uint64_t kSeeds = 60;
#endif
  Storm all;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    checked([&] {
      const Storm one = storm(seed, 50);
      all.failovers += one.failovers;
      all.transfers += one.transfers;
    });
    if (HasFailure()) return;
  }
  std::printf("%llu seeds: %llu transfers, %u failovers and failbacks\n", (unsigned long long)kSeeds,
              (unsigned long long)all.transfers, all.failovers);
  EXPECT_GT(all.failovers, 30 * kSeeds);
}

TEST(Storms, ReplayExactly) {
  checked([] {
    for (uint64_t seed = 1; seed <= 3; ++seed) EXPECT_EQ(storm(seed, 10), storm(seed, 10));
  });
}

}  // namespace
}  // namespace starling::link::conformance
