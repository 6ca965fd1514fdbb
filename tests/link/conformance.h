// What every link has to do, whatever carries its bytes: the cases, and what a link shows of itself to them
// (Rig). One list of cases for shared memory, TCP, the simulated network (conformance_test.cc) and RDMA (in a
// guest: tests/verbs/conformance_program.cc).
//
// Two ranks, a flow in each direction over the same paths. Every byte is checked; sources and places are used
// again as soon as they may be, so what comes late or twice damages another's bytes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "link/flow.h"
#include "link/path.h"
#include "link/sender.h"
#include "machine/sim/random.h"

namespace starling::link::conformance {

struct Failure {
  std::string why;
};

// ---- what a program sends --------------------------------------------------------------------------------
// Every way that bytes take: none; a few; either side of a word, a header, a buffer, a slot; several reads.
inline std::vector<uint32_t> sizes_until(uint32_t most_bytes) {
  std::vector<uint32_t> sizes{0,  1,    7,    8,    15,   16,   47,   48,    49,    63,
                              64, 1000, 4095, 4096, 4097, 8191, 8192, 65535, 65536, 100'000};
  std::erase_if(sizes, [=](uint32_t bytes) { return bytes > most_bytes; });
  return sizes;
}

// One direction.
class Traffic {
 public:
  Traffic(uint32_t from, std::vector<uint32_t> sizes, uint64_t slots)
      : from_(from), sizes_(std::move(sizes)), sources_(slots), places_(slots) {
    for (auto* memory : {&sources_, &places_})
      for (auto& slot : *memory) slot.resize(*std::max_element(sizes_.begin(), sizes_.end()));
  }
  uint64_t slots() const { return sources_.size(); }
  uint64_t sizes() const { return sizes_.size(); }
  // Each size in turn, behind another one each round.
  uint32_t bytes(uint64_t k) const { return sizes_[(k + k / sizes_.size()) % sizes_.size()]; }
  std::span<const std::byte> source(uint64_t k) const { return {sources_[k % slots()].data(), bytes(k)}; }
  std::byte* place(uint64_t k) { return places_[k % slots()].data(); }

  void write(uint64_t k) {
    for (uint32_t at = 0; at < bytes(k); ++at) sources_[k % slots()][at] = value(k, at);
  }
  // In order, each once.
  void accept(uint64_t k, uint64_t came_bytes) {
    if (k != accepted) throw Failure{name(k) + " came when " + std::to_string(accepted) + " was due"};
    if (came_bytes != bytes(k))
      throw Failure{name(k) + " came with " + std::to_string(came_bytes) + " bytes"};
    for (uint32_t at = 0; at < bytes(k); ++at)
      if (places_[k % slots()][at] != value(k, at))
        throw Failure{name(k) + ", of " + std::to_string(bytes(k)) + " bytes: byte " + std::to_string(at)};
    ++accepted;
  }

  uint64_t limit = 0;  // the program has so many
  uint64_t offered = 0;
  uint64_t accepted = 0;

 private:
  std::byte value(uint64_t k, uint64_t at) const {
    return std::byte((k + from_) * 131 + at * 7 + (at >> 8) + from_);
  }
  std::string name(uint64_t k) const {
    return "transfer " + std::to_string(k) + " of rank " + std::to_string(from_);
  }

  const uint32_t from_;
  const std::vector<uint32_t> sizes_;
  std::vector<std::vector<std::byte>> sources_, places_;
};

// ---- what a link shows -----------------------------------------------------------------------------------
enum Fault : uint32_t {
  kCut = 1,  // connections are reset, new ones refused
  kSilent = 2,  // nothing passes, nobody is told
  kOneWay = 4,  // nothing of rank 0 passes, nobody is told
  kOwnPort = 8,  // rank 0's port goes down
  kPeerPort = 16,
  kHalfOpen = 32,  // rank 1's ends of the path are closed, rank 0 is not told
};
constexpr uint32_t kDeath = 64;  // of rank 1, too, can be shown
constexpr uint32_t kAllFaults = 127;

struct RigOptions {
  Policy policy = Policy::kPrimaryBackup;
  uint32_t paths = 2;
  uint32_t most_bytes = ~0u;
  uint64_t slots = 16;
  bool patient = false;  // nothing is taken for silent, and nobody asks
  bool asks_when_idle = true;  // false: who has nothing under way asks nobody (links of sockets)
  bool answers_late = false;  // whoever is asked may take his time
  uint64_t give_up_ns = 100'000'000'000;
  uint64_t seed = 1;
  std::vector<uint32_t> sizes = {};  // of transfers, in turn, in place of all
};

class Rig {
 public:
  Rig(const RigOptions& options, uint32_t most_bytes)
      : traffic{{0, sizes(options, most_bytes), options.slots},
                {1, sizes(options, most_bytes), options.slots}} {}
  virtual ~Rig() = default;

  // A moment passes.
  virtual void turn() = 0;
  virtual uint64_t now_ns() const = 0;
  virtual void offer(uint32_t from, uint64_t end) = 0;
  // Below it sources are the program's again.
  virtual uint64_t acked(uint32_t from) const = 0;
  virtual uint64_t transmitted(uint32_t from) const = 0;
  // So many may be under way.
  virtual uint64_t credit() const = 0;
  // Who waits for longer asks.
  virtual uint64_t watchdog_ns() const { return 300'000; }
  // The rank looks at nothing.
  virtual void hold(uint32_t rank, bool held) = 0;
  // Of what is waited for; only a hang reaches it.
  virtual uint64_t bound_ns() const { return 100'000'000'000; }

  // Links that have paths.
  virtual const SenderState* sender(uint32_t) const { return nullptr; }
  virtual void fail(uint32_t, Fault) {}
  virtual void heal(uint32_t) {}
  virtual void die() {}  // rank 1
  // Of the flow that rank `from` sends, as `rank` says it; "" while it goes on.
  virtual std::string failure(uint32_t, uint32_t) const { return ""; }
  virtual std::string port_name(uint32_t) const { return ""; }  // of rank 0's paths

  // ---- for cases -----------------------------------------------------------------------------------------
  template <class Condition>
  void run_until(const char* what, Condition&& condition) {
    const uint64_t end = now_ns() + bound_ns();
    while (!condition()) {
      if (now_ns() > end) throw Failure{std::string(what) + ": not within the time; " + text()};
      feed();
      turn();
    }
  }
  void run_for(uint64_t ns) {
    const uint64_t end = now_ns() + ns;
    run_until("time", [&] { return now_ns() >= end; });
  }
  void add(uint64_t more) {
    for (Traffic& t : traffic) t.limit += more;
  }
  bool all_there() const {
    for (uint32_t from = 0; from < 2; ++from)
      if (traffic[from].accepted != traffic[from].limit || acked(from) != traffic[from].limit) return false;
    return true;
  }
  void deliver(uint64_t more) {
    add(more);
    run_until("delivery", [&] { return all_there(); });
  }
  bool uses(PathSet paths) const {
    for (uint32_t from = 0; from < 2; ++from)
      if (sender(from)->phase != SenderPhase::kRun || sender(from)->use != paths) return false;
    return true;
  }
  // Whether a probe of a path in use is under way.
  bool asks() const {
    for (uint32_t from = 0; from < 2; ++from)
      for (uint32_t p = 0; p < sender(from)->path_count; ++p)
        if (sender(from)->paths[p].asked != 0) return true;
    return false;
  }
  PathSet up() const {
    return paths_that_are(sender(0)->paths, PathCondition::kUp) &
           paths_that_are(sender(1)->paths, PathCondition::kUp);
  }

  Traffic traffic[2];
  bool dead = false;  // rank 1

 private:
  static std::vector<uint32_t> sizes(const RigOptions& options, uint32_t most_bytes) {
    return options.sizes.empty() ? sizes_until(std::min(options.most_bytes, most_bytes)) : options.sizes;
  }
  // What has a free source and place.
  void feed() {
    for (uint32_t from = 0; from < (dead ? 1u : 2u); ++from) {
      Traffic& t = traffic[from];
      const uint64_t end = std::min(t.limit, std::min(t.accepted, acked(from)) + t.slots());
      if (end <= t.offered) continue;
      for (; t.offered < end; ++t.offered) t.write(t.offered);
      offer(from, end);
    }
  }
  std::string text() const {
    std::string text;
    for (uint32_t from = 0; from < 2; ++from) {
      text += "rank " + std::to_string(from) + ": " + std::to_string(traffic[from].accepted) + " of " +
              std::to_string(traffic[from].limit) + " came";
      if (const SenderState* s = sender(from))
        text += ", phase " + std::to_string(int(s->phase)) + ", epoch " + std::to_string(s->epoch) +
                ", paths " + std::to_string(s->use);
      text += failure(from, from) + "; ";
    }
    return text;
  }
};

struct LinkKind {
  const char* name;
  uint32_t faults;  // of Fault, and kDeath, that can be made
  uint32_t failovers;  // in a row
  std::function<std::unique_ptr<Rig>(const RigOptions&)> make;
};

// ---- the cases -------------------------------------------------------------------------------------------
inline void every_size_in_order_both_ways(const LinkKind& link) {
  const auto rig = link.make({.patient = true});
  rig->deliver(4 * rig->traffic[0].sizes());
  if (const SenderState* s = rig->sender(0); s != nullptr && s->epoch != 1)
    throw Failure{"it failed over, though nothing was wrong"};
}

inline void a_rank_that_does_not_look_holds_its_peer_up(const LinkKind& link) {
  const auto rig = link.make({.most_bytes = 4096, .slots = 256, .patient = true});
  rig->deliver(10);
  rig->hold(1, true);
  rig->traffic[0].limit += 250;
  const uint64_t before = rig->traffic[0].accepted;
  const auto under_way = [&] { return rig->transmitted(0) - before; };
  rig->run_until("credit used up", [&] { return under_way() >= std::min<uint64_t>(rig->credit(), 64); });
  rig->run_for(20'000'000);
  if (under_way() > rig->credit()) throw Failure{std::to_string(under_way()) + " are under way"};
  if (rig->traffic[0].accepted != before) throw Failure{"who does not look has seen something"};
  rig->hold(1, false);
  rig->run_until("the rest", [&] { return rig->all_there(); });
}

// Ranks that stand still for longer than anybody waits before he asks: probes go out behind data that nobody
// reads, and are answered late. Nothing is lost, and no path is taken for dead, nor for one that lost data.
inline void ranks_that_look_now_and_then_lose_nothing(const LinkKind& link) {
  const auto rig = link.make({.most_bytes = 4096, .slots = 64, .answers_late = true});
  starling::sim::Random random(1, 5);
  uint32_t asked = 0;
  for (uint32_t round = 0; round < 12; ++round) {
    rig->add(100);
    const uint32_t held = random.below(3);  // one of them, or both
    for (const uint32_t rank : {0u, 1u}) rig->hold(rank, held == rank || held == 2);
    rig->run_for(random.between(rig->watchdog_ns() / 2, 2 * rig->watchdog_ns()));
    for (const uint32_t rank : {0u, 1u}) rig->hold(rank, false);
    if (const SenderState* s = rig->sender(1 - held % 2)) asked += s->paths[0].asked;
    if (random.below(2) == 0) rig->run_until("delivery", [&] { return rig->all_there(); });
  }
  rig->run_until("delivery", [&] { return rig->all_there(); });
  for (const uint32_t from : {0u, 1u})
    if (const SenderState* s = rig->sender(from); s != nullptr && s->epoch != 1)
      throw Failure{"it failed over, though nothing was wrong"};
  if (rig->sender(0) != nullptr && asked == 0) throw Failure{"nobody asked: this shows nothing"};
}

inline void one_direction_alone(const LinkKind& link) {
  const auto rig = link.make({.most_bytes = 4096, .patient = true});
  for (const uint32_t from : {0u, 1u, 0u}) {
    rig->traffic[from].limit += 100;
    rig->run_until("delivery", [&] { return rig->all_there(); });
  }
}

// By the backup, and back once the path is well again.
inline void over_and_back(const LinkKind& link, Fault fault) {
  const auto rig = link.make({});
  rig->deliver(20);
  rig->run_until("the first path", [&] { return rig->uses(1); });
  rig->add(200);
  rig->fail(0, fault);
  rig->run_until("the backup", [&] { return rig->uses(2); });
  rig->run_until("delivery", [&] { return rig->all_there(); });
  rig->heal(0);
  rig->run_until("the first path again", [&] { return rig->uses(1); });
  rig->deliver(50);
}
inline void leaves_a_path_that_is_cut(const LinkKind& link) { over_and_back(link, kCut); }
inline void leaves_a_silent_path(const LinkKind& link) { over_and_back(link, kSilent); }
inline void leaves_a_path_that_is_silent_one_way(const LinkKind& link) { over_and_back(link, kOneWay); }
inline void leaves_its_own_dead_port(const LinkKind& link) { over_and_back(link, kOwnPort); }
inline void leaves_the_peers_dead_port(const LinkKind& link) { over_and_back(link, kPeerPort); }
inline void leaves_a_half_open_path(const LinkKind& link) { over_and_back(link, kHalfOpen); }

inline void an_idle_half_open_path_is_found(const LinkKind& link) {
  const auto rig = link.make({});
  rig->deliver(20);
  rig->fail(0, kHalfOpen);
  rig->run_until("the backup", [&] { return rig->uses(2); });
  rig->deliver(20);
}

inline void the_backup_fails_too(const LinkKind& link) {
  const auto rig = link.make({});
  rig->deliver(20);
  rig->add(300);
  rig->fail(0, kSilent);
  rig->run_until("the backup", [&] { return rig->sender(0)->use == 2 && rig->sender(0)->epoch > 1; });
  rig->fail(1, kSilent);
  rig->heal(0);
  rig->run_until("delivery", [&] { return rig->all_there(); });
  rig->heal(1);
  rig->run_until("both", [&] { return rig->up() == 3; });
}

inline void stripes_lose_a_path_and_get_it_back(const LinkKind& link) {
  const auto rig = link.make({.policy = Policy::kStriping});
  rig->deliver(40);
  rig->run_until("both paths", [&] { return rig->uses(3); });
  rig->add(200);
  rig->fail(1, kSilent);
  rig->run_until("one path", [&] { return rig->uses(1); });
  rig->run_until("delivery", [&] { return rig->all_there(); });
  rig->heal(1);
  rig->run_until("both paths again", [&] { return rig->uses(3); });
  rig->deliver(40);
}

inline void random_failovers(const LinkKind& link) {
  for (const Policy policy : {Policy::kPrimaryBackup, Policy::kStriping}) {
    const auto rig = link.make({.policy = policy, .seed = 1 + uint64_t(policy)});
    starling::sim::Random random(uint64_t(policy), 3);
    const PathSet chosen = policy == Policy::kStriping ? 3 : 1;
    uint32_t failed_in_use = 0;
    for (uint32_t k = 0; k < link.failovers / 2; ++k) {
      rig->run_until("all paths", [&] { return rig->up() == 3; });
      // A failback under way would end the epoch that is noted below.
      rig->run_until("their use", [&] { return rig->uses(chosen); });
      rig->add(60);
      const uint64_t amid = rig->traffic[0].accepted + random.below(40);
      rig->run_until("the middle", [&] { return rig->traffic[0].accepted >= amid; });
      Fault fault;
      do fault = Fault(1u << random.below(6));
      while (!(fault & link.faults));
      // Which one is in use, mostly.
      const uint32_t path = random.below(4) == 0 ? 1 : 0;
      const uint32_t epoch = rig->sender(0)->epoch;
      // A busy machine may have been left for its silence since.
      const bool in_use = path == 0 && rig->uses(chosen);
      failed_in_use += in_use;
      rig->fail(path, fault);
      rig->run_until("that it is noticed", [&] { return !(rig->up() & bit(path)); });
      rig->run_until("delivery", [&] { return rig->all_there(); });
      if (in_use && rig->sender(0)->epoch == epoch && rig->sender(1)->epoch == epoch)
        throw Failure{"no epoch ended with its path"};
      rig->heal(path);
    }
    if (failed_in_use == 0) throw Failure{"no path failed in use: this shows nothing"};
  }
}

inline void expect_text(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos) throw Failure{"no '" + part + "' in: " + text};
}

inline void a_dead_peer_is_named(const LinkKind& link) {
  const auto rig = link.make({.give_up_ns = 1'500'000'000});
  rig->deliver(20);
  rig->traffic[0].limit += 10;
  rig->dead = true;
  rig->die();
  rig->run_until("errors", [&] { return !rig->failure(0, 0).empty() && !rig->failure(0, 1).empty(); });
  expect_text(rig->failure(0, 0), {"no path to rank 1 lives: ", rig->port_name(0), "; " + rig->port_name(1)});
  expect_text(rig->failure(0, 1), {"rank 1"});
  rig->run_until("free sources", [&] { return released(*rig->sender(0)); });
}

inline void without_a_path_every_end_says_why(const LinkKind& link) {
  const auto rig = link.make({.give_up_ns = 2'500'000'000});
  rig->deliver(20);
  rig->add(10);
  for (const uint32_t path : {0u, 1u}) rig->fail(path, kSilent);
  for (const uint32_t rank : {0u, 1u})
    for (const uint32_t from : {0u, 1u})
      rig->run_until("errors", [&] { return !rig->failure(rank, from).empty(); });
  for (const uint32_t rank : {0u, 1u}) {
    expect_text(rig->failure(rank, rank), {"no path to rank " + std::to_string(1 - rank) + " lives: "});
    expect_text(rig->failure(1 - rank, rank), {"rank " + std::to_string(rank)});
  }
  expect_text(rig->failure(0, 0), {rig->port_name(0), "; " + rig->port_name(1)});
}

struct Case {
  const char* name;
  uint32_t faults;  // that it makes
  void (*run)(const LinkKind&);
};

inline constexpr Case kCases[] = {
    {"every_size_in_order_both_ways", 0, every_size_in_order_both_ways},
    {"a_rank_that_does_not_look_holds_its_peer_up", 0, a_rank_that_does_not_look_holds_its_peer_up},
    {"ranks_that_look_now_and_then_lose_nothing", 0, ranks_that_look_now_and_then_lose_nothing},
    {"one_direction_alone", 0, one_direction_alone},
    {"leaves_a_path_that_is_cut", kCut, leaves_a_path_that_is_cut},
    {"leaves_a_silent_path", kSilent, leaves_a_silent_path},
    {"leaves_a_path_that_is_silent_one_way", kOneWay, leaves_a_path_that_is_silent_one_way},
    {"leaves_its_own_dead_port", kOwnPort, leaves_its_own_dead_port},
    {"leaves_the_peers_dead_port", kPeerPort, leaves_the_peers_dead_port},
    {"leaves_a_half_open_path", kHalfOpen, leaves_a_half_open_path},
    {"an_idle_half_open_path_is_found", kHalfOpen, an_idle_half_open_path_is_found},
    {"the_backup_fails_too", kSilent, the_backup_fails_too},
    {"stripes_lose_a_path_and_get_it_back", kSilent, stripes_lose_a_path_and_get_it_back},
    {"random_failovers", kSilent, random_failovers},
    {"a_dead_peer_is_named", kDeath, a_dead_peer_is_named},
    {"without_a_path_every_end_says_why", kSilent, without_a_path_every_end_says_why},
};

inline bool applies(const Case& entry, const LinkKind& link) {
  return (entry.faults & link.faults) == entry.faults;
}

}  // namespace starling::link::conformance
