// How ranks find each other when a communicator is made.
//
//   every rank      arena := its introduction     waits for everybody's arena, maps them
//   all but rank 0  joined := the group's key     waits for rank 0's "complete"
//   rank 0          waits for everybody's joined  complete := the group's key
//
// Nobody goes on (and perhaps leaves again) before all have found each other. In a store of our own everybody
// takes back what it has set, and what rank 0 waits for is never taken back before it was read: "joined" goes
// when "complete" was read, "complete" when every "joined" has gone.
#pragma once
#include <string>
#include <vector>

#include "comm/context.h"
#include "comm/store.h"

namespace starling {

struct CommOptions {
  uint32_t rank;
  uint32_t size;
  std::string name;
  int64_t timeout_ns;  // of joining, and of operations without their own
  int (*interrupted)(void* user) = nullptr;  // asked while it waits; not 0: give up
  void* user = nullptr;
};

struct Group {
  std::vector<Member> members;
  LaneKey key;  // the same on all ranks, another for every group
};

// Collective. Throws Error: timeout, naming the rank that did not come; peer_failed for one that died
// meanwhile; mismatch for one that means another group; aborted when interrupted.
Group join_group(Context& context, const CommOptions& options, Store& store);

}  // namespace starling
