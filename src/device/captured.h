// The number that a captured operation has in this replay, and its place in the lane's rings
// (docs/design/0019-cuda-graphs.md). Only the leader of a start kernel's block calls these.
//
//   take a number ── the place is free ───────────────────────────────────────────▶ enter
//     │
//     │ its last operation is under way still
//     ├── the first block to find that waits ── it is free ──▶ park what others have left, and enter
//     │                                     └── the flag is poisoned: the lane is broken ──▶ close the lane
//     └── the others leave, and give their places on the GPU back: the daemon may need them to end what
//         has the place
//
// In a closed lane nothing begins any more. Its blocks leave, and gates find the poison.
#pragma once
#include "device/machine.h"
#include "wire/handover.h"
#include "wire/operation.h"

namespace starling::device {

// What a block has to do with the operation.
enum class Entrance : uint32_t {
  kEnters = 0,
  kEntersForAll = 1,  // and for blocks that have left
  kLeaves = 2,
};

template <class M>
class CapturedNumber {
 public:
  // `finished`: Lane::finished; `blocks`: the operation's.
  STARLING_HOST_DEVICE CapturedNumber(M& machine, const Handover& handover, const uint64_t* finished,
                                      uint32_t blocks)
      : m_(machine), handover_(handover), finished_(finished), blocks_(blocks) {}

  // The lane's start kernels run one after the other, so all blocks of one find the same number; the last
  // that comes makes it the next one. Relaxed: their stream orders them, as it does who reads `captured`; the
  // host only looks whether anything is under way.
  STARLING_HOST_DEVICE Entrance take(uint64_t* captured) {
    uint64_t* issued = &first().issued;
    const uint64_t before = blocks_ == 1 ? m_.load_relaxed(issued) : m_.add_relaxed(issued, 1);
    number_ = before % kClosed / kIssued;
    const bool closed = before >= kClosed;
    if (closed)
      m_.store_relaxed(issued, kClosed + number_ * kIssued);  // nobody counts any more
    else if (before % kIssued + 1 == blocks_)
      m_.store_relaxed(issued, (number_ + 1) * kIssued);
    if (m_.block_index() == 0) m_.store_relaxed(captured, number_);
    if (closed) return Entrance::kLeaves;
    if (!has_place()) return await_place();
    begin();
    return Entrance::kEnters;
  }

  STARLING_HOST_DEVICE uint64_t number() const { return number_; }

  // Of those that entered for all: has the block of the part left?
  STARLING_HOST_DEVICE static bool has_left(M& m, const Turn& turn, uint64_t number) {
    return m.load_relaxed(&turn.left) == number + 1;
  }

  STARLING_HOST_DEVICE static void put_into(Operation& operation, uint64_t number, uint32_t width) {
    operation.sequence = number;
    operation.finished_target = finished_before(number, width) + width;
    operation.previous_target = finished_before(number - 1, width) + width;
  }

 private:
  // What the place has counted when operation `number` comes to it: every part, in each one before.
  STARLING_HOST_DEVICE static uint64_t finished_before(uint64_t number, uint32_t width) {
    return number / M::kLaneDepth * width;
  }

  STARLING_HOST_DEVICE Turn& first() const { return handover_.turns[0]; }

  // No host has seen to it that the place is free. Mostly it is, long since.
  STARLING_HOST_DEVICE bool has_place() {
    // Acquire: pairs with are_last(): nobody looks at the operation that had the place.
    const uint64_t finished = m_.load_acquire(&finished_[number_ % M::kLaneDepth]);
    return reached(finished, finished_before(number_, handover_.width));
  }

  // What had the place names at most number - depth + 1 there: so the host has released all who wait.
  STARLING_HOST_DEVICE bool is_poisoned() {
    return reached(m_.load_relaxed(&handover_.done[number_ % M::kLaneDepth].done), number_ + 1);
  }

  // Relaxed: as in take().
  STARLING_HOST_DEVICE void begin() {
    if (m_.block_index() == 0) m_.store_relaxed(handover_.begun, number_ + 1);
  }

  STARLING_HOST_DEVICE Entrance await_place() {
    uint32_t before = 0;
    if (!join(before)) {
      for (uint32_t attempt = 0; !has_place(); ++attempt) m_.pause(attempt);
      begin();
      return Entrance::kEnters;
    }
    if (before != 0) {
      m_.store_relaxed(&handover_.turns[m_.block_index()].left, number_ + 1);
      return Entrance::kLeaves;
    }
    for (uint32_t attempt = 0; !has_place(); ++attempt) {
      if (is_poisoned() && close()) return Entrance::kLeaves;
      m_.pause(attempt);
    }
    return enter_for_all();
  }

  // Joins those that wait, of whom so many came before. False: the first of them has seen that the place is
  // free, and looks after nobody who comes now.
  STARLING_HOST_DEVICE bool join(uint32_t& before) {
    uint64_t* waiting = &first().waiting;
    for (;;) {
      const uint64_t seen = m_.load_relaxed(waiting);
      before = seen / kIssued == number_ + 1 ? uint32_t(seen % kIssued) : 0;  // else it is of an older number
      if (before >= kPlaceIsFree) return false;
      if (m_.compare_exchange(waiting, seen, (number_ + 1) * kIssued + before + 1) == seen) return true;
    }
  }

  // By the first that waited. Blocks that come from now on find the place themselves.
  STARLING_HOST_DEVICE Entrance enter_for_all() {
    uint64_t* waiting = &first().waiting;
    uint64_t seen;
    do seen = m_.load_relaxed(waiting);
    while (m_.compare_exchange(waiting, seen, seen + kPlaceIsFree) != seen);
    const auto others = uint32_t(seen % kIssued) - 1;
    // They are about to say who they are: nothing keeps them from it.
    for (uint32_t attempt = 0; count_left() != others; ++attempt) m_.pause(attempt);
    if (m_.block_index() != 0 && has_left(m_, first(), number_))
      m_.store_relaxed(handover_.begun, number_ + 1);
    begin();
    return others == 0 ? Entrance::kEnters : Entrance::kEntersForAll;
  }

  STARLING_HOST_DEVICE uint32_t count_left() {
    uint32_t count = 0;
    for (uint32_t b = 0; b < blocks_; ++b) count += has_left(m_, handover_.turns[b], number_);
    return count;
  }

  // By the first that waited: true if none of the operation's blocks has begun, and none will. Who came and
  // does not wait may have found the place, or is about to join; who comes meanwhile changes `issued`.
  STARLING_HOST_DEVICE bool close() {
    uint64_t* issued = &first().issued;
    const uint64_t seen = m_.load_relaxed(issued);
    const uint64_t came = seen / kIssued == number_ ? seen % kIssued : blocks_;
    // Acquire: pairs with the exchange in join(); who has joined has come in the `issued` that we change,
    // too.
    if (m_.load_acquire(&first().waiting) % kIssued != came) return false;
    return m_.compare_exchange_relaxed(issued, seen, kClosed + number_ * kIssued) == seen;
  }

  M& m_;
  const Handover& handover_;
  const uint64_t* finished_;
  uint32_t blocks_;
  uint64_t number_ = 0;
};

}  // namespace starling::device
