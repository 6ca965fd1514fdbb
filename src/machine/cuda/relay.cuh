// The relay: one warp of the daemon's first block that reads the host's submission ring, so that nobody else
// does. Where there are watches, of any block: who has the turn.
//
//   host's memory                    PCIe              the GPU's memory
//   operations, entries  ── relay reads, one at a time ──▶  operations, entries ──▶ all blocks
//   heads                ◀── relay tells from time to time ──  heads              ◀── all blocks
//
// Reads of host memory from many blocks wait for each other (measured: 16 polling blocks cost an operation
// 200 us); one warp's cost one round trip. Both rings have one capacity, and the host overwrites an entry
// only when all blocks have passed it, so the relay's ring needs no check of its own.
#pragma once
#include "device/daemon.h"
#include "machine/cuda/daemon.h"
#include "machine/cuda/machine.cuh"

namespace starling::cuda {

class Relay {
 public:
  __device__ Relay(CudaMachine& machine, const DaemonLaunch& launch)
      : m_(machine),
        host_(launch.submissions),
        relayed_(launch.relayed),
        drain_(launch.drain),
        launch_(launch.daemon.launch),
        shared_(launch.daemon.tenured != 0),
        daemon_(*launch.daemon.daemon),
        lane_(threadIdx.x % 32) {}

  // Until `leaving`, in the block's shared memory, is not 0. All threads of one warp.
  __device__ void run(uint32_t& leaving) {
    if (shared_ && !take_turn(leaving)) return;
    __syncwarp();
    uint64_t position = m_.load_relaxed(relayed_);
    for (uint32_t looks = 0; !has_ended(leaving); ++looks) {
      if (looks % kLooksPerReport == 0) report();
      uint64_t entry = 0;
      // Acquire: pairs with the release in push_submission(); after it the operation is readable.
      if (lane_ == 0) entry = m_.load_acquire(&host_.entries[position & (host_.capacity - 1)]);
      entry = __shfl_sync(~0u, entry, 0);
      if ((entry ^ submission_lap(position, host_.capacity)) >> 56) continue;
      fetch_operation(unpack_submission(entry));
      __syncwarp();
      // Release: the operation before the entry; pairs with the acquire in fetch_submission().
      if (lane_ == 0) m_.store_release(&daemon_.submissions.entries[position & (host_.capacity - 1)], entry);
      ++position;
    }
    if (lane_ == 0) m_.store_relaxed(relayed_, position);
    report();
    // Release: what we have passed on, and how far; pairs with the acquire in take_turn().
    if (shared_ && lane_ == 0) m_.store_release(relayed_ + 1, 0);
  }

 private:
  static constexpr uint32_t kLooksPerReport = 16;
  static constexpr uint32_t kTurnNs = 1000;

  __device__ bool take_turn(uint32_t& leaving) {
    for (;;) {
      uint32_t taken = 0;
      // Acquire: pairs with the release in run().
      if (lane_ == 0)
        taken = m_.load_relaxed(relayed_ + 1) == 0 && m_.compare_exchange(relayed_ + 1, 0, 1) == 0;
      if (__shfl_sync(~0u, taken, 0) != 0) return true;
      if (has_ended(leaving)) return false;
      __nanosleep(kTurnNs);
    }
  }

  // One thread looks for all: two looks could differ, and the warp would part. No order is needed: what the
  // leader has left is read behind meet_relay().
  __device__ bool has_ended(uint32_t& leaving) {
    uint32_t seen = 0;
    if (lane_ == 0) seen = atomicOr(&leaving, 0);
    return __shfl_sync(~0u, seen, 0) != 0;
  }

  __device__ void report() {
    for (uint32_t b = lane_; b < daemon_.block_count; b += 32) {
      const uint64_t at = b * SubmissionRing::kHeadStride;
      // Acquire and release: the block has read the entry; the host may overwrite it then.
      m_.store_release(&host_.heads[at], m_.load_acquire(&daemon_.submissions.heads[at]));
    }
    if (lane_ == 0) pass_drain_on();
    __syncwarp();
  }

  __device__ void pass_drain_on() {
    const uint64_t seen = m_.load_relaxed(drain_);
    // Release, both: pairs with the acquires of `drain` in Daemon.
    if (!shared_) {
      if (seen >= launch_) m_.store_release(&daemon_.drain, launch_);
    } else if (seen > m_.load_relaxed(&daemon_.parts->dismissed)) {
      m_.store_release(&daemon_.parts->dismissed, seen);
    }
  }

  __device__ void fetch_operation(const Submission& submission) {
    if (submission.block_count == 0) return;
    const Lane& lane = *daemon_.segments[submission.lane / kLaneSegment][submission.lane % kLaneSegment];
    const uint32_t at = uint32_t(submission.sequence % kGpuLaneDepth);
    copy(&lane.operations[at], &lane.submitted[at], sizeof(Operation));
    __syncwarp();
    for (BufferKind kind : {BufferKind::kInput, BufferKind::kOutput}) {
      BufferBinding& buffer = lane.operations[at].buffers[uint32_t(kind)];
      const GroupExtent* theirs = buffer.groups;
      __syncwarp();
      if (theirs == nullptr) continue;
      GroupExtent* ours = lane.tables + (2 * at + (kind == BufferKind::kOutput)) * lane.peer_count;
      copy(ours, theirs, uint32_t(lane.peer_count * sizeof(GroupExtent)));
      if (lane_ == 0) buffer.groups = ours;
      __syncwarp();
    }
  }

  // From the host's memory, in 16-byte moves past any cache.
  __device__ void copy(void* to, const void* from, uint32_t bytes) {
    for (uint32_t k = lane_; k < bytes / 16; k += 32) {
      uint64_t low, high;
      asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                   : "=l"(low), "=l"(high)
                   : "l"(static_cast<const char*>(from) + k * 16)
                   : "memory");
      static_cast<Pack*>(to)[k] = {low, high};
    }
  }

  CudaMachine& m_;
  const SubmissionRing& host_;
  uint64_t* relayed_;
  const uint64_t* drain_;
  const uint64_t launch_;
  const bool shared_;
  DaemonMemory& daemon_;
  const uint32_t lane_;
};

}  // namespace starling::cuda
