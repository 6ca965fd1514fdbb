// Goal: peers are told the number of what they can open; what they cannot bounces to memory of the size that
// is read, as far into a pack as the buffer, until the operation is over. Method: operations lowered for a
// GPU, and a place that counts.
// sanitize: address (one thread)
#include "comm/offer.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "base/error.h"
#include "machine/cpu/place.h"

namespace starling {
namespace {

constexpr uint64_t kInput = (uint64_t(1) << 40) + 4, kOutput = uint64_t(1) << 41;  // never looked at
constexpr uint16_t kRegistered = 7, kBounced = 9;

class GpuLike final : public cpu::CpuPlace {
 public:
  using CpuPlace::CpuPlace;
  uint16_t registration_of(const void* memory, uint64_t bytes, bool) override {
    const bool input = uint64_t(memory) < kOutput;
    asked[!input] = {uint64_t(memory), bytes};
    return (input ? input_opens : output_opens) ? kRegistered : 0;
  }
  std::byte* take_bounce(uint64_t bytes, uint16_t& registration) override {
    if (exhausted) throw Error(Code::exhausted, "no memory today", "");
    registration = kBounced;
    pieces.insert(bytes);
    return reinterpret_cast<std::byte*>(kBounces + 1024 * pieces.size());
  }
  void give_opened(std::byte*, uint64_t bytes) override { pieces.erase(pieces.find(bytes)); }

  static constexpr uint64_t kBounces = uint64_t(1) << 42;
  bool input_opens = true, output_opens = true, exhausted = false;
  std::pair<uint64_t, uint64_t> asked[2] = {};  // address and bytes, of input and output
  std::multiset<uint64_t> pieces;
};

struct Offered : testing::Test {
  Lowered sum() {
    LoweringContext context{0, 2, 2, &plans, true};
    context.opens = context.reads = true;
    starling_operation call{};
    call.struct_bytes = sizeof call;
    call.kind = STARLING_ALL_REDUCE;
    call.algorithm = "two_shot_pull";  // peers read the input, and the output
    call.data_type = STARLING_FLOAT32;
    call.input = reinterpret_cast<const void*>(kInput);
    call.output = reinterpret_cast<void*>(kOutput);
    call.count = kCount;
    return lower(context, call);
  }
  static uint64_t bounced(const Operation& op, uint32_t k) {
    return uint64_t(op.buffers[uint32_t(BufferKind::kInput) + k].base) + uint64_t(op.bounces[k]);
  }

  static constexpr uint64_t kCount = uint64_t(1) << 20;
  PlanCache plans;
  cpu::Arena arena{cpu::Arena::Sizes{1 << 24}};
  GpuLike place{arena, {}};
};

TEST_F(Offered, WhatOpensIsRegistered) {
  Lowered lowered = sum();
  EXPECT_EQ(offer_to_peers(place, lowered), "");
  const Operation& op = lowered.operation;
  EXPECT_EQ(op.registrations[uint32_t(BufferKind::kInput)], kRegistered);
  EXPECT_EQ(op.registrations[uint32_t(BufferKind::kOutput)], kRegistered);
  EXPECT_EQ(op.bounces[0], 0);
  EXPECT_EQ(op.bounces[1], 0);
  EXPECT_TRUE(place.pieces.empty());
  // All that peers will read: what lies there may be in several pieces.
  for (uint32_t k : {0, 1}) {
    const Extent& offered = lowered.offered.of[k];
    EXPECT_EQ(place.asked[k],
              std::pair((k == 0 ? kInput : kOutput) + offered.begin, offered.end - offered.begin));
  }
}

TEST_F(Offered, WhatDoesNotBouncesUntilTheOperationIsOver) {
  place.input_opens = false;
  {
    Lowered lowered = sum();
    EXPECT_EQ(offer_to_peers(place, lowered), "");
    const Operation& op = lowered.operation;
    EXPECT_EQ(op.registrations[uint32_t(BufferKind::kInput)], kBounced);
    EXPECT_EQ(op.registrations[uint32_t(BufferKind::kOutput)], kRegistered);
    EXPECT_EQ(op.bounces[1], 0);
    ASSERT_EQ(place.pieces.size(), 1u);
    const Extent& offered = lowered.offered.of[0];
    const uint64_t bytes = *place.pieces.begin(), read = offered.end - offered.begin;
    const uint64_t first = bounced(op, 0) + offered.begin;
    EXPECT_LT(bytes, read + 1024);
    EXPECT_GE(first, GpuLike::kBounces + 1024);
    EXPECT_LE(first + read, GpuLike::kBounces + 1024 + bytes);
    EXPECT_EQ(first % 256, (kInput + offered.begin) % 256);
    const Lowered kept = std::move(lowered);  // as flights are
    EXPECT_EQ(place.pieces.size(), 1u);
  }
  EXPECT_TRUE(place.pieces.empty());
}

TEST_F(Offered, WithoutMemoryItSaysWhy) {
  place.input_opens = place.output_opens = false;
  place.exhausted = true;
  Lowered lowered = sum();
  EXPECT_NE(offer_to_peers(place, lowered).find("no memory today"), std::string::npos);
  EXPECT_EQ(lowered.bounced, nullptr);
}

}  // namespace
}  // namespace starling
