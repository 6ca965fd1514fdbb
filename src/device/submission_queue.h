// The submission ring: one producer, the host; every block reads every entry (DFCCL §5).
// The producer is host code of a Machine too, so that the simulator runs both sides.
#pragma once
#include "device/machine.h"
#include "wire/queue.h"

namespace starling::device {

// Producer; under the host's submission lock. False: full, the caller keeps the submission (host queues
// spill).
template <class M>
bool push_submission(M& m, SubmissionRing& ring, uint32_t block_count, const Submission& submission) {
  const uint64_t tail = m.load_relaxed(&ring.tail);
  for (uint32_t b = 0; b < block_count; ++b) {
    // Acquire: the block has read the entry that we would overwrite; pairs with the release in fetch.
    if (tail - m.load_acquire(&ring.head[b][0]) >= ring.capacity) return false;
  }
  ring.entries[tail & (ring.capacity - 1)] = submission;
  // Release: the entry, and the operation in its lane, before the tail; pairs with the acquire in fetch.
  m.store_release(&ring.tail, tail + 1);
  return true;
}

// Consumer, without taking any. Acquire: as in fetch_submission(), which follows before anything is read.
template <class M>
STARLING_HOST_DEVICE bool has_submissions(M& m, const SubmissionRing& ring, uint32_t block) {
  return m.load_acquire(&ring.tail) != m.load_relaxed(&ring.head[block][0]);
}

// Producer; under the host's submission lock. Every block has read every submission.
template <class M>
bool all_submissions_read(M& m, const SubmissionRing& ring, uint32_t block_count) {
  const uint64_t tail = m.load_relaxed(&ring.tail);
  for (uint32_t b = 0; b < block_count; ++b)
    if (m.load_acquire(&ring.head[b][0]) != tail) return false;  // pairs with the release in fetch
  return true;
}

// Consumer; the block's leader. False: nothing new.
template <class M>
STARLING_HOST_DEVICE bool fetch_submission(M& m, SubmissionRing& ring, uint32_t block,
                                           Submission& submission) {
  const uint64_t head = m.load_relaxed(&ring.head[block][0]);
  // Acquire: pairs with the release of `tail` in push_submission(); after it entry and operation are
  // readable. The release of `head` below: our reading of the entry; pairs with the acquire in
  // push_submission().
  if (m.load_acquire(&ring.tail) == head) return false;
  submission = ring.entries[head & (ring.capacity - 1)];
  m.store_release(&ring.head[block][0], head + 1);
  return true;
}

}  // namespace starling::device
