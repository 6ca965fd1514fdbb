// Goal: a flow over real sockets delivers every transfer once, in order, with its bytes, while its paths are
// cut, fall silent and heal; and says which ports died when none lives. Method: both ends on one thread, over
// loopback; between them wires that the test cuts (relay.h). Destinations are used again as soon as they were
// read, so what comes late or twice damages another's bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "link/relay.h"
#include "link/tcp/receiving_flow.h"
#include "link/tcp/sending_flow.h"
#include "machine/cpu/futex.h"
#include "monitor/path_ring.h"

namespace starling::link::tcp {
namespace {

constexpr uint64_t kSlots = 16;
constexpr uint32_t kMostBytes = 100'000;
constexpr uint64_t kBoundNs = 200'000'000'000;

// Sizes of every kind: none, small ones that share a read, large ones that take several.
uint32_t payload_bytes(uint64_t sequence) {
  const uint32_t kinds[] = {0, 8, 4096, kMostBytes, 1000, 65536};
  return kinds[sequence * 2654435761 % 6];
}
std::byte value(uint64_t sequence, uint64_t at) { return std::byte(sequence * 131 + at * 7 + (at >> 8)); }

class Tcp : public testing::Test, public TransferSource, public TransferSink {
 protected:
  struct Waiting final : Watched {
    Waiting(Tcp& test, std::unique_ptr<Connection> c) : test(test), connection(std::move(c)) {}
    void ready(uint32_t) override { test.greet(*this); }
    Tcp& test;
    std::unique_ptr<Connection> connection;
    uint64_t watch = 0;
  };
  struct Listener final : Watched {
    Tcp* test = nullptr;
    Port port;
    Descriptor socket;
    void ready(uint32_t) override { test->accept_all(*this); }
  };

  void SetUp() override {
    lengths_.watchdog_ns = 20'000'000;
    lengths_.idle_watchdog_ns = 50'000'000;
    lengths_.probe_ns = 100'000'000;
    lengths_.reopen_ns = 2'000'000;
    lengths_.longest_reopen_ns = 20'000'000;
    lengths_.connect_ns = 200'000'000;
    lengths_.give_up_ns = 150'000'000'000;
    const Port lo = usable_ports("lo").front();
    listener_.test = this;
    listener_.port = lo;
    listener_.socket = listen_at(listener_.port);
    reactor_.add(listener_.socket.get(), &listener_, false);
    for (auto& slot : sources_) slot.resize(kMostBytes);
    for (auto& slot : destinations_) slot.resize(kMostBytes);
  }
  // A slow machine, or a sanitizer, must not be taken for a silent path.
  void be_patient() { lengths_.watchdog_ns = lengths_.idle_watchdog_ns = lengths_.probe_ns = 1'500'000'000; }
  void never_in_doubt() {
    lengths_.watchdog_ns = lengths_.idle_watchdog_ns = lengths_.probe_ns = 40'000'000'000;
  }
  void start(uint32_t paths, Policy policy) {
    policy_ = policy;
    SendingOptions options{1, 2, 7, policy, {}, lengths_, {}};
    rings_ = std::make_unique<PathRing[]>(paths);
    for (uint32_t p = 0; p < paths; ++p) {
      relays_.push_back(std::make_unique<Relay>(usable_ports("lo").front(), listener_.port));
      options.paths.emplace_back(usable_ports("lo").front(), relays_.back()->port());
      options.rings.push_back(&rings_[p]);
    }
    sender_ = std::make_unique<SendingFlow>(options, reactor_, *this, cpu::monotonic_ns());
  }

  void accept_all(Listener& listener) {
    int error;
    while (Descriptor socket = accept_from(listener.socket.get(), error)) {
      waiting_.push_back(std::make_unique<Waiting>(*this, std::make_unique<Connection>(std::move(socket))));
      Waiting& waiting = *waiting_.back();
      waiting.watch = reactor_.add(waiting.connection->fd(), &waiting, false);
    }
  }
  void greet(Waiting& waiting) {
    Hello hello{};
    bool whole = false;
    if (waiting.connection == nullptr) return;
    const int error = waiting.connection->read_hello(hello, whole);
    if (error == 0 && !whole) return;
    reactor_.remove(waiting.watch, waiting.connection->fd());
    if (whole && error == 0) {
      if (receiver_ == nullptr)
        receiver_ = std::make_unique<ReceivingFlow>(hello.path_count, Policy(hello.policy), 3, lengths_,
                                                    reactor_, *this, cpu::monotonic_ns());
      receiver_->adopt(hello, std::move(waiting.connection), listener_.port);
    }
    waiting.connection.reset();
  }

  // TransferSource and TransferSink.
  Outgoing transfer(uint64_t sequence) override {
    Outgoing out;
    out.control = reinterpret_cast<const std::byte*>(&numbers_[sequence % kSlots]);
    out.control_bytes = sizeof(uint64_t);
    out.payload = sources_[sequence % kSlots].data();
    out.payload_bytes = payload_bytes(sequence);
    out.place[0] = sequence % kSlots;
    return out;
  }
  std::byte* destination(const FrameHeader& header) override { return destinations_[header.place[0]].data(); }
  void accept(const FrameHeader& header, const std::byte* control) override {
    uint64_t number;
    std::memcpy(&number, control, sizeof number);
    ASSERT_EQ(number, accepted_);
    ASSERT_EQ(header.payload_bytes, payload_bytes(accepted_));
    const auto& slot = destinations_[accepted_ % kSlots];
    for (uint32_t at = 0; at < header.payload_bytes; ++at)
      ASSERT_EQ(slot[at], value(accepted_, at)) << "transfer " << accepted_ << ", byte " << at;
    ++accepted_;
  }

  // Offers what has a free source and slot.
  void offer(uint64_t total) {
    const uint64_t end = std::min(total, std::min(accepted_, sender_->acked()) + kSlots);
    for (; offered_ < end; ++offered_) {
      numbers_[offered_ % kSlots] = offered_;
      auto& slot = sources_[offered_ % kSlots];
      for (uint32_t at = 0; at < payload_bytes(offered_); ++at) slot[at] = value(offered_, at);
    }
    if (end > sender_->posted()) sender_->offer(end);
  }
  void turn(uint64_t total) {
    // The clock before the sockets: what had come by then is heard before a timer ends.
    const uint64_t now = cpu::monotonic_ns();
    reactor_.poll(1'000'000);
    for (int twice = 0; twice < 2; ++twice) {
      offer(total);
      sender_->pump();
      if (receiver_ != nullptr) receiver_->pump();
      sender_->expire(now);
      if (receiver_ != nullptr) receiver_->expire(now);
    }
  }
  template <class Done>
  bool run_until(uint64_t total, Done&& done) {
    const uint64_t end = cpu::monotonic_ns() + kBoundNs;
    while (!done() && !HasFatalFailure()) {
      if (cpu::monotonic_ns() > end) return false;
      turn(total);
    }
    return !HasFatalFailure();
  }
  bool deliver(uint64_t total) {
    return run_until(total, [&] { return accepted_ == total && sender_->acked() == total; });
  }

  TimerLengths lengths_;
  Policy policy_{};
  Reactor reactor_;
  Listener listener_;
  std::vector<std::unique_ptr<Waiting>> waiting_;
  std::vector<std::unique_ptr<Relay>> relays_;
  std::unique_ptr<PathRing[]> rings_;  // one a path
  std::vector<std::byte> sources_[kSlots];
  std::vector<std::byte> destinations_[kSlots];
  uint64_t numbers_[kSlots] = {};
  uint64_t offered_ = 0;
  uint64_t accepted_ = 0;
  std::unique_ptr<ReceivingFlow> receiver_;
  std::unique_ptr<SendingFlow> sender_;
};

TEST_F(Tcp, DeliversInOrder) {
  never_in_doubt();
  start(2, Policy::kPrimaryBackup);
  EXPECT_TRUE(deliver(300));
  EXPECT_EQ(sender_->state().epoch, 1u);
}

TEST_F(Tcp, StripesOverAllPaths) {
  start(3, Policy::kStriping);
  EXPECT_TRUE(deliver(300));
}

TEST_F(Tcp, StartsWithoutAPathThatCannotBeConnected) {
  start(2, Policy::kPrimaryBackup);
  relays_[0]->set(Wire::kCut);
  EXPECT_TRUE(deliver(20));
  relays_[0]->set(Wire::kWhole);
  EXPECT_TRUE(run_until(20, [&] { return sender_->state().use == 1 && sender_->state().epoch > 1; }));
  EXPECT_TRUE(deliver(40));
}

TEST_F(Tcp, GoesOnByTheBackupAndReturns) {
  start(2, Policy::kPrimaryBackup);
  ASSERT_TRUE(deliver(50));
  relays_[0]->set(Wire::kCut);
  ASSERT_TRUE(run_until(100, [&] { return sender_->state().use == 2; }));
  ASSERT_TRUE(deliver(100));
  relays_[0]->set(Wire::kWhole);
  EXPECT_TRUE(run_until(100, [&] { return sender_->state().use == 1; }));
  EXPECT_TRUE(deliver(150));
}

TEST_F(Tcp, LeavesASilentPath) {
  be_patient();
  start(2, Policy::kPrimaryBackup);
  ASSERT_TRUE(deliver(50));
  relays_[0]->set(Wire::kSilent);
  ASSERT_TRUE(run_until(100, [&] { return sender_->state().use == 2; }));
  const FailureCause cause = sender_->state().paths[0].cause;
  EXPECT_TRUE(cause == FailureCause::kSilent || cause == FailureCause::kPeer)  // who noticed it first
      << uint32_t(cause);
  ASSERT_TRUE(deliver(100));
}

TEST_F(Tcp, SurvivesRandomFailures) {
  constexpr int kFailovers = 12;
  for (const Policy policy : {Policy::kPrimaryBackup, Policy::kStriping}) {
    relays_.clear();
    sender_.reset();
    receiver_.reset();
    offered_ = accepted_ = 0;
    start(2, policy);
    std::mt19937 random(policy == Policy::kStriping ? 11 : 7);
    uint64_t total = 0;
    const auto both_up = [&] {
      return sender_->state().paths[0].condition == PathCondition::kUp &&
             sender_->state().paths[1].condition == PathCondition::kUp;
    };
    for (int k = 0; k < kFailovers; ++k) {
      ASSERT_TRUE(run_until(total, both_up));
      const uint64_t from = total;
      total += 40;
      // Amid them.
      ASSERT_TRUE(run_until(total, [&] { return accepted_ >= from + random() % 20; }));
      const uint32_t which = random() % 2;
      relays_[which]->set(random() % 3 == 0 ? Wire::kSilent : Wire::kCut);
      ASSERT_TRUE(deliver(total));
      ASSERT_TRUE(
          run_until(total, [&] { return sender_->state().paths[which].condition != PathCondition::kUp; }));
      relays_[which]->set(Wire::kWhole);
    }
    EXPECT_GE(sender_->state().epoch, uint32_t(kFailovers) / 4);
  }
}

// What watchers see of a path: every transfer once, whichever path it went by in the end.
TEST_F(Tcp, RecordsWhatLanded) {
  never_in_doubt();
  start(2, Policy::kStriping);
  ASSERT_TRUE(deliver(200));
  EXPECT_EQ(rings_[0].written + rings_[1].written, 200u);
  EXPECT_GT(rings_[0].written, 0u);
  EXPECT_GT(rings_[1].written, 0u);
  uint64_t bytes = 0;
  for (uint64_t k = 0; k < 200; ++k) bytes += sizeof(uint64_t) + payload_bytes(k);
  EXPECT_EQ(rings_[0].bytes + rings_[1].bytes, bytes);
  for (int p = 0; p < 2; ++p) {
    EXPECT_EQ(rings_[p].left_bytes, 0u);
    EXPECT_EQ(rings_[p].waiting_since_ns, 0u);
    monitor::PathReader reader(rings_[p]);
    uint64_t last = 0;
    for (TransferRecord record; reader.next(record); last = record.completed_ns) {
      EXPECT_LE(record.posted_ns, record.completed_ns);
      EXPECT_LE(last, record.completed_ns);
    }
  }
  relays_[0]->set(Wire::kCut);
  ASSERT_TRUE(run_until(300, [&] { return sender_->state().use == 2; }));
  ASSERT_TRUE(deliver(300));
  EXPECT_EQ(rings_[0].left_bytes, 0u);
  EXPECT_GE(rings_[0].closed, 1u);
  EXPECT_LE(rings_[0].written + rings_[1].written, 300u) << "none twice";
}

TEST_F(Tcp, NamesThePortsWhenNoneLives) {
  lengths_.give_up_ns = 2'000'000'000;  // also of paths that are not there yet
  start(2, Policy::kPrimaryBackup);
  ASSERT_TRUE(deliver(10));
  for (auto& relay : relays_) relay->set(Wire::kCut);
  EXPECT_TRUE(run_until(20, [&] { return sender_->failed() && receiver_->failed(); }));
  EXPECT_NE(sender_->failure().find("no path to rank 7 lives: lo 127.0.0.1 -> lo 127.0.0.1: "),
            std::string::npos)
      << sender_->failure();
  EXPECT_NE(receiver_->failure().find("no path to rank 3 lives"), std::string::npos) << receiver_->failure();
}

TEST(Ports, PairsThoseOfOneNetwork) {
  const Port a{"a", 1, 0x0a000001, 24}, b{"b", 2, 0x0a000101, 24};
  const Port c{"c", 1, 0x0a000102, 24}, d{"d", 2, 0x0a000002, 24}, e{"e", 3, 0x0b000002, 24};
  const auto pairs = pair_ports({a, b}, {c, d, e});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].second.name, "d");
  EXPECT_EQ(pairs[1].second.name, "c");
  EXPECT_EQ(pair_ports({a, b}, {e}).front().first.name, "a");
  std::vector<Port> ports{a, b};
  ports[1].number = 4711;
  EXPECT_EQ(ports_text(ports), "a=10.0.0.1/24:0,b=10.0.1.1/24:4711");
  EXPECT_EQ(ports_text(parse_ports(ports_text(ports))), ports_text(ports));
  EXPECT_TRUE(parse_ports("nonsense").empty());
}

}  // namespace
}  // namespace starling::link::tcp
