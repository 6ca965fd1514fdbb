// Goal: packet messages arrive whole and in order through their few slots, also where the flags come round; a
// slot that was not written to its end for long is, before old flags could be taken for new ones. Method: two
// threads play the two blocks, each polling as the interpreter does. Meant for the sanitizers.
#include "device/packets.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "machine/cpu/machine.h"

namespace starling::device {
namespace {

#ifdef STARLING_SANITIZED
constexpr uint64_t kMessages = 2000;
#else
constexpr uint64_t kMessages = 50000;
#endif
constexpr uint32_t kPacketBytes = 64;
constexpr uint64_t kRingWords = kPacketSlots * kPacketBytes / sizeof(uint32_t);
constexpr cpu::WaitPolicy kPolicy{.spins = 4, .idle_spins = 2, .idle_yields = 2, .sleep_ns = 100'000};

// Both ends of one connector, after `first` messages.
struct Wired {
  explicit Wired(uint64_t first) : ring(kRingWords + 1) {
    lane.packet_bytes = kPacketBytes;
    uint64_t* slots = ring.data() + (uint64_t(ring.data()) % 16 != 0);
    send.credit = receive.credit = &credit;
    send.packets = slots;
    receive.packets = slots;
    send.connected = receive.connected = 1;
    credit.packets_read = send.packets_sent = receive.packets_received = first;
    for (uint64_t message = first - (first ? kPacketSlots : 0); message < first; ++message)
      for (uint64_t w = 0; w < kRingWords / kPacketSlots; ++w)
        packet_slot(lane, slots, message)[w] = uint64_t(packet_flag(message)) << 32;
  }
  std::vector<uint64_t> ring;
  Lane lane{};
  Credit credit{};
  SendEnd send{};
  ReceiveEnd receive{};
};

Combine sending(Wired& wired, const std::byte* data, uint64_t bytes) {
  Combine c{};
  c.sources[0] = data;
  c.source_count = c.destination_count = c.divisor = 1;
  c.scaled_source = kNoSource;
  c.bytes = bytes;
  c.packet_bytes = kPacketBytes;
  c.packet_destinations = 1;
  c.destinations[0] =
      reinterpret_cast<std::byte*>(packet_slot(wired.lane, wired.send.packets, wired.send.packets_sent));
  c.destination_flags[0] = packet_flag(wired.send.packets_sent);
  c.refreshed = refreshes(wired.send.packets_sent);
  return c;
}

Combine receiving(Wired& wired, std::byte* data, uint64_t bytes) {
  Combine c{};
  c.source_count = c.destination_count = c.divisor = 1;
  c.scaled_source = kNoSource;
  c.bytes = bytes;
  c.packet_bytes = kPacketBytes;
  c.packet_sources = 1;
  c.sources[0] = reinterpret_cast<const std::byte*>(
      packet_slot(wired.lane, wired.receive.packets, wired.receive.packets_received));
  c.source_flags[0] = packet_flag(wired.receive.packets_received);
  c.destinations[0] = data;
  return c;
}

uint64_t bytes_of(uint64_t message) { return 1 + message % kPacketBytes; }

class FromMessage : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FromMessage, MessagesArriveInOrder) {
  Wired wired(GetParam());
  std::thread sender([&] {
    cpu::CpuMachine m(0, kPolicy, nullptr, nullptr);
    for (uint64_t k = 0; k < kMessages; ++k) {
      while (!can_send_packets(m, wired.lane, wired.send)) m.pause(100);
      const std::vector<std::byte> data(bytes_of(k), std::byte(k));
      combine_packets(m, sending(wired, data.data(), data.size()));
      packets_were_sent(m, wired.send);
    }
  });
  cpu::CpuMachine m(0, kPolicy, nullptr, nullptr);
  for (uint64_t k = 0; k < kMessages; ++k) {
    ASSERT_TRUE(is_connected(m, wired.lane, wired.receive));
    std::vector<std::byte> data(bytes_of(k));
    const Combine c = receiving(wired, data.data(), data.size());
    for (uint64_t u = 0; u < packet_units(c); ++u)
      while (!packet_unit_there(m, c, u)) m.pause(100);
    combine_packets(m, c);
    packets_were_read(m, wired.receive);
    ASSERT_EQ(data, std::vector<std::byte>(bytes_of(k), std::byte(k))) << "message " << k;
  }
  sender.join();
}
INSTANTIATE_TEST_SUITE_P(Flags, FromMessage,
                         ::testing::Values(uint64_t(0), kRefresh - 5, (uint64_t(1) << 32) - 7));

TEST(Packets, SlotsAreFilledToTheirEndsOnceARound) {
  cpu::CpuMachine m(0, kPolicy, nullptr, nullptr);
  const std::byte data{7};
  for (const uint64_t first : {kRefresh, 3 * kRefresh, 7 * kRefresh}) {
    Wired wired(first);
    for (uint32_t k = 0; k < kPacketSlots; ++k, ++wired.send.packets_sent)
      combine_packets(m, sending(wired, &data, 1));
    for (uint64_t word = 0; word < kRingWords; ++word)
      EXPECT_EQ(wired.send.packets[word] >> 32, uint32_t(first) + word / (kRingWords / kPacketSlots) + 1)
          << "word " << word << " after message " << first;
  }
}

TEST(Packets, AUnitIsThereOnceAllItsWordsAre) {
  cpu::CpuMachine m(0, kPolicy, nullptr, nullptr);
  Wired sent(5), seen(5);
  const std::vector<std::byte> data(16, std::byte(9));
  combine_packets(m, sending(sent, data.data(), 16));
  std::vector<std::byte> to(16);
  const Combine c = receiving(seen, to.data(), 16);
  std::vector<uint64_t> words;
  for (uint64_t w = 0; w < kRingWords; ++w)
    if (sent.send.packets[w] >> 32 == packet_flag(5)) words.push_back(w);
  ASSERT_EQ(words.size(), 4u);
  for (const uint64_t w : words) {
    EXPECT_FALSE(packet_unit_there(m, c, 0));
    m.store_relaxed(&seen.send.packets[w], sent.send.packets[w]);
  }
  EXPECT_TRUE(packet_unit_there(m, c, 0));
  combine_packets(m, c);
  EXPECT_EQ(to, data);
}

}  // namespace
}  // namespace starling::device
