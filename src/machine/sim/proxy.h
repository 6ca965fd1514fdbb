// A rank's proxy in the simulator: one fiber that carries what its blocks and its host store for ranks of
// other hosts, as link/carry does it, by the same device/carrying.h. It looks while operations between hosts
// are under way; else it hears of what begins and of what comes, and of nothing that blocks store.
//
//   blocks --departures--> proxy --transfers, in order, each once--> the peer's proxy --arrivals--> its
//   blocks
//
// Between two proxies is what a link promises (link/link.h): transfers take their time; a path breaks, and
// all that was under way on it is read from its source again, and comes late. How a link does that is tested
// elsewhere (docs/design/0013-links-and-failover.md).
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "machine/sim/cluster.h"
#include "machine/sim/lane.h"
#include "wire/carried.h"

namespace starling::sim {

class Proxy {
 public:
  // lanes: of the rank.
  void build(Cluster& cluster, uint32_t rank, const std::vector<SimLane*>& lanes);
  void add_fiber(uint32_t unit);

  // By the host, under its lock: an operation between hosts is under way, from before its first block runs
  // until its completion was read.
  void begin_work();
  void end_work(uint64_t operations) { ended_ += operations; }
  // Something was stored that it should see.
  void wake() { c_->world->scheduler.wake(fiber_); }
  // The host has ended: what is left is carried.
  void end();

  bool idle() const { return begun_ == ended_; }
  uint64_t messages() const { return messages_; }
  std::string state() const;

 private:
  // One peer's part of one lane.
  struct Line {
    SimLane* lane;
    uint32_t peer;  // its rank in the lane
    bool opened, open_told, met, broken, broken_told;
    std::vector<uint32_t> channels;
    std::vector<Carried> carried;  // likewise
  };
  struct Record {
    RecordKind kind;
    uint32_t lane;
    GrantsRecord grants;
  };
  struct Transfer {
    std::vector<Record> records;
    const std::byte* source = nullptr;  // of a message
    uint32_t lane = 0, channel = 0, slot = 0, bytes = 0;
    std::vector<std::byte> carried;
    std::vector<uint32_t> clock;  // what its sender knew
    uint64_t due_ns = 0;
  };
  struct Flow {
    std::deque<Transfer> transfers;  // that have not landed
    size_t sent = 0;  // of them, that are on the wire
    std::vector<Record> batch;  // that go with the next one
    uint64_t last_due_ns = 0;
    uint64_t down_until_ns = 0;
  };

  static void run_fiber(void* proxy) { static_cast<Proxy*>(proxy)->run(); }
  void run();
  bool look();
  void rest(bool idle);
  bool all_landed() const;

  // What our side does (link/carry/peer_link.cc).
  void read(Line& line);
  void tell_open(Line& line);
  void tell_messages(Line& line);
  void tell_grants(Line& line);
  void tell_broken(Line& line);
  void close_batch(Flow& flow);
  Flow& flow_of(const Line& line) { return flows_[line.lane->spec().ranks[line.peer]]; }
  bool transmit(uint32_t to);
  void break_path(Flow& flow);

  // What comes (link/carry/arrivals.cc).
  bool take(Flow& flow, uint32_t from);
  void land(const Transfer& transfer, uint32_t from);
  void apply(const Record& record, Line& line);
  Line& line_of(uint32_t lane, uint32_t rank);

  Cluster* c_ = nullptr;
  const Options* o_ = nullptr;
  uint32_t rank_ = 0;
  uint32_t fiber_ = 0;
  std::vector<Line> lines_;
  std::vector<Flow> flows_;  // to each rank
  uint64_t begun_ = 0, ended_ = 0;
  uint64_t messages_ = 0;
  bool ending_ = false, gone_ = false;
};

}  // namespace starling::sim
