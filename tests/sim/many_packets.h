// Packets of many tiles on one stream: their slots come round, and whoever sends waits for credit. Beside the
// campaigns, whose operations of packets are mostly too short.
#pragma once
#include <string>

#include "machine/sim/campaign.h"
#include "machine/sim/stream_program.h"

namespace starling::sim {

inline Case many_packets(uint64_t seed, PlanCache& plans) {
  Random random(seed, 27);
  const struct {
    const char* algorithm;
    PlanRequest request;
  } kinds[] = {
      {"one_shot_packets", {.collective = Collective::kAllReduce, .rank_count = 2}},
      {"one_shot_packets", {.collective = Collective::kAllReduce, .rank_count = 3}},
      {"two_shot_packets", {.collective = Collective::kAllReduce, .rank_count = 2}},
      {"direct_packets", {.collective = Collective::kReduce, .rank_count = 3}},
      {"direct_packets", {.collective = Collective::kBroadcast, .rank_count = 3}},
      {"chain_packets", {.collective = Collective::kBroadcast, .rank_count = 3}},
      {"chain_packets", {.collective = Collective::kReduce, .rank_count = 3}},
  };
  const auto& kind = kinds[random.below(std::size(kinds))];
  Case drawn{{}, stream_options(StreamKind::kOneStream, seed), seed};
  drawn.options.threads = 2 + uint32_t(random.below(3));
  drawn.options.packet_bytes = 32;
  LaneSpec lane;
  for (uint32_t r = 0; r < kind.request.rank_count; ++r) lane.ranks.push_back(r);
  lane.calls = {{.plan = plans.get(kind.algorithm, kind.request), .count = 80 + random.below(200)}};
  drawn.program.name = std::string(kind.algorithm) + " of many tiles";
  drawn.program.rank_count = kind.request.rank_count;
  drawn.program.streams = 1;
  drawn.program.lanes = {lane};
  drawn.program.steps.assign(drawn.program.rank_count, std::vector<Step>(4, Step{StepKind::kStart, 0}));
  return drawn;
}

}  // namespace starling::sim
