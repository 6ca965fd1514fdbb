// How ranks find each other when a communicator is made.
//
//   every rank      claims to be this rank, as long as its communicator lives
//   every rank      arena := its introduction     waits for everybody's arena, maps them, tries to read them
//   all but rank 0  joined := key, what it saw    waits for rank 0's "complete"
//   rank 0          waits for everybody's joined  complete := key, what all saw; what it knows of times, and
//                                                 in what order rings pass the hosts
//
// A rank that cannot come says so, and why, in the place of its introduction.
//
// Nobody goes on (and perhaps leaves again) before all have found each other. Everybody takes back what it
// has set, and what somebody waits for is never taken back before it was read: "joined" goes when "complete"
// was read, "complete" when every "joined" has gone; and nobody goes on before that. So a next group of this
// name finds nothing of this one, however early it begins. (A caller's store that cannot take keys back is
// left as it is: names are used there once.)
//
// Of two jobs of one name a rank of one may find ranks of the other, and such a group is whole. But then both
// jobs have a rank that is left over, and its claim is refused while the other job's rank of that number
// lives. So no two such jobs run on in silence.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "comm/context.h"
#include "comm/large_messages.h"
#include "comm/store.h"

namespace starling {

struct CommOptions {
  uint32_t rank;
  uint32_t size;
  std::string name;
  int64_t timeout_ns;  // of joining, and of operations without their own
  int (*interrupted)(void* user) = nullptr;  // asked while it waits; not 0: give up
  void* user = nullptr;
  std::optional<SmFree> sm_free = {};  // none: the setting's, on GPUs
  std::vector<uint32_t> world_ranks = {};  // what messages call the ranks; empty: as they are
  uint32_t named(uint32_t of) const { return world_ranks.empty() ? of : world_ranks[of]; }
};

struct Group {
  std::vector<Member> members;
  LaneKey key;  // the same on all ranks, another for every group
  // The same on all ranks, as what they choose by it must be.
  bool readable = false;  // every rank may read every other's memory
  bool own_cores = false;  // there is a core for each
  bool always_reads = false;  // STARLING_PULL=1, on every rank
  bool opens = false;  // on GPUs: every rank's blocks may read what every other one registers; where that is
                       // faster, or whatever is large if `always_reads`
  std::optional<LargeMessageTimes> times;  // as rank 0 knew them from an earlier group
  bool subgroup = false;  // of another communicator
  SmFree sm_free = SmFree::kNever;  // messages may go by copy engines: every rank wants it, and can
  bool device_set = false;  // of registered collectives, and of nothing else
};

// Collective. Throws Error: timeout, naming the rank that did not come; peer_failed for one that died
// meanwhile; mismatch for one that means another group; aborted when interrupted.
Group join_group(Context& context, const CommOptions& options, Store& store);

// By a rank that has no context to join with: the others are told the reason.
void decline_group(const CommOptions& options, Store& store, const std::string& reason);

}  // namespace starling
