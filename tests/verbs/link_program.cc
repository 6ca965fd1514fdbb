// A flow over Soft-RoCE, in a guest that has two rails (init.sh), while ports go down and packets are lost:
// every transfer arrives once, in order, with its bytes. Each end is a thread with devices of its own;
// sources and places are used again as soon as they may be, so what comes late or twice damages another's
// bytes.
//
//   link_program cases            one line for each: CASE name passed, or CASE name failed: why
//   link_program figures ROUNDS   how long traffic rests, one line for each failure: FIGURE kind event_ms
//   gap_ms
//   link_program failovers N [SEED]   so many in a row of one flow, by chance: FAILOVER kind, and at the end
//   FAILOVERS count transfers epoch
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "monitor/path_ring.h"
#include "verbs/ends.h"

namespace starling::link {
namespace {

using namespace guest;

// ---- two ends, and what is expected of them ---------------------------------------------------------------
struct Pair {
  explicit Pair(const Options& options = {}, std::vector<PathRing*> rings = {})
      : receiver(options, shared), sender(options, shared, receiver.ports(), std::move(rings)) {
    sender.set_limit(~uint64_t{0});
  }

  template <class Condition>
  void expect(const char* what, Condition&& condition) {
    const uint64_t end = cpu::monotonic_ns() + guest::patiently(kBoundNs);
    while (!condition()) {
      if (shared.damaged) throw Failure{"a transfer came with other bytes, or out of order"};
      if (cpu::monotonic_ns() > end) {
        const SenderState s = sender.state();
        throw Failure{std::string(what) + ": not within the time; accepted " +
                      std::to_string(shared.accepted) + ", phase " + std::to_string(int(s.phase)) +
                      ", epoch " + std::to_string(s.epoch) + ", use " + std::to_string(s.use) + " " +
                      sender.failure()};
      }
      usleep(1000);
    }
  }
  void deliver(uint64_t more) {
    const uint64_t target = shared.accepted + more;
    expect("progress", [&] { return shared.accepted >= target; });
  }
  void expect_use(PathSet use) {
    expect("paths in use", [&] {
      const SenderState s = sender.state();
      return s.phase == SenderPhase::kRun && s.use == use;
    });
  }
  void finish() {
    if (shared.damaged) throw Failure{"a transfer came with other bytes, or out of order"};
  }

  Shared shared;
  ReceivingEnd receiver;
  SendingEnd sender;
};

// Rail 0 fails while data is under way; traffic goes on by rail 1, and returns.
template <class Fail>
void over_and_back(const Options& options, Fail&& fail) {
  Pair pair(options);
  pair.deliver(10);
  pair.expect_use(1);
  fail();
  pair.expect_use(2);
  pair.deliver(15);
  heal(0);
  pair.expect_use(1);
  pair.deliver(15);
  pair.finish();
}

void rides_on_rdma() {
  const uint64_t before = packets_sent(0);
  Pair pair;
  pair.deliver(100);
  pair.finish();
  if (packets_sent(0) < before + 100) throw Failure{"the device has sent next to nothing"};
  if (pair.sender.state().epoch != 1) throw Failure{"it failed over, though nothing was wrong"};
}
void own_port_down() {
  over_and_back({}, [] { port(0, 'a', false); });
}
void peer_port_down() {
  over_and_back({}, [] { port(0, 'b', false); });
}
void all_data_lost() {
  over_and_back({}, [] { lose(0, 'a', "100%"); });
}
void all_answers_lost() {
  over_and_back({}, [] { lose(0, 'b', "100%"); });
}
void several_queue_pairs() {
  Options options;
  options.rails.queue_pairs.count = 3;
  options.rails.queue_pairs.traffic_class = 32;
  over_and_back(options, [] { lose(0, 'a', "100%"); });
}
void broken_paths_are_taken_apart() {
  const uint64_t before = queue_pairs();
  {
    Pair pair;
    pair.deliver(10);
    const uint64_t running = queue_pairs();
    if (running < before + 4) throw Failure{"queue pairs are not counted"};  // two paths of two ends
    port(0, 'a', false);
    pair.expect_use(2);
    heal(0);
    pair.expect_use(1);
    pair.expect("the old queue pairs are gone", [&] { return queue_pairs() == running; });
  }
  if (queue_pairs() != before) throw Failure{"queue pairs are left"};
}
// The sender's own, and its GID with it.
void address_changes_while_down() {
  Pair pair;
  pair.deliver(10);
  port(0, 'a', false);
  pair.expect_use(2);
  come_up_elsewhere(0, 'a');
  pair.expect_use(1);
  const uint64_t before = packets_sent(0);
  pair.deliver(100);
  if (packets_sent(0) < before + 100) throw Failure{"the path does not go over RDMA any more"};
  pair.finish();
}
void flap() {
  Pair pair;
  pair.deliver(10);
  for (int k = 0; k < 4; ++k) {
    port(0, k % 2 ? 'a' : 'b', false);
    pair.deliver(5);
    port(0, k % 2 ? 'a' : 'b', true);
  }
  pair.expect_use(1);
  pair.deliver(15);
  pair.finish();
}
void one_in_twenty_lost() {
  Pair pair;
  pair.deliver(10);
  for (const int rail : {0, 1})
    for (const char end : {'a', 'b'}) lose(rail, end, "5%");
  pair.deliver(100);
  for (const int rail : {0, 1}) heal(rail);
  pair.expect_use(1);
  pair.deliver(10);
  pair.finish();
}
void the_second_fails_too() {
  Pair pair;
  pair.deliver(10);
  lose(0, 'a', "100%");
  pair.expect_use(2);
  lose(1, 'b', "100%");
  heal(0);
  pair.expect_use(1);
  pair.deliver(15);
  heal(1);
  pair.expect("the backup is back",
              [&] { return pair.sender.state().paths[1].condition == PathCondition::kUp; });
  pair.finish();
}
void striping_loses_a_rail() {
  Options options;
  options.policy = Policy::kStriping;
  Pair pair(options);
  pair.deliver(15);
  pair.expect_use(3);
  port(1, 'b', false);
  pair.expect_use(1);
  pair.deliver(15);
  heal(1);
  pair.expect_use(3);
  pair.deliver(15);
  pair.finish();
}
// The receiver's queue pairs break, too: it hears of the sender's end by its word, or by its own timer much
// later.
void bad_key_is_fatal() {
  Options options;
  options.bad_key = true;
  Pair pair(options);
  pair.expect("an error at the sender", [&] { return !pair.sender.failure().empty(); });
  for (const char* told : {"no other path could help", "(remote access error)"})
    if (pair.sender.failure().find(told) == std::string::npos) throw Failure{pair.sender.failure()};
}
void nothing_lives() {
  Options options;
  options.give_up_ns = 15'000'000'000;
  Pair pair(options);
  pair.deliver(10);
  for (const int rail : {0, 1}) lose(rail, 'a', "100%");
  pair.expect("an error at the sender", [&] { return !pair.sender.failure().empty(); });
  pair.expect("an error at the receiver", [&] { return !pair.receiver.failure().empty(); });
  if (pair.sender.failure().find("no path to rank 1 lives: a0 10.0.0.1") == std::string::npos)
    throw Failure{pair.sender.failure()};
}
// What watchers see: each transfer once, from its post to its completion, though two queue pairs of a path
// keep no order between them.
void transfers_are_recorded() {
  constexpr uint64_t kTransfers = 100;
  const auto rings = std::make_unique<std::array<PathRing, 2>>();
  Options options;
  options.policy = Policy::kStriping;
  options.rails.queue_pairs.count = 2;
  Pair pair(options, {&(*rings)[0], &(*rings)[1]});
  pair.sender.set_limit(kTransfers);
  pair.expect("every transfer and its completion", [&] {
    std::lock_guard lock(pair.sender.mutex());
    return pair.shared.accepted == kTransfers && (*rings)[0].left_bytes + (*rings)[1].left_bytes == 0 &&
           (*rings)[0].written + (*rings)[1].written == kTransfers;
  });
  pair.finish();
  if (pair.sender.state().epoch != 1) throw Failure{"it failed over, though nothing was wrong"};
  uint64_t bytes = 0;
  for (uint64_t k = 0; k < kTransfers; ++k) bytes += sizeof k + payload_bytes(k);
  for (const PathRing& ring : *rings) {
    bytes -= ring.bytes;
    if (ring.link != LinkKind::kVerbs) throw Failure{"the path is called another link's"};
    if (ring.written == 0) throw Failure{"a path carried nothing"};
    monitor::PathReader reader(ring);
    uint64_t posted = 0, completed = 0;
    for (TransferRecord record; reader.next(record);
         posted = record.posted_ns, completed = record.completed_ns)
      if (record.posted_ns < posted || record.completed_ns < completed ||
          record.completed_ns <= record.posted_ns)
        throw Failure{"times are out of order"};
  }
  if (bytes != 0) throw Failure{"records have other bytes"};
}
void a_receiver_without_rdma_gets_tcp() {
  const uint64_t before = packets_sent(0);
  const auto rings = std::make_unique<std::array<PathRing, 2>>();
  Options options;
  options.receiver_has_rails = false;
  Pair pair(options, {&(*rings)[0], &(*rings)[1]});
  pair.deliver(100);
  pair.finish();
  if (packets_sent(0) != before) throw Failure{"the device was used all the same"};
  for (const PathRing& ring : *rings)
    if (ring.link != LinkKind::kTcp) throw Failure{"the path is called RDMA all the same"};
}

constexpr Case kCases[] = {
    {"rides_on_rdma", rides_on_rdma},
    {"own_port_down", own_port_down},
    {"peer_port_down", peer_port_down},
    {"all_data_lost", all_data_lost},
    {"all_answers_lost", all_answers_lost},
    {"broken_paths_are_taken_apart", broken_paths_are_taken_apart},
    {"address_changes_while_down", address_changes_while_down},
    {"flap", flap},
    {"one_in_twenty_lost", one_in_twenty_lost},
    {"the_second_fails_too", the_second_fails_too},
    {"striping_loses_a_rail", striping_loses_a_rail},
    {"several_queue_pairs", several_queue_pairs},
    {"transfers_are_recorded", transfers_are_recorded},
    {"bad_key_is_fatal", bad_key_is_fatal},
    {"nothing_lives", nothing_lives},
    {"a_receiver_without_rdma_gets_tcp", a_receiver_without_rdma_gets_tcp},
};

int run_cases(int count, char** names) { return run_those(kCases, count, names); }

// ---- how long traffic rests -------------------------------------------------------------------------------
template <class Fail>
void figure(const char* kind, Fail&& fail) {
  Options options;
  options.patient = false;
  Pair pair(options);
  pair.deliver(10);
  pair.expect_use(1);
  pair.sender.forget_event();
  pair.shared.longest_gap_ns = 0;
  fail();
  pair.expect_use(2);
  pair.deliver(10);
  const uint64_t event_ns = pair.sender.down_event_ns(), resumed_ns = pair.shared.epoch_ns;
  std::printf("FIGURE %s %.2f %.2f\n", kind,
              event_ns == 0 || resumed_ns < event_ns ? -1.0 : double(resumed_ns - event_ns) / 1e6,
              double(pair.shared.longest_gap_ns) / 1e6);
  std::fflush(stdout);
  heal(0);
  pair.expect_use(1);
  pair.finish();
}

int run_figures(int rounds) {
  for (int k = 0; k < rounds; ++k) {
    figure("own_port_down", [] { port(0, 'a', false); });
    figure("peer_port_down", [] { port(0, 'b', false); });
    figure("all_data_lost", [] { lose(0, 'a', "100%"); });
    figure("all_answers_lost", [] { lose(0, 'b', "100%"); });
  }
  return 0;
}

// ---- many in a row ----------------------------------------------------------------------------------------
// The rail in use fails at some moment of the traffic, in some way; when the flow has left it, it heals, and
// the flow comes back.
int run_failovers(int count, uint64_t seed) {
  std::mt19937_64 chance(seed);
  constexpr std::array kKinds = {"own port down", "peer's port down", "data lost", "answers lost",
                                 "silent both ways"};
  Options options;
  options.patient = false;
  Pair pair(options);
  for (int k = 0; k < count; ++k) {
    pair.deliver(5 + chance() % 20);
    pair.expect_use(1);
    const auto kind = chance() % kKinds.size();
    usleep(static_cast<useconds_t>(chance() % 3000));
    if (kind < 2) port(0, kind == 0 ? 'a' : 'b', false);
    if (kind == 2 || kind == 4) lose(0, 'a', "100%");
    if (kind == 3 || kind == 4) lose(0, 'b', "100%");
    pair.expect_use(2);
    pair.deliver(5 + chance() % 20);
    heal(0);
    std::printf("FAILOVER %s\n", kKinds[kind]);
    std::fflush(stdout);
  }
  pair.expect_use(1);
  pair.deliver(20);
  pair.finish();
  std::printf("FAILOVERS %d %llu %u\n", count, static_cast<unsigned long long>(pair.shared.accepted),
              pair.sender.state().epoch);
  return 0;
}

}  // namespace
}  // namespace starling::link

int main(int argc, char** argv) {
  using namespace starling::link;
  if (argc >= 2 && std::strcmp(argv[1], "cases") == 0) return run_cases(argc - 2, argv + 2);
  try {
    if (argc == 3 && std::strcmp(argv[1], "figures") == 0) return run_figures(std::atoi(argv[2]));
    if (argc >= 3 && std::strcmp(argv[1], "failovers") == 0)
      return run_failovers(std::atoi(argv[2]), argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  } catch (const Failure& failure) {
    std::printf("%s failed: %s\n", argv[1], failure.why.c_str());
    return 1;
  }
  std::fprintf(stderr,
               "usage: link_program cases [NAME...] | figures ROUNDS | failovers N [SEED] (in a guest: "
               "tests/verbs/guest.py)\n");
  return 2;
}
