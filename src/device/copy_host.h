// What a rank's proxy does for operations whose messages are moved by copy engines: no block and no kernel
// takes part. Host code of a Machine, so that the simulator runs what users run. Picture, owners and reasons:
// docs/design/0020-sm-free.md.
//
//   mark: own stream has come ─▶ offers go to the senders ─▶ each send's copy, once its offer is there
//                                                        ─▶ arrived is told, once the copy has ended
//   all sent, all arrived ─▶ done: streams go on ─▶ finished
//
// A copy is put into the engine's queue when nothing is left that it would wait for.
#pragma once
#include <concepts>
#include <cstddef>
#include <vector>

#include "base/assert.h"
#include "device/handover.h"
#include "device/machine.h"
#include "wire/copies.h"

namespace starling::device {

// One message of this rank to a peer, or what it keeps for itself.
struct CopySend {
  CopyOffer* offer;  // in the peer's region; null: none, the rank's own buffer is where it goes
  void* peer;  // whom the engine knows by it
  const std::byte* from;
  std::byte* to;  // without an offer
  uint64_t bytes;
  uint64_t ticket = 0;  // of its copy; 0: not begun
  bool told = false;
};

// One from a peer.
struct CopyReceive {
  CopyOffer* offer;  // in our own region
  std::byte* to;
  uint64_t bytes;
  uint16_t registration;
};

struct CopyJob {
  void* owner;  // the lane
  uint64_t sequence;
  const uint64_t* fault;  // the lane's
  const uint64_t* mark;  // the stream writes sequence + 1; null: the buffers are ready
  uint64_t* done;  // streams wait for sequence + 1; null: no stream does
  std::vector<CopySend> sends;  // in the order in which they should go
  std::vector<CopyReceive> receives;
  bool begun = false;
  bool failed = false;  // of its copies no more begin: its lane is about to break
};

// Copies that may be under way: an engine's queue is short, and who fills it waits in the driver.
inline constexpr uint64_t kCopiesUnderWay = 128;

// clang-format off
//   copy(send)          puts the copy of all of the message, to where its offer says, into the engine's queue,
//                       where it begins when those before it have ended. Its ticket; 0: the peer's buffer cannot
//                       be reached yet
//   last()              the newest ticket that was given; they count up
//   completed()         the newest ticket whose copy, and all before it, have ended: what they wrote is visible
//                       to whoever acquires what is stored from now on
template <class E>
concept CopyEngineOf = requires(E e, const CopySend& send) {
  { e.copy(send) } -> std::same_as<uint64_t>;
  { e.last() } -> std::same_as<uint64_t>;
  { e.completed() } -> std::same_as<uint64_t>;
};
// clang-format on

// By the proxy alone.
template <class M, CopyEngineOf E>
class CopyHost {
 public:
  CopyHost(M& machine, E& engine) : m_(machine), e_(engine) {}

  enum class Step { kNothing, kProgress, kFinished };

  // As far as it can go now. kFinished: the last touch of the lane and its buffers; the operation is
  // complete, or its lane broken.
  Step step(CopyJob& job) {
    // Acquire: pairs with the release in write_fault(); nothing hangs on it. What breaks after this look is
    // seen by the host, who asks again before it calls the operation complete.
    const bool broken = m_.load_acquire(job.fault) != 0;
    bool progress = false;
    if (!job.begun) {
      if (broken) return Step::kFinished;  // nobody was told of its buffers
      // Acquire: pairs with the release of the stream's write: what it did before is done.
      if (job.mark != nullptr && !reached(m_.load_acquire(job.mark), job.sequence + 1)) return Step::kNothing;
      job.begun = progress = true;
      for (const CopyReceive& receive : job.receives) offer(job, receive);
    }
    bool under_way = false;
    bool all = true;
    for (CopySend& send : job.sends) {
      if (send.told) continue;
      if (send.ticket == 0 && !broken && !job.failed) progress |= begin(job, send);
      progress |= tell(job, send);
      all &= send.told;
      under_way |= send.ticket != 0 && !send.told;
    }
    // Who gave us its buffer keeps it until we have withdrawn, which waits for this.
    if (broken) return under_way ? Step::kNothing : Step::kFinished;
    for (const CopyReceive& receive : job.receives)
      // Acquire: pairs with the release in tell(): the message is there.
      all = all && m_.load_acquire(&receive.offer->arrived) == job.sequence + 1;
    if (!all) return progress ? Step::kProgress : Step::kNothing;
    // Release: all messages; pairs with the acquire of streams that wait.
    if (job.done != nullptr) m_.store_release(job.done, job.sequence + 1);
    return Step::kFinished;
  }

 private:
  void offer(const CopyJob& job, const CopyReceive& receive) {
    m_.store_relaxed(&receive.offer->address, uint64_t(receive.to));
    m_.store_relaxed(&receive.offer->registration, receive.registration);
    m_.store_relaxed(&receive.offer->bytes, receive.bytes);
    // Release: the words above, and that our stream has left the buffer; pairs with the acquire in begin().
    m_.store_release(&receive.offer->offered, job.sequence + 1);
  }

  // True if it began.
  bool begin(const CopyJob& job, CopySend& send) {
    if (send.offer != nullptr) {
      // Acquire: pairs with the release in offer(). What the receiver does after it does not touch its
      // buffer.
      if (m_.load_acquire(&send.offer->offered) != job.sequence + 1) return false;
      // Signatures were compared before either side was given to its proxy.
      STARLING_ASSERT(m_.load_relaxed(&send.offer->bytes) == send.bytes,
                      "a receiver offers room for another message");
    }
    if (send.bytes == 0) {
      send.ticket = kNoCopy;
      return true;
    }
    if (e_.last() - e_.completed() >= kCopiesUnderWay) return false;
    send.ticket = e_.copy(send);
    return send.ticket != 0;
  }

  // True if the peer was told that its message is there.
  bool tell(const CopyJob& job, CopySend& send) {
    if (send.ticket == 0 || (send.ticket != kNoCopy && e_.completed() < send.ticket)) return false;
    // Release: the copy, which has ended; pairs with the receiver's acquire in step().
    if (send.offer != nullptr) m_.store_release(&send.offer->arrived, job.sequence + 1);
    return send.told = true;
  }

  static constexpr uint64_t kNoCopy = ~uint64_t(0);

  M& m_;
  E& e_;
};

}  // namespace starling::device
