#include "machine/sim/campaign.h"

#include <array>

namespace starling::sim {
namespace {

constexpr std::array<const char*, kCampaignCount> kNames = {"dfccl1", "dfccl2",      "random",     "death",
                                                            "mixed",  "dfccl1-full", "dfccl2-full"};

Case dfccl_case(uint32_t program, bool full, uint64_t seed, PlanCache& plans) {
  Case drawn{{}, random_options(seed), seed};
  if (full) {
    // Slots as real ranks have them; the rest is as wild as ever.
    drawn.options.slot_bytes = 65536;
    drawn.options.pool_slots = 8;
    drawn.options.cell_bytes = 256;
  }
  drawn.program =
      dfccl_program({.program = program, .iterations = full ? 200u : 1u, .divisor = full ? 1u : 64u}, seed,
                    drawn.options, plans);
  return drawn;
}

// One rank dies at some time; whatever waited for it ends with an error when its time is up.
Case death_case(uint64_t seed, PlanCache& plans) {
  Case drawn{{}, random_options(seed), seed};
  drawn.program = random_program(seed, drawn.options, plans);
  Random random(seed, 5);
  drawn.options.dying_rank = int32_t(random.below(drawn.program.rank_count));
  drawn.options.dying_ns = random.skewed(300'000);
  drawn.options.timeout_ns = 2'000'000;
  return drawn;
}

}  // namespace

const char* campaign_name(Campaign campaign) { return kNames[uint32_t(campaign)]; }

std::optional<Campaign> campaign_named(std::string_view name) {
  for (uint32_t k = 0; k < kCampaignCount; ++k)
    if (name == kNames[k]) return Campaign(k);
  return std::nullopt;
}

Case draw_case(Campaign campaign, uint64_t seed, PlanCache& plans) {
  switch (campaign) {
    case Campaign::kDfccl1:
    case Campaign::kDfccl2: return dfccl_case(campaign == Campaign::kDfccl1 ? 1 : 2, false, seed, plans);
    case Campaign::kDfccl1Full:
    case Campaign::kDfccl2Full:
      return dfccl_case(campaign == Campaign::kDfccl1Full ? 1 : 2, true, seed, plans);
    case Campaign::kDeath: return death_case(seed, plans);
    case Campaign::kMixed: return draw_case(Campaign(seed % 4), seed, plans);
    default: break;
  }
  Case drawn{{}, random_options(seed), seed};
  drawn.program = random_program(seed, drawn.options, plans);
  return drawn;
}

}  // namespace starling::sim
