// Two ranks and the paths between them, in virtual time and under one seed: what network.h explores without a
// clock, with latency, bandwidth, and ranks that are slow or stand still. For failover over seconds and
// thousands of transfers (timed_flow.h).
//
// A wire is one direction of a path. Of a frame that it loses, a connection makes a frame that comes late, as
// TCP and reliable queue pairs do: it is sent again, after longer and longer times, and what came behind it
// waits. So it is with frames that overtake others, and with those that come twice; but messages of a flow
// may be doubled, and overtaken, for all to see (link.h).
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "link/flow.h"
#include "machine/sim/random.h"

namespace starling::link::sim {

struct WireSettings {
  uint64_t latency_ns = 10'000;
  uint64_t jitter_ns = 0;  // so much more, at most
  uint64_t bytes_per_us = 10'000;
  uint64_t retry_ns = 1'000'000;  // until a lost frame is sent again; doubled each time, up to the next
  uint64_t longest_retry_ns = 200'000'000;
  // Chances of a frame, in 65536.
  uint32_t lost = 0;
  uint32_t late = 0;  // overtaken by those behind it
  uint32_t doubled = 0;
  uint32_t forgotten = 0;  // never comes, though its connection lives
};

class TimedNetwork {
 public:
  static constexpr uint32_t kRanks = 2;
  using Step = std::function<void()>;

  TimedNetwork(uint32_t paths, uint64_t seed, const WireSettings& wires);
  TimedNetwork(const TimedNetwork&) = delete;

  uint64_t now_ns() const { return now_ns_; }
  uint32_t path_count() const { return uint32_t(paths_.size()); }
  starling::sim::Random& random() { return random_; }

  // The next thing happens. Equal times: in the order in which they were asked for. False: nothing is left.
  bool step();
  void at(uint64_t when_ns, Step step);
  // One after the other, each when the rank has time for it. A rank that is dead has none.
  void to_rank(uint32_t rank, Step step);

  WireSettings& wire(uint32_t path, uint32_t from) { return paths_[path].from[from].settings; }
  // Of that many bytes: when they have left, and when they are there if nothing happens to them.
  std::pair<uint64_t, uint64_t> send(uint32_t path, uint32_t from, uint64_t bytes);
  // Whether what would arrive now does.
  bool passes(uint32_t path, uint32_t from) const;
  // Of a port. Nothing reaches a rank at an address that it had before.
  uint32_t address(uint32_t path, uint32_t rank) const { return paths_[path].address[rank]; }
  // The rank was called by its peer from there.
  void called_from(uint32_t path, uint32_t rank, uint32_t address);
  bool has_port(uint32_t path, uint32_t rank) const { return paths_[path].port_up[rank]; }
  bool refuses(uint32_t path) const { return paths_[path].refuses; }
  bool tells_resets(uint32_t path) const { return paths_[path].tells_resets; }
  bool is_dead(uint32_t rank) const { return ranks_[rank].dead; }

  // ---- what goes wrong -----------------------------------------------------------------------------------
  void silence(uint32_t path, uint32_t from, bool silent) { paths_[path].from[from].silent = silent; }
  // Nothing passes; the rank hears of it a little later.
  void set_port(uint32_t path, uint32_t rank, bool up);
  // Connections are reset, as far as ranks hear of it (bit r: rank r does), and no new ones can be made.
  void cut(uint32_t path, uint32_t heard_by);
  // New connections can be made, and what is lost is told again.
  void heal(uint32_t path);
  // The port has another address from now on; nobody is told.
  void move(uint32_t path, uint32_t rank) { ++paths_[path].address[rank]; }
  void hold(uint32_t rank, bool held);
  void slow(uint32_t rank, uint64_t step_ns) { ranks_[rank].step_ns = step_ns; }
  // Its host answers for it that it is gone; or nobody does.
  void die(uint32_t rank, bool silently);

  // ---- for flows -----------------------------------------------------------------------------------------
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void port_changed(uint32_t path, uint32_t rank, bool up) = 0;
    virtual void reset(uint32_t path, uint32_t rank) = 0;
    virtual void called_from(uint32_t path, uint32_t rank, uint32_t address) = 0;
  };
  void add(Listener& listener) { listeners_.push_back(&listener); }

 private:
  struct Wire {
    WireSettings settings;
    uint64_t free_ns = 0;
    bool silent = false;
  };
  struct Path {
    Wire from[kRanks];
    bool port_up[kRanks] = {true, true};
    uint32_t address[kRanks] = {};
    bool refuses = false;
    bool tells_resets = true;
  };
  struct Rank {
    std::deque<Step> steps;
    uint64_t free_ns = 0;
    uint64_t step_ns = 0;
    bool busy = false;  // its next step has its time
    bool held = false;
    bool dead = false;
    bool silent = false;
  };
  static constexpr uint64_t kPortEventNs = 50'000;  // until a rank hears of its port

  void serve(uint32_t rank);
  void serve_later(uint32_t rank);

  uint64_t now_ns_ = 0;
  uint64_t asked_ = 0;
  starling::sim::Random random_;
  std::map<std::pair<uint64_t, uint64_t>, Step> agenda_;  // by time and turn
  std::vector<Path> paths_;
  Rank ranks_[kRanks];
  std::vector<Listener*> listeners_;
};

}  // namespace starling::link::sim
