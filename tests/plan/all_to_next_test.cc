// Goal: AllToNext as made here is right for any ranks, nodes and blocks, crosses between nodes over all
// links, and is proved by what it says its outputs hold: every instruction that is missing or changed is
// refused. Method: a sweep of plans; the text of each with one instruction left out, and with one operand
// changed.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "plan/builder.h"
#include "plan/generate.h"
#include "plan/refusals.h"
#include "plan/text.h"

namespace starling {
namespace {

Plan made(const std::string& name, std::uint32_t ranks, std::uint32_t blocks = 1, bool in_place = false) {
  return generate(name, {Collective::kCustom, ranks, 0, blocks, in_place});
}

TEST(AllToNext, SaysWhatItIsProvedBy) {
  for (const std::uint32_t ranks : {1u, 2u, 3u, 4u, 7u, 12u, 64u, 257u}) {
    for (const std::uint32_t blocks : {1u, 3u}) {
      for (const char* name : {"all_to_next", "all_to_next_direct"}) {
        const Plan plan = made(name, ranks, blocks);
        ASSERT_TRUE(plan.postcondition());
        ASSERT_EQ(plan.postcondition()->size(), ranks - 1);
        const std::uint32_t chunks = plan.header(0)->chunks_per_group;
        for (std::uint32_t r = 1; r < ranks; ++r)
          EXPECT_EQ((*plan.postcondition())[r - 1], (Holding{r, 0, chunks, {{r - 1, 0}}}));
      }
    }
  }
}

// Chunks by sender and receiver.
std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> sent(const Plan& plan) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> chunks;
  for (std::uint32_t r = 0; r < plan.rank_count(); ++r) {
    const PlanView view = plan.view(r);
    for (std::uint32_t b = 0; b < view.header->block_count; ++b) {
      const BlockPlan& block = view.blocks()[b];
      for (std::uint32_t k = 0; k < block.instruction_count; ++k) {
        const Instruction& i = view.instructions()[block.instruction_first + k];
        for (std::uint32_t s = 0; s < i.send_count; ++s)
          chunks[{r, view.connections()[block.send_first + i.send_first + s].peer}] += i.chunks;
      }
    }
  }
  return chunks;
}

TEST(AllToNext, UsesEveryLinkBetweenTwoNodesForAPart) {
  for (const auto& [ranks, nodes] : {std::pair{4u, 2u}, {6u, 2u}, {6u, 3u}, {12u, 3u}, {64u, 8u}}) {
    const std::uint32_t size = ranks / nodes;
    std::uint32_t crossing = 0;
    for (const auto& [ends, chunks] : sent(made("all_to_next:" + std::to_string(nodes), ranks, 2))) {
      const auto& [from, to] = ends;
      if (from / size == to / size) continue;
      EXPECT_EQ(to, from + size);
      EXPECT_EQ(chunks, 2u) << from;  // of 2 * size: one for each block
      ++crossing;
    }
    EXPECT_EQ(crossing, ranks - size);
  }
}

TEST(AllToNext, OfNodesOfOneRankGoesStraight) {
  EXPECT_EQ(sent(made("all_to_next:5", 5)), sent(made("all_to_next_direct", 5)));
  EXPECT_EQ(sent(made("all_to_next", 7)), sent(made("all_to_next_direct", 7)));  // no fewer nodes divide 7
}

TEST(AllToNext, IsOfTheRanksAsNumbered) {
  PlanRequest request{Collective::kCustom, 6};
  const std::uint64_t hash = generate("all_to_next", request).hash();
  request.order = {4, 1, 0, 5, 3, 2};
  EXPECT_EQ(generate("all_to_next", request).hash(), hash);
}

// The text's lines, and which of them are instructions.
struct Lines {
  std::vector<std::string> all;
  std::vector<std::size_t> instructions;

  explicit Lines(const std::string& text) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line); all.push_back(line))
      if (line.starts_with("    ")) instructions.push_back(all.size());
  }

  std::string joined() const {
    std::string text;
    for (const std::string& line : all) text += line + "\n";
    return text;
  }

  // With each block's instructions numbered anew.
  std::string text() const {
    std::string text;
    int index = 0;
    for (const std::string& line : all) {
      if (line.empty()) continue;
      const bool is_instruction = line.starts_with("    ");
      if (!is_instruction) index = 0;
      text += is_instruction ? std::to_string(index++) + line.substr(line.find(' ', 4)) : line;
      text += "\n";
    }
    return text;
  }
};

std::vector<Plan> small_plans() {
  std::vector<Plan> plans;
  for (const bool in_place : {false, true}) {
    for (const auto& [name, ranks] : {std::pair{"all_to_next:2", 4u},
                                      {"all_to_next:3", 6u},
                                      {"all_to_next:2", 6u},
                                      {"all_to_next:4", 12u},
                                      {"all_to_next_direct", 3u}})
      for (const std::uint32_t blocks : {1u, 2u}) plans.push_back(made(name, ranks, blocks, in_place));
  }
  plans.push_back(made("all_to_next_direct_packets", 3));
  plans.push_back(made("all_to_next_direct_pull", 3));
  return plans;
}

TEST(AllToNext, LacksNoInstruction) {
  for (const Plan& plan : small_plans()) {
    const Lines lines(to_text(plan));
    ASSERT_EQ(refusal_of(lines.text()), "");
    for (const std::size_t n : lines.instructions) {
      Lines without = lines;
      without.all[n].clear();
      EXPECT_NE(refusal_of(without.text()), "") << plan.name() << " without" << lines.all[n];
    }
  }
}

// Another chunk of the same length is read, written or measured; another peer is sent to or received from.
TEST(AllToNext, NoOperandCanBeAnother) {
  for (const Plan& plan : small_plans()) {
    const Lines lines(to_text(plan));
    const std::string chunks = std::to_string(plan.header(0)->chunks_per_group);
    for (const std::size_t n : lines.instructions) {
      const std::string& line = lines.all[n];
      for (std::size_t at = 0; at < line.size(); ++at) {
        if (std::string("[<>").find(line[at]) == std::string::npos || line.compare(at - 1, 3, "-> ") == 0)
          continue;
        std::size_t end = at + 1;
        while (end < line.size() && std::isdigit(line[end])) ++end;
        const std::uint32_t value = std::uint32_t(std::stoul(line.substr(at + 1, end - at - 1)));
        for (std::uint32_t other = 0;
             other < (line[at] == '[' ? plan.header(0)->chunks_per_group : plan.rank_count()); ++other) {
          if (other == value || line[end] == ':') continue;  // slices of several aside
          Lines changed = lines;
          changed.all[n].replace(at + 1, end - at - 1, std::to_string(other));
          EXPECT_NE(refusal_of(changed.text()), "") << plan.name() << ":" << changed.all[n];
        }
      }
    }
  }
}

// Lengths and messages are right: what the outputs must hold alone tells that a rank gives its own for
// another's.
TEST(AllToNext, NoRankPassesOnItsOwn) {
  for (const Plan& plan : small_plans()) {
    if (plan.in_place()) continue;  // its own may be overwritten by then, which is refused before
    const Lines lines(to_text(plan));
    for (const std::size_t n : lines.instructions) {
      const std::string& line = lines.all[n];
      if (line.find("recv_send") == std::string::npos) continue;
      const std::string from = line.substr(line.find('<'), line.find(" ->") - line.find('<'));
      const std::string to = line.substr(line.find("-> >") + 3, line.find(" size") - line.find("-> >") - 3);
      const std::string chunk = line.substr(line.find("output") + 6);
      Lines changed = lines;
      changed.all[n] = "    0 recv " + from + " -> scratch[0] size output" + chunk + "\n    0 send input" +
                       chunk + " -> " + to + " size input" + chunk;
      std::size_t rank = n;
      while (!changed.all[rank].starts_with("rank")) --rank;
      changed.all[rank].replace(changed.all[rank].find("scratch 0"), 9, "scratch 1");
      EXPECT_NE(refusal_of(Lines(changed.joined()).text()).find("(rule postcondition)"), std::string::npos)
          << plan.name() << ":" << changed.all[n] << "\n"
          << refusal_of(Lines(changed.joined()).text());
    }
  }
}

TEST(AllToNext, MisuseNamesTheRemedy) {
  const auto refused = [](const char* name, std::uint32_t ranks, const char* why) {
    try {
      made(name, ranks);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE((std::string(error.what()) + error.remedy()).find(why), std::string::npos)
          << error.what() << error.remedy();
    }
  };
  refused("all_to_next:3", 4, "which 4 ranks cannot be");
  refused("all_to_next_direct:2", 4, "knows no nodes");
  refused("next", 4, "use all_to_next, all_to_next_direct");
}

}  // namespace
}  // namespace starling
