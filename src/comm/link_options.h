// What the settings say about links to other hosts.
#pragma once
#include "base/env.h"
#include "link/carry/proxy.h"

namespace starling {

// shadow_bytes: address space for each peer. Throws Error(invalid_argument).
link::carry::ProxyOptions link_options(const Settings& settings, uint64_t shadow_bytes);

}  // namespace starling
