// Rings and chains of puts of many tiles: scratch that tiles have in turn, and places lent a tile ahead.
// Beside the campaigns, whose operations are mostly too short for that.
#pragma once
#include <string>

#include "machine/sim/campaign.h"
#include "plan/generate.h"
#include "sim/one_stream.h"

namespace starling::sim {

inline Case long_puts(uint64_t seed) {
  Random random(seed, 26);
  const struct {
    const char* algorithm;
    PlanRequest request;
  } kinds[] = {
      {"ring_put", {.collective = Collective::kAllReduce, .rank_count = 2, .in_place = true}},
      {"ring_put", {.collective = Collective::kAllReduce, .rank_count = 3}},
      {"ring_put", {.collective = Collective::kReduceScatter, .rank_count = 3}},
      {"chain_put", {.collective = Collective::kReduce, .rank_count = 2}},
      {"chain_put", {.collective = Collective::kReduce, .rank_count = 3, .in_place = true}},
      {"chain_put", {.collective = Collective::kBroadcast, .rank_count = 3}},
  };
  const auto& kind = kinds[random.below(std::size(kinds))];
  const uint32_t threads = 3 + uint32_t(random.below(2));
  const std::string tiles = "@" + std::to_string(512 << random.below(2));
  Case drawn =
      on_one_stream(seed, std::string(kind.algorithm) + " of many tiles",
                    {.plan = std::make_shared<const Plan>(generate(kind.algorithm + tiles, kind.request)),
                     .count = 1500 + random.below(4000)});
  drawn.options.threads = threads;
  return drawn;
}

}  // namespace starling::sim
