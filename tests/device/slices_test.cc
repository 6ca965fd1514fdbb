// Goal: slices that are copied or summed together hold what they hold one by one, of any length and
// alignment, of any number, and where a slice is at its place already. Method: a machine whose threads take
// their turns, as many lengths as there are cases in the code, beside a reference.
// sanitize: address (one thread)
#include "device/slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace starling::device {
namespace {

constexpr uint32_t kThreads = 4;

// Threads as a GPU's, one after the other: what they share is only read.
struct VectorMachine {
  static constexpr bool kVectorThreads = true;
  uint32_t thread;
  uint32_t thread_index() const { return thread; }
  uint32_t thread_count() const { return kThreads; }
};

struct alignas(16) Memory {
  std::byte bytes[8 * 1024];
};
struct alignas(16) Numbers {
  float at[1024];
};

void fill(Memory& memory, uint32_t seed) {
  for (uint32_t k = 0; k < sizeof(memory.bytes); ++k)
    memory.bytes[k] = std::byte((k * 7 + k / 251 + seed * 31) & 0xff);
}

constexpr uint64_t kTurn = uint64_t(kCopiedPacks) * kThreads * 16;
const std::vector<uint64_t> kLengths{
    0,     1,          16,         16 * kThreads, 16 * kThreads + 16, kTurn - 16,
    kTurn, kTurn + 16, kTurn + 24, 3 * kTurn,     3 * kTurn + 16 * 5, 5 * kTurn + 8};

void expect_copied(const std::vector<uint64_t>& lengths, const std::vector<uint32_t>& shifts) {
  const auto count = uint32_t(lengths.size());
  std::vector<Memory> from(count), to(count), before(count);
  for (uint32_t k = 0; k < count; ++k) {
    fill(from[k], k);
    fill(to[k], 100 + k);
    before[k] = to[k];
  }
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    VectorMachine m{thread};
    copy_slices(m, count,
                [&](uint32_t k) { return Slice{to[k].bytes + shifts[k], from[k].bytes, lengths[k]}; });
  }
  for (uint32_t k = 0; k < count; ++k) {
    std::memcpy(before[k].bytes + shifts[k], from[k].bytes, lengths[k]);
    EXPECT_EQ(std::memcmp(before[k].bytes, to[k].bytes, sizeof(before[k].bytes)), 0)
        << "slice " << k << " of " << count << ", " << lengths[k] << " bytes, shifted by " << shifts[k];
  }
}

TEST(Slices, AreCopiedTogether) {
  for (const uint64_t a : kLengths) {
    expect_copied({a}, {0});
    expect_copied({a}, {4});
    for (const uint64_t b : kLengths)
      for (const uint64_t c : kLengths) {
        expect_copied({a, b, c}, {0, 0, 0});
        expect_copied({a, b, c}, {0, 8, 16});
      }
  }
}

TEST(Slices, OneThatIsThereIsNotTouched) {
  Memory memory;
  fill(memory, 1);
  const Memory before = memory;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    VectorMachine m{thread};
    copy_slices(m, 2, [&](uint32_t) { return Slice{memory.bytes, memory.bytes, kTurn + 48}; });
  }
  EXPECT_EQ(std::memcmp(before.bytes, memory.bytes, sizeof(memory.bytes)), 0);
}

// In registers or not, to one place or several, the sum is the same: of small whole numbers, so in any order.
void expect_summed(uint32_t sources, uint32_t places, ReduceOp op, uint32_t elements, uint32_t shift) {
  std::vector<Numbers> in(sources), out(places);
  for (uint32_t s = 0; s < sources; ++s)
    for (uint32_t e = 0; e < 1024; ++e) in[s].at[e] = float((e * (s + 3) + s) % 50);
  for (Numbers& numbers : out) std::fill(std::begin(numbers.at), std::end(numbers.at), -1.0f);
  Combine c;
  c.clear();
  for (uint32_t s = 0; s < sources; ++s)
    c.sources[s] = reinterpret_cast<const std::byte*>(in[s].at + (s == 0 ? shift : 0));
  for (uint32_t d = 0; d < places; ++d) c.destinations[d] = reinterpret_cast<std::byte*>(out[d].at);
  c.bytes = elements * sizeof(float);
  c.source_count = sources;
  c.destination_count = places;
  c.scaled_source = kNoSource;
  c.divisor = op == ReduceOp::kAvg ? sources : 1;
  c.data_type = DataType::kFloat32;
  c.reduce_op = op;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    VectorMachine m{thread};
    combine_slice(m, c);
  }
  for (uint32_t d = 0; d < places; ++d)
    for (uint32_t e = 0; e < 1024; ++e) {
      float expected = in[0].at[std::min(e + shift, 1023u)];
      for (uint32_t s = 1; s < sources; ++s)
        expected = op == ReduceOp::kMax ? std::max(expected, in[s].at[e]) : expected + in[s].at[e];
      if (op == ReduceOp::kAvg) expected /= float(sources);
      ASSERT_FLOAT_EQ(out[d].at[e], e < elements ? expected : -1)
          << "element " << e << " of " << elements << ", " << sources << " sources, place " << d;
    }
}

TEST(Slices, AreSummed) {
  for (const uint32_t sources : {1u, 2u, 3u, 4u, 5u})
    for (const uint32_t places : {1u, 2u, 4u})
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax})
        for (const uint32_t elements : {0u, 1u, 4u, 16u, 20u, 64u, 64u * 3 + 4, 128u, 132u, 500u, 1000u})
          for (const uint32_t shift : {0u, 2u}) expect_summed(sources, places, op, elements, shift);
}

}  // namespace
}  // namespace starling::device
