// What a rank's proxy is to do for an operation of a lane of copies: device::CopyJob and its parts, without
// their namespace.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/copies.h"

namespace starling::sim {

class SimLane;

struct CopyPart {
  CopyOffer* offer;  // null: within the rank
  const std::byte* from;
  std::byte* to;
  uint64_t bytes;
  uint64_t offset = 0;  // of a piece in the peer's buffer
  uint32_t piece = 0;
  uint32_t pieces = 1;
  int32_t passes_on = -1;  // of CopyWork::receives
};

struct CopyWork {
  SimLane* lane;
  uint64_t index;  // of the operation in its lane
  uint64_t sequence;
  const uint64_t* fault;
  const uint64_t* mark;
  uint64_t* done;
  std::vector<CopyPart> sends, receives;
};

// A copy as a GPU's stream has it (Kernel::arguments).
struct CopyArguments {
  std::byte* to;
  const std::byte* from;
  uint64_t bytes;
};

}  // namespace starling::sim
