// Goal: what comes by a socket has the time at which the system had it, not that at which it was read; ages
// go with a report. Method: two connections over loopback, the second of which is read late.
// sanitize: address (one thread)
#include "link/tcp/connection.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>

#include "link/connected.h"
#include "machine/cpu/futex.h"

namespace starling::link::tcp {
namespace {

constexpr uint64_t kMs = 1'000'000;

class Sink final : public FrameSink {
 public:
  bool begin(const FrameHeader&, std::byte*&, std::byte*&) override { return false; }
  void end(const FrameHeader&, uint64_t) override {}
  void message(const LinkMessage& message, const Heard& heard) override {
    number = message.probe;
    at_ns = heard.at_ns;
    ages = heard.ages != nullptr ? std::optional(*heard.ages) : std::nullopt;
  }
  uint32_t number = 0;
  uint64_t at_ns = 0;
  std::optional<ArrivalAges> ages;
};

class Connections : public testing::Test {
 protected:
  Connections() {
    auto [from, to] = over_loopback();
    sender.emplace(std::move(from));
    receiver.emplace(std::move(to));
  }
  // Sent now, read after a while: when it was sent at the latest.
  uint64_t send(uint32_t number, const ArrivalAges* ages) {
    LinkMessage message{};
    message.kind = uint32_t(LinkMessageKind::kReport);
    message.probe = number;
    sender->queue(message, ages);
    std::vector<uint64_t> sent;
    EXPECT_EQ(sender->flush(sent), 0);
    const uint64_t now = cpu::monotonic_ns();
    usleep(100'000);
    for (int k = 0; k < 1000 && sink.number != number; ++k) {
      EXPECT_EQ(receiver->read(sink), 0);
      if (sink.number != number) usleep(1000);
    }
    EXPECT_EQ(sink.number, number);
    return now;
  }
  std::optional<Connection> sender, receiver;
  Sink sink;
};

TEST_F(Connections, SayWhenTheSystemHadWhatCame) {
  receiver->date_arrivals();
  // The system begins to date what comes some time after the first who asks: what came before has no date.
  uint64_t before = 0;
  uint64_t sent = 0;
  for (uint32_t number = 7; number < 37; ++number) {
    before = cpu::monotonic_ns();
    sent = send(number, nullptr);
    if (sink.at_ns <= sent + 50 * kMs) break;
  }
  EXPECT_GE(sink.at_ns, before - 20 * kMs) << "the wall clock may be slewed";
  EXPECT_LE(sink.at_ns, sent + 50 * kMs) << "it was read after 100 ms";
  EXPECT_FALSE(sink.ages);
}

TEST_F(Connections, BringAgesWithAReport) {
  ArrivalAges ages{};
  for (uint32_t k = 0; k < ArrivalAges::kCount; ++k) ages.us[k] = uint16_t(3 * k);
  send(1, &ages);
  ASSERT_TRUE(sink.ages);
  EXPECT_TRUE(std::equal(std::begin(ages.us), std::end(ages.us), std::begin(sink.ages->us)));
  EXPECT_EQ(sink.at_ns, 0u) << "nobody asked";
  send(2, nullptr);
  EXPECT_FALSE(sink.ages);
}

TEST(ArrivalAgesOf, AreThoseAroundTheReport) {
  ArrivalAges ages{};
  for (uint32_t k = 0; k < ArrivalAges::kCount; ++k) ages.us[k] = uint16_t(k);
  EXPECT_EQ(ages.of(83, 100), nullptr);
  EXPECT_EQ(*ages.of(84, 100), 84 % 32);
  EXPECT_EQ(*ages.of(115, 100), 115 % 32);
  EXPECT_EQ(ages.of(116, 100), nullptr);
  EXPECT_EQ(*ages.of(0, 3), 0);
}

}  // namespace
}  // namespace starling::link::tcp
