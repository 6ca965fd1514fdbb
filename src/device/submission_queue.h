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
    if (tail - m.load_acquire(&ring.heads[b * SubmissionRing::kHeadStride]) >= ring.capacity) return false;
  }
  const uint64_t entry = submission_lap(tail, ring.capacity) | pack_submission(submission);
  // Release: the operation in its lane before the entry; pairs with the acquire in fetch.
  m.store_release(&ring.entries[tail & (ring.capacity - 1)], entry);
  m.store_relaxed(&ring.tail, tail + 1);
  return true;
}

// Is there an entry at `position`, the next one of a block? Takes none. Acquire: as in fetch_submission(),
// which follows before anything is read.
template <class M>
STARLING_HOST_DEVICE bool has_submissions(M& m, const SubmissionRing& ring, uint64_t position) {
  const uint64_t lap = submission_lap(position, ring.capacity);
  return ((m.load_acquire(&ring.entries[position & (ring.capacity - 1)]) ^ lap) >> 56) == 0;
}

// Producer; under the host's submission lock. Every block has read every submission.
template <class M>
bool all_submissions_read(M& m, const SubmissionRing& ring, uint32_t block_count) {
  const uint64_t tail = m.load_relaxed(&ring.tail);
  for (uint32_t b = 0; b < block_count; ++b)
    if (m.load_acquire(&ring.heads[b * SubmissionRing::kHeadStride]) != tail)
      return false;  // pairs with the release in fetch
  return true;
}

// Consumer; the block's leader. `position`: the block's own count. False: nothing new.
template <class M>
STARLING_HOST_DEVICE bool fetch_submission(M& m, SubmissionRing& ring, uint32_t block, uint64_t& position,
                                           Submission& submission) {
  // Acquire: pairs with the release in push_submission(); after it the operation is readable.
  const uint64_t entry = m.load_acquire(&ring.entries[position & (ring.capacity - 1)]);
  if ((entry ^ submission_lap(position, ring.capacity)) >> 56) return false;
  submission = unpack_submission(entry);
  ++position;
  // Our reading of the entry before it; pairs with the acquire in push_submission().
  m.store_after_loads(&ring.heads[block * SubmissionRing::kHeadStride], position);
  return true;
}

}  // namespace starling::device
