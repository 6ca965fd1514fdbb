// What a rank's proxy does for operations whose messages are moved by copy engines: no block and no kernel
// takes part. Host code of a Machine, so that the simulator runs what users run. Picture, owners and reasons:
// docs/design/0020-sm-free.md.
//
//   mark: own stream has come ─▶ offers go to the senders ─▶ each send's copy, once its offer is there
//                                                        ─▶ arrived is told, once the copy has ended
//   all sent, all arrived ─▶ done: streams go on ─▶ finished
//
// A copy is put into a queue of the engine when nothing is left that it would wait for.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <vector>

#include "base/assert.h"
#include "device/handover.h"
#include "device/machine.h"
#include "wire/copies.h"

namespace starling::device {

// An engine's, each in an order of its own: copies within the rank and those to peers pass each other.
enum class CopyQueue : uint8_t { kPeers, kOwn };
inline constexpr uint32_t kCopyQueues = 2;

// Of a message that goes in several: they stand one behind the other in CopyJob::sends.
struct CopyPiece {
  uint64_t offset = 0;  // in the peer's buffer
  uint32_t number = 0;
  uint32_t count = 1;  // 255 at most
};

// One message of this rank to a peer, or a piece of one; or what the rank keeps for itself.
struct CopySend {
  CopyOffer* offer;  // in the peer's region; null: none, the rank's own buffer is where it goes
  void* peer;  // whom the engine knows by it
  const std::byte* from;
  std::byte* to;  // without an offer
  uint64_t bytes;
  CopyPiece piece{};
  int32_t passes_on = -1;  // what came by that one of CopyJob::receives, in the same pieces; -1: our input
  uint64_t ticket = 0;  // of its copy; 0: not begun
  bool told = false;

  CopyQueue queue() const { return offer == nullptr ? CopyQueue::kOwn : CopyQueue::kPeers; }
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
  bool shares_driver = false;  // peers are ranks of this process, whose copies go by the same driver

  // Does something still have to be put into the engine's queues, for it to end?
  bool needs_engine() const {
    return shares_driver || std::any_of(sends.begin(), sends.end(), [](const CopySend& send) {
             return send.ticket == 0 && send.bytes > 0;
           });
  }
};

// Copies that may be under way in a queue: it is short, and who fills it waits in the driver.
inline constexpr uint64_t kCopiesUnderWay = 128;

// clang-format off
//   copy(send)          puts the copy of all of the piece, to where its offer says, into the send's queue, where it
//                       begins when those before it have ended. Its ticket; 0: the peer's buffer cannot be reached
//                       yet
//   last(queue)         the newest ticket that was given; they count up
//   completed(queue)    the newest ticket whose copy, and all before it in the queue, have ended: what they wrote is
//                       visible to whoever acquires what is stored from now on
template <class E>
concept CopyEngineOf = requires(E e, const CopySend& send, CopyQueue queue) {
  { e.copy(send) } -> std::same_as<uint64_t>;
  { e.last(queue) } -> std::same_as<uint64_t>;
  { e.completed(queue) } -> std::same_as<uint64_t>;
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
    const CopySend* before = nullptr;  // the message's piece before this one
    for (CopySend& send : job.sends) {
      if (send.piece.number == 0) before = nullptr;
      const bool may_begin = !broken && !job.failed && (before == nullptr || before->ticket != 0);
      if (send.ticket == 0 && may_begin) progress |= begin(job, send);
      if (!send.told) progress |= tell(job, send);
      before = &send;
      all &= send.told;
      under_way |= send.ticket != 0 && !send.told;
    }
    // Who gave us its buffer keeps it until we have withdrawn, which waits for this.
    if (broken) return under_way ? Step::kNothing : Step::kFinished;
    for (const CopyReceive& receive : job.receives) all = all && has_arrived(job, receive);
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

  bool has_arrived(const CopyJob& job, const CopyReceive& receive) {
    // Acquire: pairs with the release in tell(): the message is there.
    return m_.load_acquire(&receive.offer->arrived) == job.sequence + 1;
  }

  bool has_come(const CopyJob& job, const CopyReceive& receive, uint32_t piece) {
    if (has_arrived(job, receive)) return true;
    // Acquire: pairs with the release in tell(): the pieces that it counts are there.
    return reached(m_.load_acquire(&receive.offer->came), pieces_came(job.sequence, piece + 1));
  }

  // True if it began.
  bool begin(const CopyJob& job, CopySend& send) {
    if (send.passes_on >= 0 && !has_come(job, job.receives[uint32_t(send.passes_on)], send.piece.number))
      return false;
    if (send.offer != nullptr) {
      // Acquire: pairs with the release in offer(). What the receiver does after it does not touch its
      // buffer.
      if (m_.load_acquire(&send.offer->offered) != job.sequence + 1) return false;
      // Signatures were compared before either side was given to its proxy.
      const uint64_t room = m_.load_relaxed(&send.offer->bytes);
      const uint64_t end = send.piece.offset + send.bytes;
      STARLING_ASSERT(is_last(send) ? room == end : room > end, "a receiver offers room for another message");
    }
    if (send.bytes == 0) {
      send.ticket = kNoCopy;
      return true;
    }
    if (e_.last(send.queue()) - e_.completed(send.queue()) >= kCopiesUnderWay) return false;
    send.ticket = e_.copy(send);
    return send.ticket != 0;
  }

  // True if the peer was told that the message, or a piece more of it, is there.
  bool tell(const CopyJob& job, CopySend& send) {
    if (send.ticket == 0 || (send.ticket != kNoCopy && e_.completed(send.queue()) < send.ticket))
      return false;
    // Release: the copies up to this one, which have ended; pairs with the receiver's acquires in
    // has_arrived() and has_come().
    if (send.offer != nullptr && is_last(send))
      m_.store_release(&send.offer->arrived, job.sequence + 1);
    else if (send.offer != nullptr)
      m_.store_release(&send.offer->came, pieces_came(job.sequence, send.piece.number + 1));
    return send.told = true;
  }

  static bool is_last(const CopySend& send) { return send.piece.number + 1 == send.piece.count; }

  static constexpr uint64_t kNoCopy = ~uint64_t(0);

  M& m_;
  E& e_;
};

}  // namespace starling::device
