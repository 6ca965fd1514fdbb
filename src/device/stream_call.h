// An operation on a stream, as device/stream_host.h is told of it, and what it says of it.
#pragma once
#include <algorithm>

#include "device/stream_device.h"

namespace starling::device {

// How an operation comes to run.
enum class StreamPath : uint8_t {
  kKernel = 0,  // a start kernel
  kQueue = 1,  // through the SQ: the stream is idle, so there is nothing to wait for
  kMark = 2,  // through the SQ; it starts after the mark that its stream writes
  kCopies = 3,  // no block has a part in it: copy engines move it (device/copy_host.h)
  kRendezvous = 4,  // through the SQ, once the streams of all ranks have come to it: each tells its host by a
                    // mark, and the hosts tell each other. Until then it takes nothing of the GPU
};

// An operation that is to be put into a stream.
struct StreamCall {
  Stream stream;
  bool held;  // it is waited for at birth
  bool connected;  // its lane: all peers are known to the blocks; and no block of it waits for another
  bool room;  // may_enter(): its lane's ring has a place for it; enter(): it is there
  bool follows;  // the lane's last operation began as a kernel in this very stream
  bool copies = false;  // StreamPath::kCopies; then of the others `held` alone counts. may_stand() in the
                        // place of may_enter()
  bool rendezvous = false;  // it may wait long for peers, and would keep many blocks: StreamPath::kRendezvous
  uint32_t before = 0;  // may_enter(): operations that will enter with it, and before it ...
  const void* lane =
      nullptr;  // its lane, if nothing but operations is ever behind it in its stream; else null
  const StreamCall* first = nullptr;  // ... and the first of them; null: it is that
  uint8_t box = 0;  // the CPU calls it, and its stream is that of the box of this number, from 1 on; 0: it
                    // has none
  uint32_t unit_bytes = 0;  // with a box: that the operation's one block moves at once; 0: it has more blocks
  uint64_t called_ns = 0;  // by the device's clock; 0: now
  bool joins = false;  // enter(): it begins together with what has just entered, and not behind it
};

// Kept by the owner with the operation until its completion is read.
struct StreamEntry {
  StreamPath path;
  uint8_t gate;  // a block may stay for it
  uint8_t waits;  // enqueue() adds a wait value, and a watch behind it if there is one
  uint8_t follows;  // as StreamCall's
  uint8_t alone;  // all that is under way is of one stream: its start kernel may stay (device/alone.h)
  uint32_t holds;  // streams that stand for it
  uint64_t patience;  // alone: Alone::patience() at its entry
  uint8_t in_row = 0;  // it counts in StreamRow
  uint8_t met = 0;  // kRendezvous: it was submitted
  // Of its watches (WatchTurns):
  uint8_t woken = 0;
  uint8_t put = 0;  // one is in its stream
  uint8_t came = 0;  // a stream that stood for it has come to one
  uint32_t turns = 0;  // so often they were woken
  uint64_t stands = 0;  // streams came to stand for so many others before, as calls go
  uint64_t watches = 0;  // bit k: the k-th of the streams with watches has one for it
  uint8_t box = 0;  // as StreamCall's, where its kernel is a start kernel ...
  CallWay call = CallWay::kStart;  // ... or one that stays
};

// An operation that is put into its stream.
struct Entering {
  StreamEntry entry;
  const Handover* handover;
  uint64_t* arrival;  // kRendezvous: the mark, in the host's memory
  StartArguments* start;
  uint64_t order;  // of operations that are put in together: the lane's, the same on all ranks, no two alike
};

// A start kernel that stays at its place may keep it from blocks behind it. Where all ranks have one order,
// the first operation in it has its blocks' places everywhere, ends, and makes room for the next.
inline void put_in_order(Entering* each, uint32_t count) {
  std::sort(each, each + count, [](const Entering& a, const Entering& b) { return a.order < b.order; });
}

struct StreamPolicy {
  bool gates = true;  // operations that are waited for at birth: by a gate, or by a wait value
  bool doorbells = false;  // no start kernels: every operation by mark and SQ
  bool guards = false;  // a daemon that stays begins as one block, which calls the others
  bool rendezvous = false;  // StreamPath::kRendezvous
  // Behind the wait of a stream that stands is a block of the daemon (device/daemon_block.h), which comes if
  // it is woken, up to StreamFacts::watch_limit streams: then nothing has to be there before. Not where
  // streams share a hardware queue.
  bool watches = false;
};

}  // namespace starling::device
