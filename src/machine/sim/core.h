// The code under test as the simulator calls it: the templates of src/device, made for SimMachine. Tests put
// mutated copies of those headers in its place (docs/MUTATIONS.md).
#pragma once
#include <cstddef>
#include <cstdint>

#include "machine/sim/machine.h"
#include "wire/daemon.h"

namespace starling::sim {

// One residency of a daemon: device::DaemonArguments and the block's fast memory.
struct Residency {
  DaemonMemory* daemon;
  void* completions;  // device::CompletionMemory
  uint32_t completion_kind;
  uint64_t launch;
  std::byte* pool_base;
  void* block_state;
};

struct Core {
  const char* name;
  size_t block_state_bytes;
  LeaveReason (*run)(SimMachine&, const Residency&);
  bool (*push)(SimMachine&, SubmissionRing&, uint32_t block_count, const Submission&);
  bool (*pop)(SimMachine&, uint32_t kind, void* completions, uint64_t& token);
};

// What users run.
const Core& shipped_core();

}  // namespace starling::sim
