// Goal: threads that wait for messages carry them themselves (machine/carrier.h), and one of them sleeps
// where they come in: nothing that comes or is stored while it sleeps is slept through, whoever helps or not.
// Method: two proxies in one process, over loopback (two_hosts.h), whose own threads sleep while there are
// helpers; the test's threads are blocks that help. A sleep has a bound of minutes here: what ends is what
// was woken. Meant for ThreadSanitizer.
#include <gtest/gtest.h>

#include <thread>

#include "link/two_hosts.h"

namespace starling::link::carry {
namespace {

#ifdef STARLING_SANITIZED
constexpr uint64_t kMessages = 100;
#else
constexpr uint64_t kMessages = 1000;
#endif
constexpr uint32_t kBytes = 64;
constexpr uint64_t kForEver = 600'000'000'000;

// As a block waits (machine/cpu/machine.h): some looks, then a sleep.
class Waiter {
 public:
  explicit Waiter(Carrier& carrier, uint32_t looks = 3) : carrier_(carrier), looks_(looks) {
    carrier_.enter();
  }
  ~Waiter() { carrier_.leave(); }
  template <class Done>
  void wait(Done&& done) {
    for (uint32_t look = 0; !done(); ++look) {
      carrier_.look();
      if (done()) return;
      if (look < looks_) continue;
      if (!carrier_.prepare()) {
        std::this_thread::yield();
        continue;
      }
      ++prepared;
      if (done()) return carrier_.cancel();
      carrier_.sleep(kForEver);
    }
  }
  uint64_t prepared = 0;

 private:
  Carrier& carrier_;
  const uint32_t looks_;
};

void send(Host& host, Waiter& waiter, uint64_t k) {
  waiter.wait([&] { return host.may_send(k); });
  ASSERT_TRUE(host.send(k, kBytes));
}
void receive(Host& host, Waiter& waiter, uint64_t k) {
  waiter.wait([&] { return host.posted() > k; });
  ASSERT_TRUE(host.receive(k, kBytes));
}

// There and back: each message wakes who sleeps for it.
TEST(Helpers, WakeForWhatComes) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  uint64_t prepared[2] = {};
  const auto run = [&](Host& host, bool first) {
    Waiter waiter(host.proxy());
    for (uint64_t k = 0; k < kMessages; ++k) {
      if (first) send(host, waiter, k);
      receive(host, waiter, k);
      if (!first) send(host, waiter, k);
    }
    prepared[first] = waiter.prepared;
  };
  std::thread other([&] { run(hosts.b, false); });
  run(hosts.a, true);
  other.join();
  EXPECT_GT(prepared[0] + prepared[1], 0u) << "nobody slept";
}

// Several helpers of a rank: one sleeps at the sockets, the others look, or come and go.
TEST(Helpers, OneSleepsAndOthersLook) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  const auto sends = [](Host& host) {
    for (uint64_t k = 0; k < kMessages; ++k) {
      Waiter waiter(host.proxy(), uint32_t(k % 3));
      send(host, waiter, k);
    }
  };
  const auto receives = [](Host& host) {
    Waiter waiter(host.proxy());
    for (uint64_t k = 0; k < kMessages; ++k) receive(host, waiter, k);
  };
  std::thread threads[] = {std::thread([&] { sends(hosts.a); }), std::thread([&] { receives(hosts.a); }),
                           std::thread([&] { sends(hosts.b); }), std::thread([&] { receives(hosts.b); })};
  for (std::thread& thread : threads) thread.join();
}

// What a thread of this process stores for the sleeper, and rings for: a submission, say.
TEST(Helpers, WakeForTheirOwnDoor) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  std::atomic<uint64_t> stored{0}, seen{0};
  std::thread block([&] {
    Waiter waiter(hosts.a.proxy());
    for (uint64_t k = 1; k <= kMessages; ++k) {
      waiter.wait([&] { return stored.load() >= k; });
      seen = k;
    }
  });
  for (uint64_t k = 1; k <= kMessages; ++k) {
    ASSERT_TRUE(wait_until([&] { return seen == k - 1; }));
    stored = k;
    cpu::ring(&hosts.a.header()->daemon);
  }
  block.join();
}

// What hosts store in a shadow goes out while the only helper sleeps.
TEST(Helpers, CarryWhatIsStoredWhileTheySleep) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  std::atomic<bool> over{false};
  std::thread block([&] {
    Waiter waiter(hosts.a.proxy());
    waiter.wait([&] { return over.load(); });
  });
  for (uint64_t k = 1; k <= 50; ++k) {
    released(withdrawals_of(hosts.a.theirs())[0].met, k);
    hosts.a.ring();
    ASSERT_TRUE(wait_until([&] { return acquired(withdrawals_of(hosts.b.lane())[0].met) == k; }));
  }
  over = true;
  cpu::ring(&hosts.a.header()->daemon);
  block.join();
}

TEST(Helpers, SleepOneAtATimeAndNotBesideOtherProcesses) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  Carrier& carrier = hosts.a.proxy();
  const auto is_heard = [&](bool heard) {
    for (Doorbell* bell : {&hosts.a.header()->daemon, &hosts.a.shadow()->daemon, &hosts.a.shadow()->host})
      EXPECT_EQ(acquired(bell->sleepers) & kEventBit, heard ? kEventBit : 0);
  };
  for (int k = 0; k < 2; ++k) carrier.enter();
  is_heard(false);
  ASSERT_TRUE(carrier.prepare());
  is_heard(true);
  EXPECT_FALSE(carrier.prepare()) << "one sleeps here already";
  carrier.cancel();
  is_heard(false);
  EXPECT_TRUE(carrier.prepare());
  carrier.sleep(1'000'000);
  EXPECT_TRUE(carrier.prepare());
  carrier.cancel();
  hosts.a.proxy().has_neighbours();
  EXPECT_FALSE(carrier.prepare()) << "they ring, and would not be heard";
  for (int k = 0; k < 2; ++k) carrier.leave();
}

// A ringer of another process knows no eventfd of ours: it rings nobody there, and leaves the bit alone.
TEST(Helpers, AreNotRungByOtherProcesses) {
  Doorbell bell{};
  cpu::own_event(&bell, -1);
  bell.event_owner ^= 1;
  bell.sleepers = kEventBit | 1;
  cpu::ring(&bell);
  EXPECT_EQ(bell.sleepers, kEventBit);
  EXPECT_EQ(bell.event, 1u);
}

// A helper that is held up, as one whose core is taken away: the proxy's thread goes on alone.
TEST(Helpers, AreNotReliedOn) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  Host &a = hosts.a, &b = hosts.b;
  for (Host* host : {&a, &b}) host->proxy().enter();
  for (uint64_t k = 0; k < 20; ++k) {
    ASSERT_TRUE(a.send(k, kBytes));
    ASSERT_TRUE(b.receive(k, kBytes));
  }
  for (Host* host : {&a, &b}) host->proxy().leave();
  for (uint64_t k = 0; k < 20; ++k) {
    ASSERT_TRUE(b.send(k, kBytes));
    ASSERT_TRUE(a.receive(k, kBytes));
  }
}

}  // namespace
}  // namespace starling::link::carry
