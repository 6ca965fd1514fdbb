// Goal: a plan survives being written and read; damaged bytes are refused with a named error, never a crash.
// Method: round trips; every truncation; random flips of bits, with the checksum as it was and with a
// checksum made to fit, so that the verifier behind it sees them too. The seed is printed.
// sanitize: address (one thread)
#include "plan/file.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "base/error.h"
#include "plan/all_plans.h"
#include "plan/builder.h"

namespace starling {
namespace {

std::string refusal(std::span<const std::byte> bytes) {
  try {
    plan_from_bytes(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(PlanFile, RoundTripIsExact) {
  for (const BuiltIn& built_in : built_ins({1, 2, 5, 17}, {1, 2})) {
    SCOPED_TRACE(built_in.name());
    const Plan plan = generate(built_in.algorithm, built_in.request);
    const Plan again = plan_from_bytes(to_bytes(plan));
    EXPECT_EQ(again.name(), plan.name());
    ASSERT_EQ(again.hash(), plan.hash());
    EXPECT_EQ(to_bytes(again), to_bytes(plan));
  }
}

TEST(PlanFile, SavesAndLoads) {
  const std::string path = testing::TempDir() + "starling_file_test.plan";
  const Plan plan = generate("chain", {Collective::kReduce, 4, 2, 2, false});
  save_plan(plan, path);
  EXPECT_EQ(load_plan(path).hash(), plan.hash());
  std::remove(path.c_str());
  EXPECT_THROW(load_plan(path), Error);
  EXPECT_THROW(load_plan("/dev/zero"), Error);  // never ends
  EXPECT_THROW(save_plan(plan, "/nowhere/at/all.plan"), Error);
}

// Two ranks exchange their buffers; the second part of each output may hold anything.
Plan with_postcondition() {
  Geometry geometry = Geometry::standard(Collective::kCustom, 2, 0, false, 1);
  geometry.output_groups = 2;
  PlanBuilder builder("neighbours", geometry);
  for (std::uint32_t r = 0; r < 2; ++r) {
    const Connection peer{static_cast<std::uint16_t>(1 - r), 0};
    builder.add(r, 0, {.opcode = Opcode::send, .source = input(0), .sends = {peer}});
    builder.add(r, 0, {.opcode = Opcode::recv, .destination = output(0), .receives = {peer}});
  }
  builder.set_postcondition({{0, 0, 1, {{1, 0}}}, {1, 0, 1, {{0, 0}}}});
  return builder.build();
}

TEST(PlanFile, CarriesThePostcondition) {
  const Plan plan = with_postcondition();
  const std::vector<std::byte> bytes = to_bytes(plan);
  const Plan again = plan_from_bytes(bytes);
  EXPECT_EQ(again.postcondition(), plan.postcondition());
  EXPECT_EQ(to_bytes(again), bytes);
  EXPECT_EQ(bytes[4], std::byte{2});
  // Without one nothing changed: older libraries read it.
  EXPECT_EQ(to_bytes(generate("ring", {Collective::kAllReduce, 2}))[4], std::byte{1});
}

TEST(PlanFile, AResultThatThePostconditionDoesNotHaveIsRefused) {
  const Plan plan = with_postcondition();
  std::vector<std::span<const std::byte>> parts{plan.part(0), plan.part(1)};
  EXPECT_NO_THROW(Plan::from_parts("same", parts, plan.postcondition()));
  EXPECT_THROW(Plan::from_parts("other", parts, Postcondition{{0, 0, 1, {{0, 0}}}}), Error);
}

TEST(PlanFile, EveryTruncationIsRefused) {
  std::vector<std::byte> bytes = to_bytes(with_postcondition());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_NE(refusal(std::span(bytes).first(length)).find("truncated"), std::string::npos) << length;
  bytes = to_bytes(generate("ring", {Collective::kAllReduce, 3, 0, 1, false}));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(refusal(std::span(bytes).first(length)).find("truncated"), std::string::npos) << length;
  }
  std::vector<std::byte> longer = bytes;
  longer.resize(bytes.size() + 8);
  EXPECT_NE(refusal(longer), "");
}

TEST(PlanFile, MagicAndVersionAreNamed) {
  std::vector<std::byte> bytes = to_bytes(generate("ring", {Collective::kAllReduce, 2, 0, 1, false}));
  bytes[4] = std::byte{9};
  EXPECT_NE(refusal(bytes).find("version"), std::string::npos);
  bytes[0] = std::byte{0};
  EXPECT_NE(refusal(bytes).find("mark of a plan file"), std::string::npos);
}

void expect_flips_refused(const std::vector<std::byte>& good) {
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::vector<std::byte> bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(refusal(bytes), "") << "bit " << bit;
  }
}

TEST(PlanFile, EveryFlippedBitIsRefused) {
  expect_flips_refused(to_bytes(generate("two_shot", {Collective::kAllReduce, 3, 0, 1, false})));
  expect_flips_refused(to_bytes(with_postcondition()));
}

// Flips bits in one part of a plan and gives all parts to the verifier: nothing but an Error may come.
void expect_no_crash(const Plan& plan, std::mt19937_64& random) {
  std::vector<std::vector<std::uint64_t>> words;
  std::vector<std::span<const std::byte>> parts;
  for (std::uint32_t rank = 0; rank < plan.rank_count(); ++rank) {
    const auto part = plan.part(rank);
    words.emplace_back(part.size() / 8);
    std::memcpy(words.back().data(), part.data(), part.size());
  }
  for (std::uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
    auto& victim = words[random() % words.size()];
    const std::uint64_t bit = random() % (victim.size() * 64);
    victim[bit / 64] ^= std::uint64_t{1} << (bit % 64);
  }
  for (const auto& part : words) parts.push_back(std::as_bytes(std::span(part)));
  try {
    Plan::from_parts("fuzz", parts);
    // Flips may cancel each other; anything else breaks a claim of the header, at least its hash.
    for (std::uint32_t rank = 0; rank < plan.rank_count(); ++rank) {
      EXPECT_EQ(std::memcmp(words[rank].data(), plan.part(rank).data(), plan.part(rank).size()), 0);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument) << error.what();
  }
}

TEST(PlanFile, FlippedPartsAreRefusedWithoutACrash) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const Plan plans[] = {generate("ring", {Collective::kAllReduce, 3, 0, 2, false}),
                        generate("direct", {Collective::kGather, 4, 1, 1, true}),
                        generate("one_shot", {Collective::kAllReduce, 4, 0, 1, true})};
  for (int round = 0; round < 4000; ++round) expect_no_crash(plans[round % 3], random);
}

}  // namespace
}  // namespace starling
