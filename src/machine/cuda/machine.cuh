// The cuda machine: a block is a thread block. Nobody sleeps: waiting is polling, then polling less often.
#pragma once
#include <cuda_runtime.h>

#include "device/machine.h"
#include "wire/lane.h"
#include "wire/operation.h"
#include "wire/pack.h"
#include "wire/plan.h"

namespace starling::cuda {

class CudaMachine {
 public:
  static constexpr uint32_t kThreads = 0;
  static constexpr bool kVectorThreads = true;
  static constexpr bool kReadsOwned = false;
  static constexpr bool kOpensPeers = true;
  static constexpr bool kTakesTurns = false;
  static constexpr bool kStagesPlans = true;
  static constexpr bool kPlainWrites = true;
  static constexpr uint32_t kLaneDepth = kGpuLaneDepth;

  // A block's fast memory for the lane and the plan of a task, one `Stage` a slot. A start kernel's one slot
  // has room for most plans whole, which takes a round of loads less; a daemon's blocks have several and lie
  // beside other kernels for long, so theirs have room for a block's part (device/near_plan.h).
  template <uint32_t kPlanBytes>
  struct alignas(16) Stage {
    static constexpr uint32_t kPlan = kPlanBytes;
    std::byte lane[sizeof(Lane)];
    std::byte plan[kPlanBytes];
  };
  using StartStage = Stage<6144>;
  using DaemonStage = Stage<2176>;

  // threads: of the block that take part, a multiple of 32; others of the thread block have work of their
  // own. stages: shared memory. Without: for what runs no operation.
  template <class AnyStage>
  __device__ CudaMachine(uint32_t threads, AnyStage* stages)
      : threads_(threads), stage_(stages->lane), plan_room_(AnyStage::kPlan) {}
  __device__ explicit CudaMachine(uint32_t threads) : threads_(threads), stage_(nullptr), plan_room_(0) {}

  __device__ bool stages() const { return true; }
  struct PlanStage {
    std::byte* memory;
    uint32_t bytes;
  };
  __device__ PlanStage plan_stage(uint32_t slot) const {
    return {lane_stage(slot) + sizeof(Lane), plan_room_};
  }
  // All threads; a barrier must follow.
  __device__ void copy_near(std::byte* to, const void* from, uint32_t bytes) { copy(to, from, bytes); }
  // The lane's pointers and sizes, which do not change while it has operations. Likewise.
  __device__ Lane* stage_lane(uint32_t slot, const Lane* lane) {
    static_assert(sizeof(Lane) % sizeof(Pack) == 0);
    return static_cast<Lane*>(copy(lane_stage(slot), lane, sizeof(Lane)));
  }
  // Of a kernel's argument, by a thread of another warp than the leader's.
  __device__ Lane* stage_lane(uint32_t slot, const Lane& lane) {
    Lane* const ours = reinterpret_cast<Lane*>(lane_stage(slot));
    if (threadIdx.x + 1 == threads_) *ours = lane;
    return ours;
  }

  // All that was put into the kernel's stream before it is complete, and seen. Before it only the kernel's
  // own argument may be looked at, and what never changes.
  __device__ void await_stream() { cudaGridDependencySynchronize(); }

  // An operation that came as a kernel's argument: its tables of extents lie in the host's memory, where
  // every look costs a round trip. Those of a captured one are near already, and the lane has no place for
  // them. All threads; a barrier must follow.
  __device__ void stage_operation(Operation& to, const Operation& from, const Lane& lane) {
    if (threadIdx.x == 0) to = from;
    if (lane.tables == nullptr || (from.buffers[uint32_t(BufferKind::kInput)].groups == nullptr &&
                                   from.buffers[uint32_t(BufferKind::kOutput)].groups == nullptr))
      return;
    barrier();
    for (BufferKind kind : {BufferKind::kInput, BufferKind::kOutput}) {
      const GroupExtent* theirs = from.buffers[uint32_t(kind)].groups;
      if (theirs == nullptr) continue;
      const uint64_t at = 2 * (from.sequence % kLaneDepth) + (kind == BufferKind::kOutput);
      GroupExtent* ours = lane.tables + at * lane.peer_count;
      // Every block of the operation copies it for itself, and all write the same.
      copy(reinterpret_cast<std::byte*>(ours), theirs, uint32_t(lane.peer_count * sizeof(GroupExtent)));
      if (threadIdx.x == 0) to.buffers[uint32_t(kind)].groups = ours;
    }
  }

  __device__ uint32_t thread_index() const { return threadIdx.x; }
  __device__ uint32_t thread_count() const { return threads_; }
  __device__ uint32_t block_index() const { return blockIdx.x; }

  // System scope for loads and stores: peers and the host look at the same words. On NVLink and within the
  // GPU the scope costs nothing over device scope for these word-sized accesses; fences are where scope would
  // matter.
  __device__ uint64_t load_acquire(const uint64_t* p) const {
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
  }
  __device__ uint64_t load_relaxed(const uint64_t* p) const {
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
  }
  // After a barrier this also releases what the other threads of the block wrote: causality order goes
  // through the barrier (PTX memory model, cumulativity).
  __device__ void store_release(uint64_t* p, uint64_t v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  __device__ void store_relaxed(uint64_t* p, uint64_t v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
  // The two atomics: scope of the GPU, as all words that change atomically are in its own memory and changed
  // by its own blocks. Whoever releases to peers or the host afterwards does so at system scope, and hands on
  // what it acquired here (causality order does not ask by which scope it came).
  __device__ uint64_t fetch_add(uint64_t* p, uint64_t v) {
    uint64_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
  }
  __device__ uint64_t add_relaxed(uint64_t* p, uint64_t v) {
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
  }
  __device__ uint64_t compare_exchange(uint64_t* p, uint64_t expected, uint64_t desired) {
    uint64_t old;
    asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(p), "l"(expected), "l"(desired)
                 : "memory");
    return old;
  }
  __device__ uint64_t compare_exchange_relaxed(uint64_t* p, uint64_t expected, uint64_t desired) {
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(p), "l"(expected), "l"(desired)
                 : "memory");
    return old;
  }
  __device__ void fence() { asm volatile("fence.sc.sys;" ::: "memory"); }

  // Every release is a fence and a store, and a fence takes until all stores before it have arrived. One for
  // several stores, of which none says anything of another: what this thread stored, and what it knows of
  // others' (a barrier came before, cumulativity), is before each of them.
  template <bool kSystem>
  class Fenced {
   public:
    static constexpr uint32_t kLaneDepth = kGpuLaneDepth;
    __device__ explicit Fenced(CudaMachine& m) : m_(m) { order(); }
    __device__ uint32_t block_index() const { return m_.block_index(); }
    __device__ uint64_t load_relaxed(const uint64_t* p) const { return m_.load_relaxed(p); }
    __device__ uint64_t load_acquire(const uint64_t* p) const { return m_.load_acquire(p); }
    __device__ void store_relaxed(uint64_t* p, uint64_t v) { m_.store_relaxed(p, v); }
    __device__ void store_release(uint64_t* p, uint64_t v) { m_.store_relaxed(p, v); }
    // Two neighbouring words (16-byte aligned) by one store.
    __device__ void store_pair(uint64_t* p, uint64_t first, uint64_t second) {
      m_.write_words(p, first, second);
    }
    __device__ void fence() { m_.fence(); }
    // It acquires: what others released is before all that is stored through this view from now on.
    __device__ uint64_t fetch_add(uint64_t* p, uint64_t v) {
      uint64_t old;
      asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
      order();
      return old;
    }
    __device__ uint64_t compare_exchange(uint64_t* p, uint64_t expected, uint64_t desired) {
      uint64_t old;
      asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                   : "=l"(old)
                   : "l"(p), "l"(expected), "l"(desired)
                   : "memory");
      return old;
    }

   private:
    __device__ void order() const {
      if constexpr (kSystem)
        asm volatile("fence.acq_rel.sys;" ::: "memory");
      else
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }

    CudaMachine& m_;
  };
  __device__ Fenced<true> fenced() { return Fenced<true>(*this); }
  // Scope of the GPU: it does not wait until what is on its way to peers has arrived (0.3 us, not 1.4). A
  // word in the host's memory that is stored behind it tells of this GPU's memory only.
  __device__ Fenced<false> fenced_here() { return Fenced<false>(*this); }

  // Barrier 1: barrier 0 is that of all threads of the thread block. The leader comes from code of its own:
  // its warp meets first, so that the whole warp executes one and the same barrier instruction. (Without that
  // the compiler may give the leader a copy of its own, and a warp that arrives at one barrier in two ways is
  // an illegal instruction.)
  __device__ bool any(bool value) {
    uint32_t result;
    __syncwarp();
    asm volatile(
        "{\n"
        ".reg .pred mine, all;\n"
        "setp.ne.u32 mine, %1, 0;\n"
        "bar.red.or.pred all, 1, %2, mine;\n"
        "selp.u32 %0, 1, 0, all;\n"
        "}"
        : "=r"(result)
        : "r"(uint32_t(value)), "r"(threads_)
        : "memory");
    return result != 0;
  }
  // For those of one warp that are together in the code.
  __device__ void sync_warp() { __syncwarp(); }
  __device__ void barrier() {
    __syncwarp();
    asm volatile("bar.sync 1, %0;" ::"r"(threads_) : "memory");
  }
  __device__ void write(std::byte* to, const std::byte* from, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
  // In registers all the way, and all loads before the first use: one trip to memory. Whole packs are aligned
  // mostly, what is left of a message is whole words; what is not comes by the bytes, out of the way: the
  // code of a small operation runs once, so what it jumps over costs.
  __device__ Pack load_few(const std::byte* from, uint64_t bytes) const {
    if (bytes == 16 && uint64_t(from) % 16 == 0) return *reinterpret_cast<const Pack*>(from);
    if ((uint64_t(from) | bytes) % 4 != 0) return load_bytes(from, uint32_t(bytes));
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t w = 0; w < 4; ++w)
      if (4 * w < bytes) words[w] = reinterpret_cast<const uint32_t*>(from)[w];
    return {uint64_t(words[1]) << 32 | words[0], uint64_t(words[3]) << 32 | words[2]};
  }
  // Before it is known whether the bytes are the operation's: use_early() comes before the first use, once
  // they are, with what load_few() would find.
  __device__ Pack load_early(const std::byte* from, uint64_t bytes) const { return load_few(from, bytes); }
  __device__ void use_early(const std::byte*, uint64_t, const Pack&) const {}
  __device__ void store_few(std::byte* to, Pack pack, uint64_t bytes) {
    if (bytes == 16 && uint64_t(to) % 16 == 0) {
      *reinterpret_cast<Pack*>(to) = pack;
      return;
    }
    if ((uint64_t(to) | bytes) % 4 != 0) return store_bytes(to, pack, uint32_t(bytes));
#pragma unroll
    for (uint32_t w = 0; w < 4; ++w)
      if (4 * w < bytes)
        reinterpret_cast<uint32_t*>(to)[w] = uint32_t((w < 2 ? pack.low : pack.high) >> (w % 2 * 32));
  }
  // One access of 16 bytes. The hardware may split it, but never inside a word.
  __device__ void write_words(uint64_t* to, uint64_t first, uint64_t second) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second)
                 : "memory");
  }
  __device__ void read_words(const uint64_t* from, uint64_t& first, uint64_t& second) const {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(first), "=l"(second)
                 : "l"(from)
                 : "memory");
  }
  // After a barrier also of what the other threads of the block wrote, as store_release().
  __device__ void release_words(uint64_t* to, uint64_t first, uint64_t second) {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    write_words(to, first, second);
  }
  // What kernels before this one in its stream stored has been flushed to the memory that it lies in, and
  // that is where peers look and write; so no fence has to wait for anything.
  __device__ void release_words_early(uint64_t* to, uint64_t first, uint64_t second) {
    write_words(to, first, second);
  }
  __device__ void acquire_words(const uint64_t* from, uint64_t& first, uint64_t& second) const {
    asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(first), "=l"(second)
                 : "l"(from)
                 : "memory");
  }
  // A load whose value is in a register, as it is when a barrier after its use was passed, cannot be changed
  // by a later store, and a peer stores only after it has seen `v`. So no fence is needed, and none is paid
  // for: a release would wait until all stores of the block, the packets on their way among them, have
  // arrived.
  __device__ void store_after_loads(uint64_t* p, uint64_t v) { store_relaxed(p, v); }

  // Likewise a store that is made only if the loaded value allows it cannot be ahead of the load.
  __device__ uint64_t load_before_stores(const uint64_t* p) const { return load_relaxed(p); }

  __device__ uint64_t now() const {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
  }
  __device__ bool expired(uint64_t start, uint64_t budget) const { return now() - start >= budget; }

  __device__ void pause(uint32_t attempt) {
    if (attempt > kEagerPolls) __nanosleep(40);
  }
  // A pass without tasks is mostly one read of the submission ring over PCIe: that is pause enough at first.
  __device__ void idle(uint32_t pass) {
    if (pass > 256) __nanosleep(200);
  }
  __device__ void busy() {}
  __device__ void notify(Doorbell*) {}
  __device__ void notify_host() {}

 private:
  static __noinline__ __device__ Pack load_bytes(const std::byte* from, uint32_t bytes) {
    Pack pack{0, 0};
#pragma unroll
    for (uint32_t i = 0; i < 16; ++i)
      if (i < bytes) (i < 8 ? pack.low : pack.high) |= uint64_t(uint8_t(from[i])) << (i % 8 * 8);
    return pack;
  }
  static __noinline__ __device__ void store_bytes(std::byte* to, Pack pack, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; ++i)
      to[i] = std::byte(uint8_t((i < 8 ? pack.low : pack.high) >> (i % 8 * 8)));
  }

  // As much as can be moved as T, from `done` on.
  template <class T>
  __device__ void copy_as(std::byte* to, const void* from, uint32_t bytes, uint32_t& done) {
    if ((uint64_t(from) | uint64_t(to)) % sizeof(T) != 0) return;
    const uint32_t end = bytes / sizeof(T);
    for (uint32_t k = done / sizeof(T) + thread_index(); k < end; k += threads_)
      reinterpret_cast<T*>(to)[k] = static_cast<const T*>(from)[k];
    done = end * sizeof(T);
  }
  __device__ void* copy(std::byte* to, const void* from, uint32_t bytes) {
    uint32_t done = 0;
    copy_as<Pack>(to, from, bytes, done);
    copy_as<uint64_t>(to, from, bytes, done);
    copy_as<uint32_t>(to, from, bytes, done);
    return to;
  }

  __device__ std::byte* lane_stage(uint32_t slot) const {
    return stage_ + slot * (uint32_t(sizeof(Lane)) + plan_room_);
  }

  static constexpr uint32_t kEagerPolls = 64;

  uint32_t threads_;
  std::byte* stage_;  // Stage[]
  uint32_t plan_room_;
};

// A thread of the daemon, whose block may serve another part than that of its number (device/daemon_block.h).
class DaemonMachine : public CudaMachine {
 public:
  static constexpr bool kRoams = true;
  __device__ DaemonMachine(uint32_t threads, DaemonStage* stages, uint32_t first)
      : CudaMachine(threads, stages), block_(first + blockIdx.x) {}
  __device__ uint32_t block_index() const { return block_; }
  __device__ void become(uint32_t block) { block_ = block; }

 private:
  uint32_t block_;
};

// A thread of an operation that begins in one kernel with others.
class StartMachine : public CudaMachine {
 public:
  __device__ StartMachine(uint32_t threads, StartStage* stage, uint32_t block)
      : CudaMachine(threads, stage), block_(block) {}
  __device__ uint32_t block_index() const { return block_; }

 private:
  const uint32_t block_;
};

}  // namespace starling::cuda
