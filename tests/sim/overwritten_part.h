// A rank's own part goes where the peer's comes next. In a bound program of pulls it is copied beside what
// comes (BoundPull::own_part_goes_along()), but not here. Beside the campaigns, whose plans keep every part.
#pragma once
#include <memory>
#include <string>

#include "machine/sim/campaign.h"
#include "machine/sim/stream_program.h"
#include "plan/text.h"

namespace starling::sim {

inline std::shared_ptr<const Plan> plan_that_overwrites() {
  std::string text =
      "starling-plan 2\nname overwritten\ncollective custom\nranks 2\nroot 0\nin_place 0\nprotocol pull\n"
      "chunks_per_group 1\ngroups 1 1\nholds 0 output[0] 1.0\nholds 1 output[0] 0.0\n";
  for (const std::string rank : {"0", "1"}) {
    const std::string peer = rank == "0" ? "1" : "0";
    text += "rank " + rank + " scratch 0\n  block 0\n    0 send input[0] -> >" + peer +
            ".0 size input[0]\n    1 copy input[0] -> output[0] size output[0]\n    2 recv <" + peer +
            ".0 -> output[0] size output[0]\n";
  }
  return std::make_shared<const Plan>(plan_from_text(text));
}

inline Case overwritten_part(uint64_t seed) {
  static const std::shared_ptr<const Plan> plan = plan_that_overwrites();
  Random random(seed, 24);
  Case drawn{{}, stream_options(StreamKind::kOneStream, seed), seed};
  LaneSpec lane;
  lane.ranks = {0, 1};
  lane.calls = {{.plan = plan, .count = 1 + random.below(600), .origins = {{{1, 0}}, {{0, 0}}}}};
  drawn.program.name = "a part that is overwritten";
  drawn.program.rank_count = 2;
  drawn.program.streams = 1;
  drawn.program.lanes = {lane};
  drawn.program.steps.assign(2, std::vector<Step>(8, Step{StepKind::kStart, 0}));
  return drawn;
}

}  // namespace starling::sim
