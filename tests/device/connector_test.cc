// Goal: messages through a connector arrive once, in order and whole, with private slots alone and with slots
// lent from the pool; the pool gets all of them back. Method: two threads play the two blocks, each polling
// as the interpreter does. Meant for the sanitizers.
#include "device/connector.h"

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
constexpr uint32_t kSlotWords = 16;
constexpr uint32_t kPrivateSlots = 2;
constexpr cpu::WaitPolicy kPolicy{.spins = 4, .idle_spins = 2, .idle_yields = 2, .sleep_ns = 100'000};

// Both ends of one connector, wired as HostLane::connect() wires them.
struct Wired {
  explicit Wired(uint32_t pool_slots)
      : private_slots(kPrivateSlots * kSlotWords), pool_memory(pool_slots * kSlotWords), free(pool_slots) {
    lane.slot_bytes = kSlotWords * 8;
    lane.pool_slot_bytes = pool_slots > 0 ? kSlotWords * 8 : 0;
    for (uint32_t s = 0; s < pool_slots; ++s) free[s] = kPoolSlot + s;
    pool.free = free.data();
    pool.free_count = pool.capacity = pool_slots;
    auto* slots = reinterpret_cast<std::byte*>(private_slots.data());
    lane.sends = &send;
    lane.receives = &receive;
    lane.introductions = &introduction;
    introduction.credit = &credit;
    introduction.inbox = &inbox;
    introduction.private_slots = slots;
    introduction.pool = pool_base();
    send.credit = &credit;
    receive.inbox = &inbox;
    receive.private_slots = slots;
    credit.granted = receive.granted = kPrivateSlots;
    for (uint32_t k = 0; k < kPrivateSlots; ++k) credit.grants[k] = receive.grants[k] = k;
  }
  std::byte* pool_base() { return reinterpret_cast<std::byte*>(pool_memory.data()); }

  std::vector<uint64_t> private_slots, pool_memory;
  std::vector<uint32_t> free;
  Lane lane{};
  SlotPool pool{};
  Inbox inbox{};
  Credit credit{};
  PeerIntroduction introduction{};
  SendEnd send{};
  ReceiveEnd receive{};
};

class EveryPool : public ::testing::TestWithParam<uint32_t> {};

TEST_P(EveryPool, MessagesArriveInOrder) {
  Wired wired(GetParam());
  std::thread sender([&] {
    cpu::CpuMachine machine(0, kPolicy, nullptr, nullptr);
    for (uint64_t k = 0; k < kMessages; ++k) {
      for (uint32_t attempt = 0; !can_send(machine, wired.lane, wired.send); ++attempt)
        machine.pause(attempt);
      auto* words = reinterpret_cast<uint64_t*>(next_send_slot(wired.lane, wired.send));
      for (uint32_t w = 0; w < kSlotWords; ++w) words[w] = k * kSlotWords + w;
      post(machine, wired.send);
    }
  });
  cpu::CpuMachine machine(1, kPolicy, nullptr, nullptr);
  EXPECT_FALSE(can_receive(machine, wired.lane, wired.receive)) << "not connected yet";
  machine.store_release(&wired.introduction.made, 1);
  EXPECT_TRUE(is_connected(machine, wired.lane, wired.receive));
  wired.receive.expected = kMessages;
  deepen(machine, wired.lane, wired.receive, wired.pool);
  uint64_t wrong = 0;
  for (uint64_t k = 0; k < kMessages; ++k) {
    for (uint32_t attempt = 0; !can_receive(machine, wired.lane, wired.receive); ++attempt)
      machine.pause(attempt);
    const auto* words =
        reinterpret_cast<const uint64_t*>(next_receive_slot(wired.lane, wired.receive, wired.pool_base()));
    for (uint32_t w = 0; w < kSlotWords; ++w) wrong += words[w] != k * kSlotWords + w;
    consume(machine, wired.lane, wired.receive, wired.pool);
  }
  sender.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(wired.pool.free_count, wired.pool.capacity) << "slots of the pool are missing";
  EXPECT_EQ(wired.receive.granted, kMessages + kPrivateSlots);
  EXPECT_FALSE(can_receive(machine, wired.lane, wired.receive));
}

INSTANTIATE_TEST_SUITE_P(PoolSlots, EveryPool, ::testing::Values(0u, 1u, 3u, 16u));

// Of messages to another host, some in slots and some out of a buffer: when is that its owner's again?
TEST(Untaken, IsTheLastOneOutOfABuffer) {
  Wired wired(0);
  wired.introduction.carried = 1;
  wired.introduction.made = 1;
  cpu::CpuMachine machine(0, kPolicy, nullptr, nullptr);
  const std::byte source{};
  const auto send = [&](bool named) {
    wired.credit.granted = wired.send.sent + 1;
    ASSERT_TRUE(can_send(machine, wired.lane, wired.send));
    named ? name_source(wired.lane, wired.send, &source, 1) : measure(wired.send, 1);
    post(machine, wired.send);
  };
  EXPECT_EQ(untaken(machine, wired.send), 0u) << "nothing was sent";
  send(false);
  EXPECT_EQ(untaken(machine, wired.send), 0u) << "it is in its slot";
  send(true);
  send(true);
  send(false);
  EXPECT_EQ(untaken(machine, wired.send), 3u);
  wired.credit.taken = 2;
  EXPECT_EQ(untaken(machine, wired.send), 3u);
  wired.credit.taken = 3;
  EXPECT_EQ(untaken(machine, wired.send), 0u);
  send(true);
  for (uint32_t k = 1; k < kMaxCredits; ++k) send(false);
  EXPECT_EQ(untaken(machine, wired.send), 5u);
  send(false);  // into the slot of that one, which was granted again
  EXPECT_EQ(untaken(machine, wired.send), 0u);
  wired.send.carried = 0;
  send(true);
  EXPECT_EQ(untaken(machine, wired.send), 0u) << "nobody says so on one host";
}

}  // namespace
}  // namespace starling::device
