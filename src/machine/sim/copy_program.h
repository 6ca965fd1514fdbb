// Programs with lanes of copies (docs/design/0020-sm-free.md) beside lanes of kernels, in the same streams.
#pragma once
#include "machine/sim/campaign.h"

namespace starling::sim {

Case copies_case(uint64_t seed, PlanCache& plans);

}  // namespace starling::sim
