// A rank of another host, as this one's host sees it: a segment like a neighbour's, which our proxy owns.
// What our host writes there it carries away; what it hears of the peer it writes there. The connectors are
// elsewhere (channels.h).
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
