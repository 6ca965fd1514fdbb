// Cases by seed: what the tests, `starling soak` and the mutation runs execute.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "machine/sim/simulation.h"

namespace starling::sim {

enum class Campaign : uint8_t {
  kDfccl1 = 0,        // program 1 of DFCCL §6.1, one iteration, counts divided by 64
  kDfccl2 = 1,        // program 2, likewise
  kRandom = 2,        // random programs
  kDeath = 3,         // random programs, one rank dies: the others end within the timeout
  kMixed = 4,         // all but those of full size in turn: turn_in_mixed()
  kDfccl1Full = 5,    // 200 iterations at full size
  kDfccl2Full = 6,
  kStreams = 7,       // programs with streams (stream_program.h), the kinds in their order ...
  kStreamsSync = 8,
  kStreamsOneQueue = 9,
  kStreamsFullQueue = 10,
  kStreamsFewSms = 11,
  kStreamsOne = 12,
  kStreamsGraphs = 13,
  kStreamsInDriver = 14,
  kStreamsDeath = 15,  // ... of any kind, and one rank dies: every stream is released
  kStreamsMixed = 16,  // the nine in turn
  kHosts = 17,        // programs with streams, the ranks on two or three hosts; no graphs
  kHostsDeath = 18,   // ... and one rank dies
  kCopies = 19,       // lanes of copies beside lanes of kernels (copy_program.h)
};
inline constexpr uint32_t kCampaignCount = 20;
inline constexpr uint32_t kStreamCampaignCount = 9;
const char* campaign_name(Campaign campaign);
std::optional<Campaign> campaign_named(std::string_view name);
// The four without streams, and between them the nine with; of sixteen, one between hosts, and one with
// copies.
Campaign turn_in_mixed(uint64_t seed);

struct Case {
  Program program;
  Options options;
  uint64_t seed;
};

Case draw_case(Campaign campaign, uint64_t seed, PlanCache& plans);

// The smallest case that was found to fail like `failing` does, within so many runs. Deterministic.
struct Shrunk {
  Case smallest;
  Report report;
  uint32_t runs;
};
Shrunk shrink(Simulation& simulation, const Case& failing, uint32_t run_limit = 3000);

// The execution of a case as a person reads it: the program, what differs from a calm machine, the last
// events, and the failure.
std::string story(Simulation& simulation, const Case& told, uint32_t last_events = 60);

}  // namespace starling::sim
