// TCP as a link of the conformance suite: over loopback, through wires that the test cuts (relay.h).
#pragma once
#include <functional>

#include "link/relay.h"
#include "link/socket_rig.h"

namespace starling::link::conformance {

class TcpRig final : public SocketRig {
 public:
  using MakeUpgrades = std::function<std::unique_ptr<Upgrades>()>;

  // `cut`: paths that cannot be connected at the start. `rings`: of rank 0's flow, one a path, or none.
  // `upgrades`: of each rank, what its sockets become.
  explicit TcpRig(const RigOptions& options, PathSet cut = 0, std::vector<PathRing*> rings = {},
                  const MakeUpgrades& upgrades = {})
      : SocketRig(options, 100'000, lengths()) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::vector<tcp::Port> ports(options.paths, tcp::usable_ports("lo").front());
      for (uint32_t p = 0; p < options.paths; ++p) ports[p].index = index_of(rank, p);
      End& end = add_end(rank, std::move(ports));
      if (upgrades) end.upgrades = upgrades();
    }
    for (uint32_t from = 0; from < 2; ++from) {
      std::vector<tcp::Port> called;
      for (const tcp::Port& theirs : ends_[1 - from]->ports) {
        relays_[from].push_back(std::make_unique<tcp::Relay>(tcp::usable_ports("lo").front(), theirs));
        called.push_back(relays_[from].back()->port());
      }
      for (uint32_t p = 0; p < options.paths; ++p)
        if (cut & bit(p)) relays_[from][p]->set(tcp::Wire::kCut);
      connect(from, called, from == 0 ? std::move(rings) : std::vector<PathRing*>());
    }
    start();
  }

  void fail(uint32_t path, Fault fault) override {
    using tcp::Wire;
    switch (fault) {
      case kCut: return set(path, Wire::kCut, Wire::kCut);
      case kSilent: return set(path, Wire::kSilent, Wire::kSilent);
      case kOneWay: return set(path, Wire::kSilentFromNear, Wire::kSilentFromFar);
      case kHalfOpen: return set(path, Wire::kFarClosed, Wire::kNearClosed);
      case kOwnPort:
      case kPeerPort:
        set(path, Wire::kSilent, Wire::kSilent);
        down_[path] = index_of(fault == kPeerPort, path);
        return ends_[fault == kPeerPort]->port_changed(down_[path], false);
    }
  }
  void heal(uint32_t path) override {
    set(path, tcp::Wire::kWhole, tcp::Wire::kWhole);
    if (down_[path] != 0) ends_[down_[path] == index_of(1, path)]->port_changed(down_[path], true);
    down_[path] = 0;
  }

 private:
  // Each path has a port of its own, though all of them are loopback.
  static uint32_t index_of(uint32_t rank, uint32_t path) { return 1000 + 100 * rank + path; }
  // Shorter than those of real networks; probes that a busy machine answers in time.
  static tcp::TimerLengths lengths() {
    tcp::TimerLengths lengths;
    lengths.watchdog_ns = 20'000'000;
    lengths.idle_watchdog_ns = 50'000'000;
    lengths.probe_ns = 150'000'000;
    lengths.reopen_ns = 2'000'000;
    lengths.longest_reopen_ns = 20'000'000;
    lengths.connect_ns = 200'000'000;
    return lengths;
  }
  void set(uint32_t path, tcp::Wire of_flow_0, tcp::Wire of_flow_1) {
    relays_[0][path]->set(of_flow_0);
    relays_[1][path]->set(of_flow_1);
  }

  std::vector<std::unique_ptr<tcp::Relay>> relays_[2];  // of the flow that this rank sends, by path
  uint32_t down_[kMaxPaths] = {};
};

}  // namespace starling::link::conformance
