// The same operation again and again, in one lane and on one stream.
#pragma once
#include <string>

#include "machine/sim/campaign.h"
#include "machine/sim/stream_program.h"

namespace starling::sim {

inline Case on_one_stream(uint64_t seed, const std::string& name, const CallSpec& call) {
  Case drawn{{}, stream_options(StreamKind::kOneStream, seed), seed};
  LaneSpec lane;
  for (uint32_t r = 0; r < call.plan->rank_count(); ++r) lane.ranks.push_back(r);
  lane.calls = {call};
  drawn.program.name = name;
  drawn.program.rank_count = call.plan->rank_count();
  drawn.program.streams = 1;
  drawn.program.lanes = {lane};
  drawn.program.steps.assign(drawn.program.rank_count, std::vector<Step>(4, Step{StepKind::kStart, 0}));
  return drawn;
}

}  // namespace starling::sim
