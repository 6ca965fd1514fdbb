// What a Machine supplies to the code in this folder, and the words that all of it uses.
//
// Everything in src/device runs on every thread of a block alike (SPMD): a block is a thread block on a GPU,
// one thread on the CPU machine, one to four fibers in the simulator. The *leader* (thread 0) takes the
// decisions and talks to memory that others share; the rest joins in moving data. Nothing in this folder
// waits, yields, reads a clock, synchronizes or touches shared memory but through the Machine.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "base/portable.h"
#include "wire/doorbell.h"
#include "wire/pack.h"

namespace starling::device {

// How an attempt to run ended. The same on all threads of the block.
enum class Outcome : uint8_t {
  kDone = 0,
  kStuck = 1,  // the budget ended before what it waits for was there: park
  kDrain = 2,  // the daemon wants to leave
  kFault = 3,  // the lane is broken: drop the operation
};

// clang-format off
// The memory operations name the field's standard orders; `system` scope: visible to peers and the host.
//
//   load_acquire / store_release   on 64-bit counters shared with peers, other blocks or the host
//   fence                          sequentially consistent fence, for store-then-load handshakes
//   any(value)                     barrier of the block; true on all threads if any thread passed true
//   barrier()                      of the block; orders what its threads wrote and read
//   write(to, from, bytes)         this thread stores data that peers will read after a release
//   write_past_caches(...)         the same, of data that is not read again soon; wide threads only
//   load_few(from, bytes)          this thread loads at most 16 bytes of data; the rest of the pack is zero
//   store_few(to, pack, bytes)     likewise stores, as write()
//   owner()                        who a message of protocol pull names as the owner of its slice; where
//   read_owned(owner, to, from, n) every peer's memory has an address here, machines have neither. The second
//                                  copies out of another owner's memory; false if it is not there (any more)
//   write_words(to, a, b)          two neighbouring words (16-byte aligned), each whole, in no order
//   read_words(from, a, b)         likewise
//   release_words(to, a, b)        write_words(), each of them a release; acquire_words(from, a, b) the other side
//   release_words_early(to, a, b)  the same of what lay in memory before the operation: what this block stored since
//                                  is not before the words
//   store_after_loads(p, v)        what this block loaded before it (a barrier between) is not touched by what
//                                  others store once they have seen `v`. Says nothing of what it stored
//   load_before_stores(p)          the other side of it: what this block stores only if the value allows it (a
//                                  barrier between) comes after what others loaded before they stored the value
//   load_early(from, bytes)        load_few() of what others may still write; use_early(from, bytes, pack) before
//                                  the first use, when nobody does any more, and what was loaded is what is there
//   now()                          ticks of a monotone clock, the leader's
//   expired(start, budget)         has a wait that began at `start` used up its budget of ticks?
//   pause(attempt)                 between two polls inside one bounded wait
//   idle(pass)                     between two passes over the queue that made no progress; may sleep until notified
//   busy()                         progress was made: undo what idle prepared
//   notify(doorbell)               something was stored for the blocks that sleep on it (null: nobody)
//   notify_host()                  a completion was published
template <class M>
concept Machine = requires(M m, const uint64_t* p, uint64_t* q, uint64_t v, bool b, uint32_t n,
                           std::byte* to, const std::byte* from) {
  { m.thread_index() } -> std::convertible_to<uint32_t>;
  { m.thread_count() } -> std::convertible_to<uint32_t>;
  { m.block_index() } -> std::convertible_to<uint32_t>;
  { m.load_acquire(p) } -> std::same_as<uint64_t>;
  { m.load_relaxed(p) } -> std::same_as<uint64_t>;
  m.store_release(q, v);
  m.store_relaxed(q, v);
  { m.fetch_add(q, v) } -> std::same_as<uint64_t>;           // acquire and release
  { m.compare_exchange(q, v, v) } -> std::same_as<uint64_t>; // acquire and release; returns what was there
  m.fence();
  { m.any(b) } -> std::same_as<bool>;
  m.barrier();
  m.write(to, from, v);
  { m.load_few(from, v) } -> std::same_as<Pack>;
  m.store_few(to, Pack{}, v);
  m.write_words(q, v, v);
  m.read_words(p, *q, *q);
  m.release_words(q, v, v);
  m.release_words_early(q, v, v);
  m.acquire_words(p, *q, *q);
  m.store_after_loads(q, v);
  { m.now() } -> std::same_as<uint64_t>;
  { m.expired(v, v) } -> std::same_as<bool>;
  m.pause(n);
  m.idle(n);
  m.busy();
  m.notify(static_cast<Doorbell*>(nullptr));
  m.notify_host();
  { M::kThreads } -> std::convertible_to<uint32_t>;  // 1: a block is one thread; 0: known at run time only
  { M::kLaneDepth } -> std::convertible_to<uint32_t>;  // places of a lane's rings (wire/lane.h)
  { M::kPlainWrites } -> std::convertible_to<bool>;  // write() is a plain copy: results may be computed in place
  { M::kStagesPlans } -> std::convertible_to<bool>;  // stages(): plans and lanes are copied into fast memory
  { M::kTakesTurns } -> std::convertible_to<bool>;  // tasks that can go on alternate tile by tile
  { M::kReadsOwned } -> std::convertible_to<bool>;  // owner(), read_owned(); blocks of one thread only
  { M::kOpensPeers } -> std::convertible_to<bool>;  // buffers of other processes can be mapped (device/opened.h)
  { M::kVectorThreads } -> std::convertible_to<bool>;  // threads of a block stride over 16-byte packs together
  requires !M::kStagesPlans || requires {
    { m.plan_stage(n).bytes } -> std::convertible_to<uint32_t>;
    m.copy_near(m.plan_stage(n).memory, from, n);
    { m.add_relaxed(q, v) } -> std::same_as<uint64_t>;  // fetch_add() that orders nothing
    { m.compare_exchange_relaxed(q, v, v) } -> std::same_as<uint64_t>;  // likewise
    { m.load_before_stores(p) } -> std::same_as<uint64_t>;
    { m.load_early(from, v) } -> std::same_as<Pack>;
    m.use_early(from, v, Pack{});
  };
  requires M::kVectorThreads || requires { m.write_past_caches(to, from, v); };
  requires !M::kReadsOwned || requires { { m.read_owned(m.owner(), to, from, v) } -> std::same_as<bool>; };
};
// clang-format on

template <class M>
STARLING_HOST_DEVICE bool leads(M& m) {
  return M::kThreads == 1 || m.thread_index() == 0;
}

}  // namespace starling::device
