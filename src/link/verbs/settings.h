// What can be set about queue pairs.
#pragma once
#include <cstdint>

namespace starling::link::verbs {

struct QueuePairSettings {
  uint32_t count = 1;  // of a path, as the flow's sender says; at most kMaxQueuePairs
  uint8_t timeout = 14;  // of an acknowledgement: 4.096 us * 2^timeout
  uint8_t retries = 6;  // at most: 7 are infinitely many to Soft-RoCE
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
};

}  // namespace starling::link::verbs
