// How large messages between processes go: through slots, or read where they lie. Which is faster is the
// machine's (docs/design/0009-large-messages-between-processes.md), so it is timed, once for each process
// that is rank 0 of a group.
#pragma once
#include <cstdint>
#include <optional>

namespace starling {

// Of one all_gather of 512 KiB, the slowest rank's, on a machine that does nothing else meanwhile.
struct LargeMessageTimes {
  uint64_t slots_ns = 0;
  uint64_t read_ns = 0;
};

// What an earlier group of this process found. Any thread.
std::optional<LargeMessageTimes> known_times();

}  // namespace starling
