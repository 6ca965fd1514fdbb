// An operation whose buffers processes on GPUs read where they lie: peers are told what its buffers are, or
// get memory that they can open instead.
#pragma once
#include <string>

#include "comm/lowering.h"
#include "machine/place.h"

namespace starling {

// Registers what messages will name. What peers cannot open bounces: blocks copy it to memory that `lowered`
// keeps from now on. Calls of the driver: on the caller's thread, and without the context's lock. Returns why
// it cannot be; "" if all is well. The place outlives `lowered`.
std::string offer_to_peers(Place& place, Lowered& lowered);

}  // namespace starling
