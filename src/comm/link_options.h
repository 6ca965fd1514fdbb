// What the settings say about links to other hosts.
#pragma once
#include "base/env.h"
#include "link/carry/proxy.h"

namespace starling {

// shadow_bytes: address space for each peer. device: the PCI address of the rank's GPU; "": none. Throws
// Error(invalid_argument).
link::carry::ProxyOptions link_options(const Settings& settings, uint64_t shadow_bytes,
                                       const std::string& device);

}  // namespace starling
