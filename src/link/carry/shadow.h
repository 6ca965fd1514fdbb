// A rank of another host, as the ranks of this process see it: a segment like a neighbour's, which our proxy
// owns. What our hosts and blocks write there it carries away; what it hears of the peer it writes there.
//
// The connectors in it are staging: our blocks write messages into slots of the same numbers as the peer's,
// and grants into credits like the peer's. Slot k is free again when the peer has granted it again: then the
// message in it was read there, so it had landed, and what landed no path reads again.
#pragma once
#include <memory>
#include <string>

#include "machine/cpu/arena.h"
#include "wire/carried.h"
#include "wire/lane_layout.h"

namespace starling::link::carry {

struct RemoteRank {
  std::string arena;  // name of its segment, on its own host
  uint32_t rank = 0;  // in the communicator that met it first, for messages
  uint32_t pid = 0;
  uint64_t process_nonce = 0;
  uint64_t pool_slots = 0;
  uint64_t pool_slot_bytes = 0;
  uint64_t blocks = 0;
};

class Shadow {
 public:
  // event_fd: of the proxy, rung when something was stored here.
  Shadow(const RemoteRank& remote, uint64_t bytes, int event_fd);

  const std::string& name() const { return arena_.name(); }
  ArenaHeader* header() const { return arena_.header(); }
  std::byte* at(uint64_t offset) const { return arena_.at(offset); }

  LaneShared* open(const OpenRecord& record);
  void unpublish(const LaneShared* lane, uint64_t key_low, uint64_t key_high);
  // Nobody here uses it any more.
  void release(LaneShared* lane);

  // The peer has left in order, or is lost.
  void close(bool in_order);

  // The proxy's place at both doors, or a helper's that sleeps in the proxy. listen(), a look at everything,
  // then sleep; silence() after.
  void listen();
  void silence();

 private:
  cpu::Arena arena_;
};

}  // namespace starling::link::carry
