// The sim machine: a block is one to four fibers, time is virtual, memory is modelled, and every operation is
// a place where others may run. Satisfies device::Machine (asserted in core.cc).
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "machine/sim/memory.h"
#include "machine/sim/scheduler.h"
#include "machine/sim/shadow.h"
#include "wire/daemon.h"
#include "wire/doorbell.h"
#include "wire/lane.h"
#include "wire/pack.h"
#include "wire/plan.h"
#include "wire/types.h"

namespace starling::sim {

struct BlockGroup;

// Of a rank's daemon.
struct Bell : Doorbell {
  std::vector<BlockGroup*> blocks;
  uint32_t poller = 0;  // fiber of the rank's host
};

// What all fibers share.
struct World {
  Scheduler scheduler;
  Memory memory;
  Shadow shadow;
  std::vector<Bell> bells;  // by rank; Options::bells
  Region fast{size_t(1) << 22};  // the fast memory of GPUs' blocks, where they keep copies of plans and lanes
};

// The threads of one block, and where they meet.
struct BlockGroup {
  static constexpr uint32_t kMaxThreads = 4;
  uint32_t threads = 1;
  uint32_t unit = 0;  // who writes (memory.h)
  uint32_t fibers[kMaxThreads] = {};
  uint32_t arrived = 0;
  bool value = false;  // of the barrier that is filling
  bool result = false;  // of the last one
  bool listens = false;  // its leader is about to sleep until its rank's bell is rung
  Bell* bell = nullptr;  // of its rank; null: nobody rings
  const uint64_t* trace_written = nullptr;  // accesses to the block's trace take no time
  const BlockMemory* daemon_blocks = nullptr;  // whose traces these are, where blocks change parts
  std::byte* stage = nullptr;  // kStageSlots of SimMachine's; null: the block reads plans where they are
  uint32_t plan_room = 0;  // of a slot, for a plan
};

// device::Combine without its namespace: the data that one instruction moves.
struct Move {
  const std::byte* sources[kMaxFan + 1];
  std::byte* destinations[kMaxFan + 1];
  uint64_t bytes;
  uint32_t source_count;
  uint32_t destination_count;
  uint32_t scaled_source;
  uint32_t divisor;
  double factor;
  DataType data_type;
  ReduceOp reduce_op;
};

class SimMachine {
 public:
  static constexpr uint32_t kThreads = 0;
  static constexpr bool kVectorThreads = false;
  static constexpr bool kReadsOwned = false;
  static constexpr bool kOpensPeers = true;
  static constexpr bool kTakesTurns = true;
  static constexpr bool kStagesPlans = true;
  static constexpr bool kPlainWrites = false;
  static constexpr uint32_t kLaneDepth = starling::kLaneDepth;

  static constexpr uint32_t kStageSlots = 4;  // device::kActiveSlots
  static constexpr uint32_t kLaneStageBytes = 256;
  static constexpr uint32_t kPlanStageBytes = 4096;
  static constexpr uint32_t kStageBytes = kLaneStageBytes + kPlanStageBytes;

  SimMachine(World& world, BlockGroup* group, uint32_t block, uint32_t thread)
      : w_(world), group_(group), block_(block), thread_(thread) {}

  uint32_t thread_index() const { return thread_; }
  uint32_t thread_count() const { return group_ ? group_->threads : 1; }
  uint32_t block_index() const { return block_; }
  void become(uint32_t block) {
    block_ = block;
    if (group_ && group_->daemon_blocks) group_->trace_written = &group_->daemon_blocks[block].trace.written;
  }

  uint64_t load_acquire(const uint64_t* p) { return load(p, true); }
  uint64_t load_relaxed(const uint64_t* p) { return load(p, false); }
  void store_release(uint64_t* p, uint64_t v) { store(p, v, true); }
  void store_relaxed(uint64_t* p, uint64_t v) { store(p, v, false); }
  uint64_t fetch_add(uint64_t* p, uint64_t v) {
    w_.scheduler.step(p);
    return w_.memory.fetch_add(p, v);
  }
  uint64_t add_relaxed(uint64_t* p, uint64_t v) {
    w_.scheduler.step(p);
    return w_.memory.fetch_add(p, v, false);
  }
  uint64_t compare_exchange(uint64_t* p, uint64_t expected, uint64_t desired) {
    w_.scheduler.step(p);
    return w_.memory.compare_exchange(p, expected, desired);
  }
  uint64_t compare_exchange_relaxed(uint64_t* p, uint64_t expected, uint64_t desired) {
    w_.scheduler.step(p);
    return w_.memory.compare_exchange(p, expected, desired, false);
  }
  void fence() {
    w_.scheduler.step();
    w_.memory.fence();
  }

  bool any(bool value) { return thread_count() == 1 ? value : meet(value); }
  void barrier() {
    if (thread_count() > 1) meet(false);
  }
  // As on a GPU; what has no fast memory reads plans and lanes where they are. A barrier must follow.
  bool stages() const { return group_->stage != nullptr; }
  struct PlanStage {
    std::byte* memory;
    uint32_t bytes;
  };
  PlanStage plan_stage(uint32_t slot) const {
    return {group_->stage + slot * kStageBytes + kLaneStageBytes, group_->plan_room};
  }
  void copy_near(std::byte* to, const void* from, uint32_t bytes);
  Lane* stage_lane(uint32_t slot, const Lane* lane);
  Lane* stage_lane(uint32_t slot, const Lane& lane) { return stage_lane(slot, &lane); }
  void stage_operation(Operation& to, const Operation& from, const Lane&) {
    if (thread_ == 0) to = from;
  }

  void write_past_caches(std::byte* to, const std::byte* from, uint64_t bytes) { write(to, from, bytes); }
  void write(std::byte* to, const std::byte* from, uint64_t bytes) {
    w_.shadow.write(to, from, bytes);
    w_.scheduler.note_progress();
  }
  Pack load_few(const std::byte* from, uint64_t bytes) {
    Pack pack{0, 0};
    w_.shadow.will_read(from, bytes);
    std::memcpy(&pack, from, bytes);
    return pack;
  }
  // What others may still write does not count yet, and must not have changed when it does.
  Pack load_early(const std::byte* from, uint64_t bytes) {
    Pack pack{0, 0};
    std::memcpy(&pack, from, bytes);
    return pack;
  }
  void use_early(const std::byte* from, uint64_t bytes, const Pack& pack) {
    const Pack now = load_few(from, bytes);
    if (std::memcmp(&now, &pack, sizeof pack) != 0)
      w_.scheduler.fail("an operand that was loaded before the operation's turn was known has changed since");
  }
  void store_few(std::byte* to, Pack pack, uint64_t bytes) {
    write(to, reinterpret_cast<const std::byte*>(&pack), bytes);
  }
  void write_words(uint64_t* to, uint64_t first, uint64_t second) {
    store(to, first, false);
    store(to + 1, second, false);
    w_.scheduler.note_progress();
  }
  void read_words(const uint64_t* from, uint64_t& first, uint64_t& second) {
    first = load(from, false);
    second = load(from + 1, false);
  }
  void release_words(uint64_t* to, uint64_t first, uint64_t second) {
    store(to, first, true);
    store(to + 1, second, true);
    w_.scheduler.note_progress();
  }
  void release_words_early(uint64_t* to, uint64_t first, uint64_t second) {
    release_words(to, first, second);
  }
  void acquire_words(const uint64_t* from, uint64_t& first, uint64_t& second) {
    first = load(from, true);
    second = load(from + 1, true);
  }
  void store_after_loads(uint64_t* p, uint64_t v) { store(p, v, true); }
  uint64_t load_before_stores(const uint64_t* p) { return load(p, false); }
  void move(const Move& move);
  // 16 bytes of each source, one after the other, into 16 bytes.
  void reduce_unit(const Move& move, const void* in, void* out);

  uint64_t now() const { return w_.scheduler.now(); }
  bool expired(uint64_t start, uint64_t budget);
  void pause(uint32_t attempt);
  void idle(uint32_t pass);
  void busy() {
    if (group_) group_->listens = false;
  }
  void notify(Doorbell* bell) {
    if (bell != nullptr) ring(*static_cast<Bell*>(bell));
  }
  void notify_host() {
    if (group_ && group_->bell != nullptr) ring_host(*group_->bell);
  }
  void ring_host(Bell& bell);

 private:
  bool is_trace(const uint64_t* p) const;
  uint64_t load(const uint64_t* p, bool acquire) {
    if (is_trace(p)) return *p;
    if (w_.memory.seen(p))
      w_.scheduler.step_lightly(p);
    else
      w_.scheduler.step(p);
    return w_.memory.load(p, acquire);
  }
  void store(uint64_t* p, uint64_t v, bool release) {
    if (is_trace(p)) {
      *p = v;
      return;
    }
    w_.scheduler.step(p);
    w_.memory.store(p, v, release);
    if (release) w_.scheduler.step();  // others may act on it before we go on
  }
  void ring(Bell& bell);
  void sleep_at_bell(uint32_t pass);
  bool meet(bool value);
  bool explored_expiry();

  World& w_;
  BlockGroup* group_;  // null: a host's fiber
  uint32_t block_;
  uint32_t thread_;
};

// In the place of device::copy_slice(), found by argument-dependent lookup: the copy takes time, and the
// shadow sees who reads.
void copy_slice(SimMachine& m, std::byte* to, const std::byte* from, uint64_t bytes);

inline bool SimMachine::is_trace(const uint64_t* p) const {
  return group_ && group_->trace_written && (p == group_->trace_written || !w_.memory.region().contains(p));
}

}  // namespace starling::sim
