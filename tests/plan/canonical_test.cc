// Goal: operations of a lane follow each other without a fence only where their blocks share nothing.
// Method: small plans in text form that share a connection, scratch, or a wait, beside those that do not; a
// part that claims more than its instructions say.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "plan/generate.h"
#include "plan/text.h"

namespace starling {
namespace {

struct Shape {
  const char* collective = "all_reduce";
  int ranks = 2;
  int chunks_per_group = 1;
};

std::string text_of(const Shape& shape, const std::string& body) {
  return "starling-plan 1\nname test\ncollective " + std::string(shape.collective) + "\nranks " +
         std::to_string(shape.ranks) + "\nroot 0\nin_place 0\nchunks_per_group " +
         std::to_string(shape.chunks_per_group) + "\ngroups 1 1\n" + body;
}

// Whether operations of the plan may follow each other without a fence.
bool overlaps(const Shape& shape, const std::string& body) {
  return plan_from_text(text_of(shape, body)).header(0)->canonical != 0;
}

TEST(Canonical, OperationsOverlapOnlyIfTheirBlocksShareNothing) {
  const Shape pair{.collective = "broadcast", .chunks_per_group = 2};
  const auto sent = [](const char* first, const char* second) {
    return std::string("rank 0 scratch 0\n block 0\n 0 send input[0] -> >1.") + first +
           " size input[0]\n 1 copy input[0] -> output[0] size input[0]\n block 1\n 0 send input[1] -> >1." +
           second +
           " size input[1]\n 1 copy input[1] -> output[1] size input[1]\nrank 1 scratch 0\n block 0\n 0 recv "
           "<0." +
           first + " -> output[0] size output[0]\n block 1\n 0 recv <0." + second +
           " -> output[1] size output[1]\n";
  };
  EXPECT_TRUE(overlaps(pair, sent("0", "1")));
  EXPECT_FALSE(overlaps(pair, sent("1", "0")));  // the next plan's block 0 would take block 1's messages
  const Shape alone{.ranks = 1};
  EXPECT_TRUE(
      overlaps(alone, "rank 0 scratch 0\n block 0\n 0 copy input[0] -> output[0] size input[0] final\n"));
  EXPECT_FALSE(overlaps(alone,
                        "rank 0 scratch 1\n block 0\n 0 copy input[0] -> scratch[0] size input[0]\n"
                        " 1 copy scratch[0] -> output[0] size output[0] final\n"));
  EXPECT_FALSE(overlaps(alone,
                        "rank 0 scratch 0\n block 0\n 0 copy input[0] -> output[0] size input[0] final\n"
                        " block 1\n 0 nop size output[0] after 0.0\n"));
}

TEST(Canonical, AFalseClaimThatOperationsMayOverlapIsRefused) {
  const Plan plan = generate("two_step", {Collective::kAllToAll, 4});
  ASSERT_EQ(plan.header(0)->canonical, 0);
  std::vector<std::vector<std::uint64_t>> words;
  std::vector<std::span<const std::byte>> parts;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const auto part = plan.part(rank);
    words.emplace_back(part.size() / 8);
    std::memcpy(words.back().data(), part.data(), part.size());
  }
  for (const auto& part : words) parts.push_back(std::as_bytes(std::span(part)));
  EXPECT_NO_THROW(Plan::from_parts("same", parts));
  for (auto& part : words) reinterpret_cast<PlanHeader*>(part.data())->canonical = 1;
  EXPECT_THROW(Plan::from_parts("claims", parts), Error);
}

}  // namespace
}  // namespace starling
