// Goal: messages go from where they are named to where they are wanted, and from neither side's memory, or
// into it, once it was taken back. Method: two proxies in one process, over loopback (two_hosts.h), the
// test's threads are hosts and blocks; two links whose paths record that they were fenced (fenced_links.h);
// and two connections, one of which is stopped amid a frame.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "link/connected.h"
#include "link/fenced_links.h"
#include "link/tcp/connection.h"
#include "link/two_hosts.h"

namespace starling::link {
namespace {

using carry::Host;
using carry::TwoHosts;
using carry::value_of;
using carry::wait_until;

constexpr uint32_t kBytes = carry::kShape.slot_bytes;
constexpr uint64_t kMessages = 40;
constexpr int kChances = 6;

std::vector<std::byte> message_of(uint64_t k, uint32_t bytes = kBytes) {
  std::vector<std::byte> message(bytes);
  for (uint32_t at = 0; at < bytes; ++at) message[at] = value_of(k, at);
  return message;
}

TEST(NamedMessages, GoFromBufferToBuffer) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  std::vector<std::byte> input, output((kMessages - 1) * kBytes + 8);
  for (uint64_t k = 0; k < kMessages; ++k) {
    const auto message = message_of(k);
    input.insert(input.end(), message.begin(), message.end());
  }
  hosts.b.way().expect(hosts.b.number(), 0, {{0, kMessages}, output.data(), kBytes, output.size()});
  std::thread receiver([&] {
    for (uint64_t k = 0; k < kMessages; ++k) {
      ASSERT_TRUE(wait_until([&] { return hosts.b.posted() > k; }));
      EXPECT_TRUE(hosts.b.is_in_place(k));
      hosts.b.grant(k);
    }
  });
  for (uint64_t k = 0; k < kMessages; ++k)
    ASSERT_TRUE(hosts.a.name(k, input.data() + k * kBytes, k + 1 < kMessages ? kBytes : 8));
  receiver.join();
  EXPECT_EQ(std::memcmp(input.data(), output.data(), output.size()), 0);
  ASSERT_TRUE(wait_until([&] { return hosts.a.taken() == kMessages; }));
}

// Written again as soon as that is said, before the receiver looks.
TEST(NamedMessages, AreTheirCallersOnceTaken) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  auto source = message_of(0);
  for (uint64_t k = 0; k < kMessages; ++k) {
    source = message_of(k);
    // The proxy hears of it only when we have looked once.
    ASSERT_TRUE(hosts.a.name(k, source.data(), kBytes, false));
    if (hosts.a.taken() > k) std::fill(source.begin(), source.end(), std::byte(0xee));
    hosts.a.way().wake();
    ASSERT_TRUE(wait_until([&] { return hosts.a.taken() > k; }));
    std::fill(source.begin(), source.end(), std::byte(0xee));
    ASSERT_TRUE(hosts.b.receive(k, kBytes));
  }
}

// Its report goes at once, not when reports are due.
TEST(NamedMessages, AreToldOnceAllHaveCome) {
  constexpr uint64_t kHour = 3'600'000'000'000;
  tcp::TimerLengths lengths;
  // So is the answer to a probe one.
  lengths.report_ns = lengths.watchdog_ns = lengths.idle_watchdog_ns = lengths.probe_ns = kHour;
  TwoHosts hosts(lengths);
  ASSERT_TRUE(hosts.join());
  const auto message = message_of(0);
  std::vector<std::byte> output(kBytes);
  hosts.b.way().expect(hosts.b.number(), 0, {{0, 1}, output.data(), kBytes, kBytes});
  ASSERT_TRUE(hosts.a.name(0, message.data(), kBytes));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (hosts.a.taken() == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(hosts.a.taken(), 1u);
}

// Of two operations in a row the second one has said nothing: its messages go to slots.
TEST(NamedMessages, DoNotTakeTheNextOnesPlace) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  std::vector<std::byte> output(3 * kBytes);
  hosts.b.way().expect(hosts.b.number(), 0, {{0, 1}, output.data(), kBytes, output.size()});
  ASSERT_TRUE(hosts.a.send(0, kBytes, false));
  ASSERT_TRUE(hosts.a.send(1, kBytes));
  ASSERT_TRUE(wait_until([&] { return hosts.b.posted() == 2; }));
  EXPECT_TRUE(hosts.b.is_in_place(0));
  EXPECT_FALSE(hosts.b.is_in_place(1));
  EXPECT_EQ(std::memcmp(hosts.b.slot_of(1), message_of(1).data(), kBytes), 0);
  EXPECT_EQ(output[kBytes], std::byte(0));
}

// Steps that share a connection take turns on it.
TEST(NamedMessages, GoToTheirOwnPlaceAmongOthers) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  constexpr uint64_t kOwn = 5;
  std::vector<std::byte> output(kOwn * kBytes);
  hosts.b.way().expect(hosts.b.number(), 0, {{1, kOwn, 2}, output.data(), kBytes, output.size()});
  std::thread receiver([&] {
    for (uint64_t k = 0; k < 2 * kOwn + 2; ++k) {
      ASSERT_TRUE(wait_until([&] { return hosts.b.posted() > k; }));
      EXPECT_EQ(hosts.b.is_in_place(k), k % 2 == 1 && k < 2 * kOwn) << k;
      const std::byte* place = hosts.b.is_in_place(k) ? &output[k / 2 * kBytes] : hosts.b.slot_of(k);
      EXPECT_EQ(std::memcmp(place, message_of(k).data(), kBytes), 0) << k;
      hosts.b.grant(k);
    }
  });
  for (uint64_t k = 0; k < 2 * kOwn + 2; ++k) ASSERT_TRUE(hosts.a.send(k, kBytes));
  receiver.join();
}

// The slots are of both kinds of messages: one that came before it was wanted is in its slot.
TEST(NamedMessages, GoToSlotsBeforeTheyAreWanted) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  const auto first = message_of(0), second = message_of(1);
  ASSERT_TRUE(hosts.a.name(0, first.data(), kBytes));
  // Nobody has read it, and it is its sender's again.
  ASSERT_TRUE(wait_until([&] { return hosts.a.taken() == 1; }));
  std::vector<std::byte> output(2 * kBytes);
  hosts.b.way().expect(hosts.b.number(), 0, {{0, 2}, output.data(), kBytes, output.size()});
  ASSERT_TRUE(hosts.a.name(1, second.data(), kBytes));
  ASSERT_TRUE(wait_until([&] { return hosts.b.posted() == 2 && hosts.a.taken() == 2; }));
  EXPECT_FALSE(hosts.b.is_in_place(0));
  EXPECT_EQ(std::memcmp(hosts.b.slot_of(0), first.data(), kBytes), 0);
  EXPECT_EQ(output[0], std::byte(0));
  EXPECT_TRUE(hosts.b.is_in_place(1));
  EXPECT_EQ(std::memcmp(output.data() + kBytes, second.data(), kBytes), 0);
}

TEST(NamedMessages, AreReadNoMoreOnceTakenBack) {
  // The proxy is not told: it has not seen the message when it is taken back. It may look by chance.
  for (int k = 0; k < kChances; ++k) {
    TwoHosts hosts;
    ASSERT_TRUE(hosts.join());
    auto source = message_of(0);
    ASSERT_TRUE(hosts.a.name(0, source.data(), kBytes, false));
    hosts.a.way().take_back(hosts.a.number());
    std::fill(source.begin(), source.end(), std::byte(0xee));
    ASSERT_TRUE(hosts.b.receive(0, kBytes));
  }
}

// What it is comes before it, also where the proxy saw neither before: ranks that mean different things
// exchange no byte.
TEST(NamedMessages, AreToldBehindTheirBoardsOnceTakenBack) {
  for (int k = 0; k < kChances; ++k) {
    TwoHosts hosts;
    ASSERT_TRUE(hosts.join());
    const auto source = message_of(0);
    hosts.b.post_board(0, 5, false);
    hosts.a.post_board(0, 6, false);
    ASSERT_TRUE(hosts.a.name(0, source.data(), kBytes, false));
    hosts.a.way().take_back(hosts.a.number());
    ASSERT_TRUE(wait_until([&] { return hosts.b.proxy().take_mismatch(); }));
    ASSERT_TRUE(wait_until([&] { return hosts.a.taken() == 1; }));
    ASSERT_EQ(hosts.b.posted(), 0u);
  }
}

// Who waits looks as ever while nothing comes, and when all has.
TEST(NamedMessages, AreMuchWhileTheyCome) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  const auto is_bulky = [](Host& host) {
    host.proxy().enter();
    host.proxy().leave();  // looks
    return host.proxy().is_bulky();
  };
  std::vector<std::byte> output(2 * kBytes);
  hosts.b.way().expect(hosts.b.number(), 0, {{0, 2}, output.data(), kBytes, output.size()});
  EXPECT_FALSE(is_bulky(hosts.b));
  ASSERT_TRUE(hosts.a.send(0, kBytes));
  EXPECT_TRUE(wait_until([&] { return is_bulky(hosts.b); }));
  ASSERT_TRUE(hosts.a.send(1, kBytes));
  EXPECT_TRUE(wait_until([&] { return hosts.b.posted() == 2 && !is_bulky(hosts.b); }));
}

TEST(NamedMessages, AreWrittenNoMoreOnceTakenBack) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  std::vector<std::byte> output(2 * kBytes);
  hosts.b.way().expect(hosts.b.number(), 0, {{0, 2}, output.data(), kBytes, output.size()});
  ASSERT_TRUE(hosts.a.send(0, kBytes));
  ASSERT_TRUE(wait_until([&] { return hosts.b.posted() == 1; }));
  hosts.b.way().take_back(hosts.b.number());
  ASSERT_TRUE(hosts.a.send(1, kBytes));
  ASSERT_TRUE(wait_until([&] { return hosts.b.posted() == 2; }));
  EXPECT_EQ(output[kBytes - 1], value_of(0, kBytes - 1));
  EXPECT_EQ(output[kBytes], std::byte(0));
  EXPECT_FALSE(hosts.b.is_in_place(1));
  EXPECT_EQ(hosts.b.slot_of(1)[0], value_of(1, 0));
}

// Ranks that mean different things: nothing is written beyond what was offered.
TEST(NamedMessages, DoNotOverflow) {
  TwoHosts hosts;
  ASSERT_TRUE(hosts.join());
  std::vector<std::byte> output(2 * kBytes);
  hosts.b.way().expect(hosts.b.number(), 0, {{0, 1}, output.data(), kBytes, 100});
  ASSERT_TRUE(hosts.a.send(0, 101));
  ASSERT_TRUE(wait_until([&] { return hosts.b.posted() == 1; }));
  EXPECT_EQ(output[100], std::byte(0));
}

// ---- fenced before a buffer is given back ---------------------------------------------------------------

class Quarantine : public testing::Test {
 protected:
  static constexpr uint32_t kLane = carry::FencedHost::kLane;
  static constexpr uint64_t kOffers = 2;

  void SetUp() override { ASSERT_TRUE(hosts_.join()); }
  // Where the messages after those before are wanted at b; a heard of it.
  void offer(uint64_t first, RegistrationPtr memory) {
    hosts_.b.link().expect(kLane, 0, {{first, 1}, output_.data() + first * kBytes, kBytes, kBytes}, memory);
    ASSERT_TRUE(hosts_.settle());
  }
  void offer_all() {
    for (uint64_t k = 0; k < kOffers; ++k) offer(k, std::make_shared<Registration>());
  }
  carry::FencedHosts hosts_;
  std::vector<std::byte> output_ = std::vector<std::byte>(kOffers * kBytes);
};

// Nothing of it has come: the peer may be about to write, by each path that is open.
TEST_F(Quarantine, WhatWasOfferedIsFenced) {
  offer_all();
  ASSERT_EQ(hosts_.b.record().living(false), 2u);
  hosts_.b.link().take_back(kLane);
  EXPECT_EQ(hosts_.b.record().living(false), 0u);
}

// A peer that has not heard of it finds out when it calls again.
TEST_F(Quarantine, TheNextPathsSayThatOffersAreVoid) {
  offer_all();
  hosts_.b.link().take_back(kLane);
  ASSERT_TRUE(hosts_.settle());
  for (const auto& path : hosts_.b.record().paths) {
    if (path.sends) continue;
    EXPECT_EQ(path.offers_void, path.fenced ? 0 : kOffers + 1);
  }
  const auto message = message_of(0);
  hosts_.a.name(0, message.data(), kBytes);
  ASSERT_TRUE(hosts_.look_until([&] { return hosts_.b.posted() == 1; }));
  EXPECT_EQ(std::memcmp(hosts_.b.slot_of(0), message.data(), kBytes), 0);
  EXPECT_EQ(output_[0], std::byte(0));
}

TEST_F(Quarantine, WhatNobodyWritesIsNotFenced) {
  offer(0, nullptr);
  hosts_.b.link().take_back(kLane);
  EXPECT_EQ(hosts_.b.record().living(false), 2u) << "no offer was made";
  offer(1, std::make_shared<Registration>());
  hosts_.b.note_left();
  hosts_.b.link().take_back(kLane);
  EXPECT_EQ(hosts_.b.record().living(false), 2u) << "the peer has left the lane";
}

// Who waits for that before it takes back breaks no path of a peer that is well.
TEST_F(Quarantine, WhatThePeerWritesIsSoUntilItLeaves) {
  offer(0, nullptr);
  EXPECT_FALSE(hosts_.b.link().is_used_by_devices(kLane)) << "no offer was made";
  offer(1, std::make_shared<Registration>());
  EXPECT_TRUE(hosts_.b.link().is_used_by_devices(kLane));
  hosts_.b.note_left();
  EXPECT_FALSE(hosts_.b.link().is_used_by_devices(kLane));
}

TEST_F(Quarantine, WhatADeviceReadsIsSoUntilItHasCome) {
  const auto message = message_of(0);
  hosts_.a.name(0, message.data(), kBytes);
  hosts_.a.link().round(cpu::monotonic_ns());
  EXPECT_FALSE(hosts_.a.link().is_used_by_devices(kLane)) << "it is not registered";
  hosts_.a.link().lend(kLane, 0, {{1, 1}, std::make_shared<Registration>()});
  hosts_.a.name(1, message.data(), kBytes);
  hosts_.a.link().round(cpu::monotonic_ns());
  EXPECT_TRUE(hosts_.a.link().is_used_by_devices(kLane));
  EXPECT_TRUE(hosts_.look_until([&] { return !hosts_.a.link().is_used_by_devices(kLane); }));
  EXPECT_EQ(hosts_.a.record().living(true), 2u);
}

// An offer says nothing of messages in between.
TEST_F(Quarantine, WhatIsAmongOthersIsNotOffered) {
  hosts_.b.link().expect(kLane, 0, {{0, 2, 2}, output_.data(), kBytes, 2 * kBytes},
                         std::make_shared<Registration>());
  ASSERT_TRUE(hosts_.settle());
  EXPECT_FALSE(hosts_.b.link().is_used_by_devices(kLane));
}

TEST_F(Quarantine, WhatIsLentIsOneStepsAmongOthers) {
  const auto message = message_of(0);
  const auto used_by = [&](uint64_t k) {
    EXPECT_TRUE(hosts_.look_until([&] { return hosts_.a.may_name(k); }));
    hosts_.a.name(k, message.data(), kBytes);
    hosts_.a.link().round(cpu::monotonic_ns());
    const bool used = hosts_.a.link().is_used_by_devices(kLane);
    EXPECT_TRUE(hosts_.look_until([&] { return hosts_.b.posted() > k; }));
    hosts_.b.grant(k);
    EXPECT_TRUE(hosts_.look_until([&] { return hosts_.a.link().unsaid() == 0; }));
    return used;
  };
  hosts_.a.link().lend(kLane, 0, {{0, 2, 2}, std::make_shared<Registration>()});
  EXPECT_TRUE(used_by(0));
  EXPECT_FALSE(used_by(1));
  EXPECT_TRUE(used_by(2));
  EXPECT_FALSE(used_by(3));
}

// The device may be reading there.
TEST_F(Quarantine, WhatIsSentFromABufferIsFenced) {
  const auto message = message_of(0);
  auto source = message;
  hosts_.a.link().lend(kLane, 0, {{0, 1}, std::make_shared<Registration>()});
  hosts_.a.name(0, source.data(), kBytes);
  hosts_.a.link().round(cpu::monotonic_ns());
  EXPECT_EQ(hosts_.a.record().living(true), 2u);
  hosts_.a.link().take_back(kLane);
  EXPECT_EQ(hosts_.a.record().living(true), 1u) << "the path that it went by";
  std::fill(source.begin(), source.end(), std::byte(0xee));
  ASSERT_TRUE(hosts_.look_until([&] { return hosts_.b.posted() == 1; }));
}

// ---- amid a frame ---------------------------------------------------------------------------------------

class Sink final : public FrameSink {
 public:
  bool begin(const FrameHeader&, std::byte*& control, std::byte*& payload) override {
    control = control_;
    payload = to;
    return true;
  }
  void end(const FrameHeader&, uint64_t) override { ++ended; }
  void message(const LinkMessage&, const Heard&) override {}
  std::byte* to = nullptr;
  int ended = 0;

 private:
  std::byte control_[8];
};

class AmidAFrame : public testing::Test {
 protected:
  static constexpr uint32_t kFrameBytes = 64 << 20;  // more than two sockets hold

  AmidAFrame() : source_(message_of(3, kFrameBytes)), expected_(source_), output_(kFrameBytes) {
    auto [from, to] = tcp::over_loopback();
    sender_.emplace(std::move(from));
    receiver_.emplace(std::move(to));
    sink_.to = output_.data();
    Outgoing transfer;
    transfer.payload = source_.data();
    transfer.payload_bytes = kFrameBytes;
    EXPECT_TRUE(sender_->queue(1, 7, transfer));
    EXPECT_EQ(sender_->flush(sent_), 0);
    EXPECT_TRUE(sender_->waits_to_write());
    EXPECT_TRUE(wait_until([&] { return receiver_->read(sink_) == 0 && output_[0] == expected_[0]; }));
    EXPECT_EQ(sink_.ended, 0);
  }
  void finish() {
    ASSERT_TRUE(wait_until([&] {
      EXPECT_EQ(sender_->flush(sent_), 0);
      EXPECT_EQ(receiver_->read(sink_), 0);
      return sink_.ended == 1;
    }));
  }
  std::vector<std::byte> source_, expected_, output_;
  std::optional<tcp::Connection> sender_, receiver_;
  std::vector<uint64_t> sent_;
  Sink sink_;
};

TEST_F(AmidAFrame, ASourceMoves) {
  const auto copy = source_;
  sender_->move_source(6, nullptr);  // another transfer's
  sender_->move_source(7, copy.data());
  std::fill(source_.begin(), source_.end(), std::byte(0xee));
  finish();
  EXPECT_TRUE(output_ == expected_);
}

TEST_F(AmidAFrame, ADestinationMoves) {
  std::vector<std::byte> elsewhere(kFrameBytes);
  receiver_->move_destination(output_.data() + 1, kFrameBytes, nullptr);  // another payload's
  receiver_->move_destination(output_.data(), kFrameBytes, elsewhere.data());
  const auto then = output_;
  finish();
  EXPECT_TRUE(output_ == then);
  EXPECT_FALSE(output_ == expected_) << "all had come";
  EXPECT_EQ(elsewhere.back(), expected_.back());
}

}  // namespace
}  // namespace starling::link
