// Goal: how much of a chunk goes at once can be said by a plan, in every form that plans have, and by an
// algorithm's name; what no machine could do is refused. Method: names, texts and parts, right and wrong.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "plan/file.h"
#include "plan/generate.h"
#include "plan/text.h"

namespace starling {
namespace {

const PlanRequest kSix{Collective::kAllReduce, 6};

template <class Make>
std::string refusal_of(const Make& make) {
  try {
    make();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Tile, StandsBehindAnAt) {
  for (const char* name : {"ring@16", "ring@65536", "hierarchical:2@4096", "hierarchical@4096"})
    EXPECT_TRUE(algorithm_takes(name, kSix.collective, kSix.rank_count)) << name;
  for (const char* name : {"ring@", "ring@0", "ring@24", "ring@-16", "ring@4294967296", "ring@16x", "@4096",
                           "hierarchical@4096:2", "ring:2@4096"}) {
    EXPECT_FALSE(algorithm_takes(name, kSix.collective, kSix.rank_count)) << name;
    EXPECT_NE(refusal_of([&] { generate(name, kSix); }), "") << name;
  }
  EXPECT_NE(refusal_of([] { generate("ring@24", kSix); }).find("multiple of 16"), std::string::npos);
  const Plan plan = generate("hierarchical:2@4096", kSix);
  EXPECT_EQ(plan.name(), "hierarchical:2@4096");
  for (std::uint32_t r = 0; r < 6; ++r) EXPECT_EQ(plan.header(r)->tile_bytes, 4096u);
  EXPECT_EQ(generate("hierarchical:2", kSix).header(0)->tile_bytes, 0u);
}

TEST(Tile, GoesWithTheReadingOfPeersBuffers) {
  EXPECT_EQ(without_pull("two_shot_pull@65536"), "two_shot");
  EXPECT_EQ(without_pull("two_shot_put@65536"), "two_shot");
  EXPECT_EQ(without_pull("two_shot@65536"), "two_shot@65536");
}

// Ranks whose tiles differ would exchange messages of different lengths: they see that their plans differ.
TEST(Tile, IsPartOfWhatRanksAgreeOn) {
  const Plan plain = generate("ring", kSix), tiled = generate("ring@4096", kSix),
             finer = generate("ring@2048", kSix);
  EXPECT_NE(plain.hash(), tiled.hash());
  EXPECT_NE(finer.hash(), tiled.hash());
  std::vector<std::span<const std::byte>> parts;
  for (std::uint32_t r = 0; r < 6; ++r) parts.push_back((r == 3 ? finer : tiled).part(r));
  EXPECT_NE(refusal_of([&] { Plan::from_parts("mixed", parts); }).find("tile_bytes"), std::string::npos);
}

TEST(Tile, SurvivesTextAndFiles) {
  const Plan plan = generate("two_shot_packets@512", kSix);
  const std::string text = to_text(plan);
  EXPECT_NE(text.find("\nprotocol packets\ntile 512\nchunks_per_group"), std::string::npos) << text;
  EXPECT_EQ(plan_from_text(text).hash(), plan.hash());
  EXPECT_EQ(to_text(plan_from_text(text)), text);
  EXPECT_EQ(plan_from_bytes(to_bytes(plan)).hash(), plan.hash());
  // Without one, text and file are what they were.
  EXPECT_EQ(to_text(generate("ring", kSix)).find("tile"), std::string::npos);
}

TEST(Tile, IsAMultipleOfSixteen) {
  std::string text = to_text(generate("ring@4096", kSix));
  for (const char* wrong : {"8", "24", "4294967288"}) {
    std::string spoiled = text;
    spoiled.replace(spoiled.find("tile 4096"), 9, std::string("tile ") + wrong);
    EXPECT_NE(refusal_of([&] { plan_from_text(spoiled); }).find("(rule tile)"), std::string::npos) << wrong;
  }
  text.replace(text.find("tile 4096"), 9, "tile many");
  EXPECT_NE(refusal_of([&] { plan_from_text(text); }).find("the bytes of a tile"), std::string::npos);
}

TEST(Tile, FitsIntoAMessageUnlessItIsReadInPlace) {
  PlanHeader header{};
  header.largest_chunks = 3;
  EXPECT_EQ(tile_bytes_of(header, 1000), 320u);
  header.tile_bytes = 64;
  EXPECT_EQ(tile_bytes_of(header, 1000), 64u);
  header.tile_bytes = 4096;
  EXPECT_EQ(tile_bytes_of(header, 1000), 320u);
  header.protocol = Protocol::kPackets;
  EXPECT_EQ(tile_bytes_of(header, 1000), 320u);
  header.protocol = Protocol::kPull;
  EXPECT_EQ(tile_bytes_of(header, 1000), 4096u);
  header.tile_bytes = 0;
  EXPECT_EQ(tile_bytes_of(header, 1000), 320u);
}

}  // namespace
}  // namespace starling
