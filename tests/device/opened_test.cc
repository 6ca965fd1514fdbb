// Goal: a message of protocol pull from another process is read where our host has opened the buffer that it
// names, and not before; and it names the buffer that its address lies in.
// Method: the interpreter on a machine of threads that may not use its peer's addresses. Every buffer is
// mapped twice, as by two processes; the owner's view of what it only offers is taken away.
#include "device/opened.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "device/interpreter.h"
#include "machine/cpu/machine.h"
#include "plan/cache.h"

namespace starling::device {
namespace {

constexpr cpu::WaitPolicy kPolicy{.spins = 4, .idle_spins = 2, .idle_yields = 2, .sleep_ns = 100'000};
constexpr uint64_t kTile = 4096;
constexpr uint64_t kBytes = 3 * kTile;  // more tiles than there are slots
constexpr uint32_t kPrivateSlots = 2;
constexpr uint32_t kSlotBytes = 64;

class OpeningMachine : public cpu::CpuMachine {
 public:
  static constexpr bool kReadsOwned = false;
  static constexpr bool kOpensPeers = true;
  OpeningMachine() : CpuMachine(0, kPolicy, nullptr, nullptr) {}
};
static_assert(Machine<OpeningMachine>);

// The same pages at two addresses.
class Buffer {
 public:
  Buffer() {
    const int file = memfd_create("buffer", 0);
    EXPECT_EQ(ftruncate(file, kBytes), 0);
    for (std::byte*& view : views_)
      view = static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
  }
  ~Buffer() {
    for (std::byte* view : views_) munmap(view, kBytes);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* here() const { return views_[0]; }
  uint64_t offset() const { return uint64_t(views_[1]) - uint64_t(views_[0]); }
  void take_away() { EXPECT_EQ(mprotect(views_[0], kBytes, PROT_NONE), 0); }
  uint32_t* numbers(bool there) { return reinterpret_cast<uint32_t*>(views_[there]); }

 private:
  std::byte* views_[2];
};

// What one rank of two has of a lane, and its operation.
struct Rank {
  Rank(const Plan& plan, uint32_t number) : rank(number), slots(2 * channels * kPrivateSlots * kSlotBytes) {
    STARLING_ASSERT(plan.header(number)->channel_count <= channels, "the lane has too few channels");
    lane.fault = &fault;
    lane.peer_count = 2;
    lane.rank = number;
    lane.channel_count = channels;
    lane.private_slots = kPrivateSlots;
    lane.slot_bytes = kSlotBytes;
    lane.sends = sends;
    lane.receives = receives;
    lane.blocks = &block;
    opened->told = told.data();
    operation.plan = plan.header(number);
    operation.group_bytes = operation.chunk_bytes = kBytes;
    operation.tile_bytes = kTile;
    operation.tile_count = kBytes / kTile;
    operation.data_type = DataType::kUint32;
    operation.block_count = 1;
    operation.rank_count = 2;
    operation.buffers[uint32_t(BufferKind::kInput)].base = input.here();
    operation.buffers[uint32_t(BufferKind::kOutput)].base = output.here();
    operation.registrations[uint32_t(BufferKind::kInput)] = input_number();
    operation.registrations[uint32_t(BufferKind::kOutput)] = output_number();
    for (uint64_t k = 0; k < kBytes / 4; ++k) input.numbers(false)[k] = uint32_t(1000 * k + 7 * rank);
  }
  uint16_t input_number() const { return uint16_t(1 + 2 * rank); }
  uint16_t output_number() const { return uint16_t(2 + 2 * rank); }

  void connect(Rank& peer) {
    for (uint32_t c = 0; c < channels; ++c) {
      const uint32_t to = peer.rank * channels + c, from = rank * channels + c;
      std::byte* theirs = peer.slots.data() + from * kPrivateSlots * kSlotBytes;
      sends[to].connected = receives[to].connected = 1;
      sends[to].peer = receives[to].peer = peer.rank;
      sends[to].credit = &credits[to];
      sends[to].inbox = &peer.inboxes[from];
      sends[to].private_slots = theirs;
      receives[to].inbox = &inboxes[to];
      receives[to].credit = &peer.credits[from];
      receives[to].private_slots = slots.data() + to * kPrivateSlots * kSlotBytes;
      sends[to].opened = receives[to].opened = opened.get();
      receives[to].granted = credits[to].granted = kPrivateSlots;
      for (uint32_t k = 0; k < kPrivateSlots; ++k) receives[to].grants[k] = credits[to].grants[k] = k;
    }
  }

  // As its host would.
  void open(uint16_t number, const Buffer& buffer) {
    told[number].offset = buffer.offset();
    machine.store_release(&told[number].made, 1);
  }
  Outcome run() {
    Budget budget{1, 1, 1, 0};
    const Execution execution{&lane, &operation, &block, &pool, nullptr, &operands, nullptr};
    Interpreter<OpeningMachine> interpreter(machine, execution, budget);
    const Outcome outcome = interpreter.run(context);
    awaited = outcome == Outcome::kStuck ? interpreter.awaits(context) : Awaited{};
    return outcome;
  }

  static constexpr uint32_t channels = 2;
  uint32_t rank;
  OpeningMachine machine;
  Buffer input, output;
  std::vector<std::byte> slots;
  std::vector<OpenedRegistration> told = std::vector<OpenedRegistration>(kMaxRegistrations);
  std::unique_ptr<OpenedTable> opened = std::make_unique<OpenedTable>();
  uint64_t fault = 0;
  Lane lane{};
  LaneBlock block{};
  SlotPool pool{};
  SendEnd sends[2 * channels]{};
  ReceiveEnd receives[2 * channels]{};
  Inbox inboxes[2 * channels]{};
  Credit credits[2 * channels]{};
  Operation operation{};
  DynamicContext context{};
  Combine operands{};
  Awaited awaited{};
};

std::shared_ptr<const Plan> plan_of(const char* algorithm, Collective collective) {
  static PlanCache plans;
  return plans.get(algorithm, {collective, 2, 0, 1, false});
}

TEST(Opened, AMessageWaitsUntilItsBufferIsOpen) {
  const auto plan = plan_of("direct_pull", Collective::kSendRecv);
  Rank sender(*plan, 0), receiver(*plan, 1);
  sender.connect(receiver);
  receiver.connect(sender);
  sender.input.take_away();
  ASSERT_EQ(sender.run(), Outcome::kStuck);  // two tiles are offered
  ASSERT_EQ(receiver.run(), Outcome::kStuck);
  const uint16_t number = sender.input_number();
  EXPECT_EQ(receiver.awaited.word, &receiver.told[number].made);
  EXPECT_EQ(receiver.awaited.target, 1u);
  EXPECT_EQ(receiver.awaited.peer, 0u);
  EXPECT_EQ(receiver.told[number].wanted, 1u);
  EXPECT_EQ(receiver.context.steps, 0u);
  receiver.open(number, sender.input);
  ASSERT_EQ(receiver.run(), Outcome::kStuck);
  EXPECT_EQ(receiver.context.steps, 2u);
  ASSERT_EQ(sender.run(), Outcome::kStuck);
  ASSERT_EQ(receiver.run(), Outcome::kDone);
  ASSERT_EQ(sender.run(), Outcome::kDone);
  EXPECT_EQ(std::memcmp(receiver.output.numbers(false), sender.input.numbers(true), kBytes), 0);
}

TEST(Opened, AMessageIsPutWhenItsPlaceIsOpen) {
  const auto plan = plan_of("direct_put", Collective::kSendRecv);
  Rank sender(*plan, 0), receiver(*plan, 1);
  sender.connect(receiver);
  receiver.connect(sender);
  ASSERT_EQ(sender.run(), Outcome::kStuck);
  EXPECT_EQ(sender.awaited.word, &sender.credits[receiver.rank * Rank::channels].lent[0][0]);
  EXPECT_EQ(sender.awaited.peer, 1u);
  ASSERT_EQ(receiver.run(), Outcome::kStuck);  // a place is lent
  EXPECT_EQ(receiver.awaited.word, &receiver.inboxes[sender.rank * Rank::channels].put);
  EXPECT_EQ(receiver.awaited.target, 1u);
  EXPECT_GE(int64_t(*sender.awaited.word - sender.awaited.target), 0);
  ASSERT_EQ(sender.run(), Outcome::kStuck);
  const uint16_t number = receiver.output_number();
  EXPECT_EQ(sender.awaited.word, &sender.told[number].made);
  EXPECT_EQ(sender.told[number].wanted, 1u);
  EXPECT_EQ(sender.context.steps, 0u);
  sender.open(number, receiver.output);
  for (uint64_t tile = 0; tile < kBytes / kTile; ++tile) {
    const bool last = tile + 1 == kBytes / kTile;
    ASSERT_EQ(sender.run(), last ? Outcome::kDone : Outcome::kStuck) << tile;
    EXPECT_EQ(sender.context.steps, tile + 1);
    ASSERT_EQ(receiver.run(), last ? Outcome::kDone : Outcome::kStuck) << tile;
    EXPECT_EQ(receiver.context.steps, tile + 1);
  }
  EXPECT_EQ(std::memcmp(receiver.output.numbers(false), sender.input.numbers(false), kBytes), 0);
}

// Peers that count otherwise, and have not been told so yet.
TEST(Opened, NothingIsPutIntoAPlaceOfAnotherLength) {
  const auto plan = plan_of("direct_put", Collective::kSendRecv);
  for (const uint64_t bytes : {kTile / 2, kTile + 4}) {
    Rank sender(*plan, 0), receiver(*plan, 1);
    sender.connect(receiver);
    receiver.connect(sender);
    receiver.operation.group_bytes = receiver.operation.chunk_bytes = receiver.operation.tile_bytes = bytes;
    receiver.operation.tile_count = 1;
    sender.open(receiver.output_number(), receiver.output);
    ASSERT_EQ(receiver.run(), Outcome::kStuck);  // the place is lent
    ASSERT_EQ(sender.run(), Outcome::kStuck);
    EXPECT_EQ(sender.context.steps, 0u);
    EXPECT_EQ(sender.awaited.word, &sender.credits[receiver.rank * Rank::channels].lent[0][1]);
    EXPECT_LT(int64_t(*sender.awaited.word - sender.awaited.target), 0) << "that place stays what it is";
    EXPECT_EQ(sender.awaited.peer, 1u);
    for (uint64_t k = 0; k < kBytes / 4; ++k) ASSERT_EQ(receiver.output.numbers(false)[k], 0u) << k;
  }
}

class OpenedSums : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Opened, OpenedSums, ::testing::Values("two_shot_pull", "two_shot_put"));

// A rank offers its input, and then the sums, or lends their places, which lie in its output.
TEST_P(OpenedSums, AMessageNamesTheBufferItsAddressLiesIn) {
  const auto plan = plan_of(GetParam(), Collective::kAllReduce);
  Rank zero(*plan, 0), one(*plan, 1);
  for (auto [own, other] : {std::pair(&zero, &one), std::pair(&one, &zero)}) {
    own->connect(*other);
    own->operation.chunk_bytes = kBytes / 2;
    own->operation.tile_count = (kBytes / 2 + kTile - 1) / kTile;
    own->open(other->input_number(), other->input);
    own->open(other->output_number(), other->output);
  }
  bool done[2] = {false, false};
  for (int turn = 0; turn < 100 && !(done[0] && done[1]); ++turn) {
    Rank& rank = turn % 2 ? one : zero;
    if (!done[turn % 2]) done[turn % 2] = rank.run() == Outcome::kDone;
  }
  ASSERT_TRUE(done[0] && done[1]);
  for (Rank* rank : {&zero, &one})
    for (uint64_t k = 0; k < kBytes / 4; ++k)
      ASSERT_EQ(rank->output.numbers(false)[k], zero.input.numbers(false)[k] + one.input.numbers(false)[k])
          << "rank " << rank->rank << ", element " << k;
}

// Rank 0's buffers cannot be opened: rank 1 knows nothing but where they bounce.
TEST_P(OpenedSums, WhatCannotBeOpenedIsCopiedToWhereItCan) {
  const auto plan = plan_of(GetParam(), Collective::kAllReduce);
  Rank zero(*plan, 0), one(*plan, 1);
  Buffer bounced_input, bounced_output;
  for (auto [own, other] : {std::pair(&zero, &one), std::pair(&one, &zero)}) {
    own->connect(*other);
    own->operation.chunk_bytes = kBytes / 2;
    own->operation.tile_count = (kBytes / 2 + kTile - 1) / kTile;
  }
  zero.operation.bounces[0] = bounced_input.here() - zero.input.here();
  zero.operation.bounces[1] = bounced_output.here() - zero.output.here();
  one.open(zero.input_number(), bounced_input);
  one.open(zero.output_number(), bounced_output);
  zero.open(one.input_number(), one.input);
  zero.open(one.output_number(), one.output);
  bool done[2] = {false, false};
  for (int turn = 0; turn < 100 && !(done[0] && done[1]); ++turn) {
    Rank& rank = turn % 2 ? one : zero;
    if (!done[turn % 2]) done[turn % 2] = rank.run() == Outcome::kDone;
  }
  ASSERT_TRUE(done[0] && done[1]);
  for (Rank* rank : {&zero, &one})
    for (uint64_t k = 0; k < kBytes / 4; ++k)
      ASSERT_EQ(rank->output.numbers(false)[k], zero.input.numbers(false)[k] + one.input.numbers(false)[k])
          << "rank " << rank->rank << ", element " << k;
}

// Blocks of a rank look at once; each copies, or acquires what another one copied.
TEST(Opened, WhoeverComesFirstCopiesWhatTheHostTells) {
  for (int round = 0; round < 100; ++round) {
    auto table = std::make_unique<OpenedTable>();
    std::vector<OpenedRegistration> told(kMaxRegistrations);
    table->told = told.data();
    constexpr uint16_t kNumber = 7;
    uint64_t memory = 4711;
    const Pack message{0x1000, kNumber};
    const auto read = [&] {
      OpeningMachine m;
      for (uint32_t attempt = 0; !is_opened(m, *table, kNumber); ++attempt) m.pause(attempt);
      EXPECT_EQ(*reinterpret_cast<const uint64_t*>(opened_address(m, *table, message)), 4711u);
    };
    std::thread first(read), second(read);
    OpeningMachine host;
    told[kNumber].offset = uint64_t(&memory) - message.low;
    host.store_release(&told[kNumber].made, 1);
    first.join();
    second.join();
    OpeningMachine m;
    told[kNumber].made = 0;  // nobody asks the host again
    EXPECT_TRUE(is_opened(m, *table, kNumber));
    EXPECT_FALSE(is_opened(m, *table, kNumber + 1));
  }
}

}  // namespace
}  // namespace starling::device
