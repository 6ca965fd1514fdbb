// A lane whose operations one graph has captured: a twin (docs/design/0019-cuda-graphs.md). What its replays
// are at, and what the graph's kernels point to. Guarded by the context's mutex.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace starling {

struct Flight;
class CaptureOrder;

// What a stream needs that is to wait for a captured operation.
struct CapturedPlace {
  uint64_t capture;  // StreamOperations::capture_of()
  const uint64_t* number;  // StartArguments::captured
};

struct Captures {
  struct Piece {
    std::byte* memory;
    uint64_t bytes;
  };

  uint64_t capture = 0;  // the number of it
  std::shared_ptr<std::atomic<bool>> dropped;  // no replay runs, and none can come
  uint64_t timeout_ns = 0;  // of a replay's operations
  CaptureOrder* order = nullptr;  // of its start kernels
  bool gate_asked = false;
  bool gate = false;  // a block may stay for operations that are held at birth
  bool told = false;  // that it broke
  uint32_t places = 0;  // of each ParkedRing, that its operations may take
  std::deque<Flight> operations;  // one replay's
  std::deque<uint64_t*> numbers;  // [operation]: the GPU's memory, StartArguments::captured
  std::vector<Piece> pieces;      // of the place's memory, that kernels of the graph read
  Piece scratch{nullptr, 0};      // the last of them; operations that use it are fenced

  // Operations of all replays, by their numbers.
  uint64_t first = 0;
  uint64_t begun = 0;  // up to here at the last look
  uint64_t completed = 0;
  uint64_t since_ns = 0;  // the oldest one under way is

  bool replaying() const { return begun != completed; }
  // `now_ns` may be a look before `since_ns`.
  bool timed_out(uint64_t now_ns) const { return replaying() && now_ns >= since_ns + timeout_ns; }
  bool may_replay() const { return !dropped->load(std::memory_order_acquire); }
};

}  // namespace starling
