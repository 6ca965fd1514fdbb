// Passing a lane's parts between start kernels and the daemon (states and owners: wire/handover.h). Only the
// leader of a block calls these.
#pragma once
#include <cstddef>

#include "device/machine.h"
#include "wire/daemon.h"
#include "wire/operation.h"

namespace starling::device {

// Where a release is dear: a view of the machine whose releases are plain stores, since one fence has come
// before them all. What is stored through it says nothing of what is stored in between. Else the machine.
template <class M>
STARLING_HOST_DEVICE decltype(auto) fenced(M& m) {
  if constexpr (requires { m.fenced(); })
    return m.fenced();
  else
    return (m);
}

// The same where all that is released is in the memory of this GPU, and so is who acquires it: peers and the
// host see what its memory has. So do kernels of the program that are launched behind a host, or a stream,
// that has seen what is stored behind it, though they are of another memory domain (machine/cuda/domain.h):
// that is of the hardware, whose fence ends when its L2 has all, and not of the model, where a fence of the
// system would have to be here.
template <class M>
STARLING_HOST_DEVICE decltype(auto) fenced_here(M& m) {
  if constexpr (requires { m.fenced_here(); })
    return m.fenced_here();
  else
    return (m);
}

// Is it the operation's turn on this part? After true the part is the caller's.
template <class M>
STARLING_HOST_DEVICE bool has_turn(M& m, const Handover& handover, uint32_t part, uint64_t sequence) {
  // Acquire: pairs with the release in hand_on(); after it the part's context, progress and connector ends
  // are as the lane's earlier operation left them.
  return m.load_acquire(&handover.turns[part].next) == sequence;
}

// The operation is through with this part: it belongs to the lane's next operation. The last touch.
template <class M>
STARLING_HOST_DEVICE void hand_on(M& m, const Handover& handover, uint32_t part, uint64_t sequence) {
  // Release: all that we did with the part; pairs with the acquire in has_turn().
  m.store_release(&handover.turns[part].next, sequence + 1);
}

// The same by a block of a start kernel. The fence or release before `next` is one for both words: nobody
// trusts `ended` who has not begun after us, or is us (device/call.h).
template <class M>
STARLING_HOST_DEVICE void hand_on_in_stream(M& m, const Handover& handover, uint32_t part,
                                            uint64_t sequence) {
  m.store_relaxed(&handover.turns[part].ended, sequence + 1);
  hand_on(m, handover, part, sequence);
}

// Two releases in their order; where stores are bare (fenced()), both by one.
template <class M>
STARLING_HOST_DEVICE void store_both(M& m, uint64_t* first, uint64_t value) {
  if constexpr (requires { m.store_pair(first, value, value); }) {
    m.store_pair(first, value, value);
  } else {
    m.store_release(first, value);
    m.store_release(first + 1, value);
  }
}

// What is to be known of an operation when it ends.
struct Ending {
  uint64_t sequence;
  uint64_t finished_target;

  STARLING_HOST_DEVICE static Ending of(const Operation& operation) {
    return {operation.sequence, operation.finished_target};
  }
};

// Adds to the count of the operation's parts that are through. `handover`: the lane's, or null.
template <class M>
STARLING_HOST_DEVICE bool are_last(M& m, const Lane& lane, const Handover* handover, const Ending& operation,
                                   uint32_t parts) {
  uint64_t* finished = &lane.finished[operation.sequence % M::kLaneDepth];
  if (handover != nullptr && parts == handover->width) {
    // All parts at once: there is nobody to acquire from. Release: pairs with the acquire of an operation
    // that fences.
    m.store_release(finished, operation.finished_target);
    return true;
  }
  // Acquire and release: the last block to finish has what all blocks wrote, and hands it on by publishing.
  // After this the lane's entry may be used again as soon as the completion is read.
  return m.fetch_add(finished, parts) + parts == operation.finished_target;
}

// Counts so many parts as through. True for the last, who has what all blocks wrote, and has told streams of
// it, and the host if it is to hear of it so; unless true, the lane's memory is not touched again.
template <class M>
STARLING_HOST_DEVICE bool count_finished(M& m, const Lane& lane, const Handover* handover,
                                         const Ending& operation, uint32_t parts = 1) {
  const uint64_t sequence = operation.sequence;
  const uint32_t at = sequence % M::kLaneDepth;
  if (!are_last(m, lane, handover, operation, parts)) return false;
  if (handover == nullptr) return true;
  Done& done = handover->done[at];
  static_assert(offsetof(Done, told) == offsetof(Done, done) + sizeof(uint64_t));
  // Release: what the operation wrote; pairs with the acquires in StartKernel::hold() and of streams that
  // wait, and with the host's in was_told(). What the host is told comes last: then all of the lane may go.
  auto&& view = fenced(m);
  store_both(view, &done.done, sequence + 1);
  return true;
}

// Done::told beside a sequence number of its time: did its host add kWoken?
constexpr bool is_woken(uint64_t told, uint64_t sequence) {
  return int64_t(told - sequence) >= int64_t(kWoken / 2);
}

// By the host: is the operation, which began as a kernel, complete? Of captured ones a later one may have the
// place already.
template <class M>
bool was_told(M& m, const Handover& handover, uint64_t sequence) {
  // Acquire: pairs with the release in count_finished(); after it what the operation wrote is ours.
  const uint64_t told = m.load_acquire(&handover.done[sequence % handover.depth].told);
  return reached(is_woken(told, sequence) ? told - kWoken : told, sequence + 1);
}

// By the host: streams that stand for the operation with a watch come to that. Acquire and release, though
// nothing hangs on it: a block that completes an operation meanwhile is not overwritten.
template <class M>
void wake_watches(M& m, const Handover& handover, uint64_t sequence) {
  uint64_t* const word = &handover.done[sequence % handover.depth].told;
  const uint64_t told = m.load_relaxed(word);
  if (!is_woken(told, sequence)) m.compare_exchange(word, told, told + kWoken);
}

// By the host: is the operation complete, or released because its lane is broken? Relaxed: a hint.
template <class M>
bool is_done(M& m, const Handover& handover, uint64_t sequence) {
  return reached(m.load_relaxed(&handover.done[sequence % handover.depth].done), sequence + 1);
}

// By the host: watches that were woken need not come. Who has passed its wait already comes all the same. As
// above; what poison has woken stays so.
template <class M>
void let_watches_sleep(M& m, const Handover& handover, uint64_t sequence) {
  uint64_t* const word = &handover.done[sequence % handover.depth].told;
  const uint64_t told = m.load_relaxed(word);
  if (is_woken(told, sequence) && !is_done(m, handover, sequence))
    m.compare_exchange(word, told, told - kWoken);
}

// By the host: a stream that stands for the operation has come to its watch, which serves all parts from when
// it finds a place until the operation is complete. Relaxed, as the next two: nothing hangs on it but which
// other watches are woken meanwhile.
template <class M>
bool has_come_to_watch(M& m, const Handover& handover, uint64_t sequence) {
  return m.load_relaxed(&handover.came[sequence % handover.depth]) == sequence + 1;
}

// By whoever put it into the stream: the watch is there. A launch may stand in the driver, though the wait
// before it does not. Others of the lane put in theirs for later operations of the same place meanwhile: it
// only rises.
template <class M>
void note_watch_put(M& m, const Handover& handover, uint64_t sequence) {
  uint64_t* const word = &handover.came[handover.depth + sequence % handover.depth];
  if (!reached(m.load_relaxed(word), sequence + 1)) m.store_relaxed(word, sequence + 1);
}

template <class M>
bool watch_is_put(M& m, const Handover& handover, uint64_t sequence) {
  return reached(m.load_relaxed(&handover.came[handover.depth + sequence % handover.depth]), sequence + 1);
}

// Leaves the operation to the daemon's block that owns the part.
template <class M>
STARLING_HOST_DEVICE void push_parked(M& m, DaemonMemory& daemon, uint32_t part, const Parked& parked) {
  ParkedRing& ring = daemon.parked[part];
  // Acquire and release, though nothing hangs on it: the place is free, because its last operation completed
  // before the host launched ours.
  const uint64_t at = m.fetch_add(&ring.tail, 1);
  // Before the entry: once the operation is complete no such news comes any more, and a host may rest on that
  // (StreamHost::may_be_alone). Release: the place that was taken; pairs with the host's exchange. A daemon
  // that is launched for it finds the entry, or leaves the news again (Daemon::leaves_work).
  m.store_release(daemon.work, 1);
  Parked& entry = ring.entries[at & (ring.capacity - 1)];
  entry.sequence = parked.sequence;
  entry.lane = parked.lane;
  entry.priority = parked.priority;
  entry.block_count = parked.block_count;
  // Release: the entry, and the part with its saved context, before the position; pairs with the acquire in
  // next_parked().
  m.store_release(&entry.position, at + 1);
}

// The oldest entry that the daemon's block has not taken; null: none.
template <class M>
STARLING_HOST_DEVICE Parked* next_parked(M& m, DaemonMemory& daemon) {
  if (daemon.parked == nullptr) return nullptr;
  ParkedRing& ring = daemon.parked[m.block_index()];
  Parked* entry = &ring.entries[ring.head & (ring.capacity - 1)];
  // Acquire: pairs with the release in push_parked(); after it the part is ours.
  return m.load_acquire(&entry->position) == ring.head + 1 ? entry : nullptr;
}

}  // namespace starling::device
