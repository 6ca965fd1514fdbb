// Packets of many tiles on one stream: their slots come round, and whoever sends waits for credit. Beside the
// campaigns, whose operations of packets are mostly too short.
#pragma once
#include <string>

#include "machine/sim/campaign.h"
#include "sim/one_stream.h"

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
      {"split_packets", {.collective = Collective::kBroadcast, .rank_count = 3}},
      {"split_packets", {.collective = Collective::kReduce, .rank_count = 3}},
  };
  const auto& kind = kinds[random.below(std::size(kinds))];
  const uint32_t threads = 2 + uint32_t(random.below(3));
  Case drawn =
      on_one_stream(seed, std::string(kind.algorithm) + " of many tiles",
                    {.plan = plans.get(kind.algorithm, kind.request), .count = 80 + random.below(200)});
  drawn.options.threads = threads;
  drawn.options.packet_bytes = 32;
  return drawn;
}

}  // namespace starling::sim
