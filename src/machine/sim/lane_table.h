// The lanes of one rank by their numbers: made, connected in the background, and broken when an operation is
// under way for too long. Under the host's lock.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "machine/sim/cluster.h"
#include "machine/sim/lane.h"

namespace starling::sim {

class LaneTable {
 public:
  // The lanes of the cluster's program that have the rank as a member.
  void build(Cluster& cluster, uint32_t rank, std::byte* pool);

  // Null: not a member.
  SimLane* at(uint64_t number) const { return number < by_number_.size() ? by_number_[number] : nullptr; }
  // Those that it is a member of.
  const std::vector<SimLane*>& mine() const { return mine_; }
  uint32_t size() const { return uint32_t(by_number_.size()); }

  // At its first operation; peers find it a while later.
  void open(SimLane& lane);
  bool may_connect(const SimLane& lane) const;
  void connect();
  // What peers have registered, a while after.
  void open_buffers();
  // Every lane that is open knows all its peers.
  bool connected() const;
  // Calls give_up for each lane that was broken here, or by a peer.
  template <class GiveUp>
  void check_timeouts(GiveUp&& give_up) {
    for (SimLane* lane : mine_)
      if (!lane->broken && breaks(*lane)) give_up(*lane);
  }

  // Of broken lanes whose messages name buffers: withdraws, and gives buffers back that nobody reads, as
  // comm/broken_lane.cc does. closing: no operation comes any more. False: some are kept. Lanes of copies
  // apart: their owner uses what is given back.
  bool give_back(bool closing, bool copies = false);

  // The rank ends. Peers that it never was connected to learn of that from the kernel.
  void leave(bool copies = false);
  // Breaks the lane on all its ranks.
  void break_lane(SimLane& lane);

  std::string describe(const void* address) const;
  bool whole() const;
  std::string leftovers() const;

 private:
  static bool names_buffers(const SimLane& lane, bool copies) {
    return copies ? lane.spec().copies : lane.spec().has(Protocol::kPull) && !lane.spec().copies;
  }
  bool breaks(SimLane& lane);
  void ring_hosts(const SimLane& lane);
  void wake_proxy(const SimLane& lane);
  void withdraw(SimLane& lane);
  bool is_read(SimLane& lane);
  void learn_from_dead(uint32_t rank);

  Cluster* c_ = nullptr;
  std::vector<SimLane> lanes_;
  std::vector<SimLane*> by_number_, mine_;
  std::vector<uint64_t> connect_after_;
};

}  // namespace starling::sim
