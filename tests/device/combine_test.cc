// Goal: combine() is right for every type and reduction, any number of sources and destinations, any length,
// scaled and divided, also into the memory of a source. Method: against a scalar reference in long double and
// wrapping 64-bit integers, on small whole numbers, which every type holds exactly.
// sanitize: address (one thread)
#include "device/combine.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "machine/cpu/machine.h"

namespace starling::device {
namespace {

constexpr cpu::WaitPolicy kPolicy{.spins = 4, .idle_spins = 2, .idle_yields = 2, .sleep_ns = 100'000};
constexpr uint64_t kLengths[] = {0, 1, 3, 17, 512, 4097, 9001};

bool is_float(DataType type) { return type >= DataType::kFloat16 && type <= DataType::kFloat64; }
bool is_bits(ReduceOp op) { return op >= ReduceOp::kBand; }
bool is_unsigned(DataType type) {
  return type == DataType::kBool || (!is_float(type) && uint32_t(type) % 2 == 1);
}
bool has_meaning(DataType type, ReduceOp op) {
  if (is_float(type)) return !is_bits(op);
  return type != DataType::kBool || (op != ReduceOp::kAvg && op != ReduceOp::kPremulSum);
}

// An element of `type` that holds the whole number, written without the library's own conversions.
void encode(DataType type, int64_t number, std::byte* to) {
  const float single = float(number);
  const double wide = double(number);
  const auto half = static_cast<_Float16>(single);
  const uint16_t brain = uint16_t(std::bit_cast<uint32_t>(single) >> 16);
  switch (type) {
    case DataType::kFloat16: std::memcpy(to, &half, 2); break;
    case DataType::kBfloat16: std::memcpy(to, &brain, 2); break;
    case DataType::kFloat32: std::memcpy(to, &single, 4); break;
    case DataType::kFloat64: std::memcpy(to, &wide, 8); break;
    case DataType::kBool: *to = std::byte(number != 0); break;
    default: std::memcpy(to, &number, data_type_bytes(type));  // little endian, wraps
  }
}

int64_t apply(DataType type, ReduceOp op, int64_t a, int64_t b) {
  if (type == DataType::kBool && op == ReduceOp::kSum) return a | b;
  switch (op) {
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMin: return a < b ? a : b;
    case ReduceOp::kMax: return a < b ? b : a;
    case ReduceOp::kBand: return a & b;
    case ReduceOp::kBor: return a | b;
    case ReduceOp::kBxor: return a ^ b;
    default: return a + b;
  }
}

struct Numbers {
  std::vector<int64_t> values;
  std::vector<std::byte> bytes;
};

// Even, so that halves are exact; for products powers of two without a zero, whose sign would be lost.
Numbers random_numbers(DataType type, ReduceOp op, uint64_t count, std::mt19937& random) {
  const int64_t low = is_unsigned(type) ? 0 : -3;
  std::uniform_int_distribution<int64_t> pick(low, type == DataType::kBool ? 1 : 3);
  const uint64_t element = data_type_bytes(type);
  Numbers numbers{std::vector<int64_t>(count), std::vector<std::byte>(count * element)};
  for (uint64_t i = 0; i < count; ++i) {
    const int64_t drawn = pick(random);
    if (type == DataType::kBool)
      numbers.values[i] = drawn;
    else if (op == ReduceOp::kProd)
      numbers.values[i] = drawn < 0 ? -2 : 1 + drawn % 2;
    else
      numbers.values[i] = drawn * 2;
    encode(type, numbers.values[i], &numbers.bytes[i * element]);
  }
  return numbers;
}

class EveryTypeAndOp : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {};

TEST_P(EveryTypeAndOp, AgreesWithTheReference) {
  const auto type = DataType(std::get<0>(GetParam()));
  const auto op = ReduceOp(std::get<1>(GetParam()));
  if (!has_meaning(type, op)) GTEST_SKIP() << "refused by the library";
  cpu::CpuMachine machine(0, kPolicy, nullptr, nullptr);
  std::mt19937 random(uint32_t(type) * 16 + uint32_t(op));
  const uint64_t element = data_type_bytes(type);
  for (const uint64_t count : kLengths) {
    for (const uint32_t sources : {1u, 2u, 4u}) {
      std::vector<Numbers> numbers;
      for (uint32_t s = 0; s < sources; ++s) numbers.push_back(random_numbers(type, op, count, random));
      Combine combined{};
      combined.bytes = count * element;
      combined.source_count = sources;
      combined.destination_count = 2;
      combined.scaled_source = op == ReduceOp::kPremulSum ? sources - 1 : kNoSource;
      combined.divisor = op == ReduceOp::kAvg ? 2 : 1;
      combined.factor = 2;
      combined.data_type = type;
      combined.reduce_op = op;
      std::vector<std::byte> output(count * element, std::byte{0x5a});
      for (uint32_t s = 0; s < sources; ++s) combined.sources[s] = numbers[s].bytes.data();
      combined.destinations[0] = output.data();
      combined.destinations[1] = numbers[0].bytes.data();  // in place
      combine(machine, combined);

      std::vector<std::byte> expected(count * element);
      for (uint64_t i = 0; i < count; ++i) {
        auto value = [&](uint32_t s) { return numbers[s].values[i] * (s == combined.scaled_source ? 2 : 1); };
        int64_t result = value(0);
        for (uint32_t s = 1; s < sources; ++s) result = apply(type, op, result, value(s));
        encode(type, op == ReduceOp::kAvg ? result / 2 : result, &expected[i * element]);
      }
      ASSERT_EQ(output, expected) << "type " << int(type) << " op " << int(op) << " count " << count
                                  << " sources " << sources;
      ASSERT_EQ(numbers[0].bytes, expected) << "in place, type " << int(type) << " op " << int(op);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(TypesAndOps, EveryTypeAndOp,
                         ::testing::Combine(::testing::Range(0u, kDataTypeCount),
                                            ::testing::Range(0u, kReduceOpCount)));

TEST(Combine, MovesBytesOfAnyLength) {
  cpu::CpuMachine machine(0, kPolicy, nullptr, nullptr);
  for (const uint64_t bytes : {0, 1, 15, 4096, 4097, 70001}) {
    std::vector<std::byte> from(bytes), to(bytes + 2, std::byte{0x5a});
    for (uint64_t i = 0; i < bytes; ++i) from[i] = std::byte(i * 7);
    Combine moved{};
    moved.bytes = bytes;
    moved.source_count = moved.destination_count = 1;
    moved.scaled_source = kNoSource;
    moved.divisor = 1;
    moved.data_type = DataType::kUint8;
    moved.sources[0] = from.data();
    moved.destinations[0] = to.data() + 1;
    combine(machine, moved);
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin() + 1));
    EXPECT_EQ(to.front(), std::byte{0x5a});
    EXPECT_EQ(to.back(), std::byte{0x5a});
  }
}

}  // namespace
}  // namespace starling::device
