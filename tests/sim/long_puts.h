// Rings and chains of puts of many tiles, with threads that serve those which move (device/bound_serve.h):
// scratch that tiles have in turn, and as many places lent as a connection has words for. Beside the
// campaigns, whose operations are mostly too short for that.
#pragma once
#include <string>

#include "machine/sim/campaign.h"
#include "machine/sim/stream_program.h"
#include "plan/generate.h"

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
  Case drawn{{}, stream_options(StreamKind::kOneStream, seed), seed};
  drawn.options.threads = 3 + uint32_t(random.below(2));
  LaneSpec lane;
  for (uint32_t r = 0; r < kind.request.rank_count; ++r) lane.ranks.push_back(r);
  const std::string tiles = "@" + std::to_string(512 << random.below(2));
  lane.calls = {{.plan = std::make_shared<const Plan>(generate(kind.algorithm + tiles, kind.request)),
                 .count = 1500 + random.below(4000)}};
  drawn.program.name = std::string(kind.algorithm) + " of many tiles";
  drawn.program.rank_count = kind.request.rank_count;
  drawn.program.streams = 1;
  drawn.program.lanes = {lane};
  drawn.program.steps.assign(drawn.program.rank_count, std::vector<Step>(4, Step{StepKind::kStart, 0}));
  return drawn;
}

}  // namespace starling::sim
