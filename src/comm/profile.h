// Automated profiling of the scheduling parameters (DFCCL §4.3).
#pragma once
#include <starling/starling.h>

#include "comm/context.h"

namespace starling {

// Measures what a wait costs on this machine (a poll, a switch to another thread and back, a sleep and its
// wake-up), and sets the context's budgets from it. A few milliseconds; nothing may be under way.
starling_scheduling profile_scheduling(Context& context);

}  // namespace starling
