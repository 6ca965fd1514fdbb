// Which parts of its buffers a rank sends to whom, and from whom it receives which, in operations that only
// move data: what a rank's proxy does of them (docs/design/0020-sm-free.md).
#pragma once
#include <cstdint>
#include <vector>

#include "comm/lowering.h"

namespace starling {

struct Transfer {
  uint32_t peer;
  uint64_t from;  // offset into our input; of what is received 0
  uint64_t to;    // offset into our output; of what is sent 0
  uint64_t bytes;
  uint32_t pieces = 1;  // it goes in so many, of piece_bytes() each but the last
};

uint64_t piece_bytes(const Transfer& transfer);

struct Transfers {
  // To those behind this rank first: at any time every rank sends to another one, and none has two senders.
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  std::vector<Transfer> own;  // within this rank, if it is not there already: one, or none
  // What is sent is what is received, which there is one of: `from` is an offset into our output.
  bool passes_on = false;
};

// Every message of all_gather, all_to_all, broadcast, gather, scatter and send/recv goes to the one who needs
// it, once. Only a large broadcast to several is passed on, from each rank to the next, in pieces.
Transfers transfers_of(const Lowered& lowered, uint32_t rank, uint32_t size);

// What a rank that is alone in its group has to do of an operation.
struct OwnCopy {
  std::byte* to;
  const std::byte* from;
  uint64_t bytes;  // 0: it is there already
};
OwnCopy own_copy_of(const Lowered& lowered);

// Can copies alone do it, in whatever group? Not what reduces, and no all_to_all in place, where a peer's
// message would overwrite what has not been sent.
bool only_moves(const starling_operation& call);

// Of all ranks together, where every rank computes the same from its call; 0: they differ from rank to rank.
uint64_t moved_bytes(const starling_operation& call, uint32_t size);

}  // namespace starling
