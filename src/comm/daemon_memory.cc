#include "comm/daemon_memory.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>

#include "base/error.h"

namespace starling {
namespace {

constexpr uint64_t kSubmissionCapacity = 4096;
constexpr uint64_t kCompletionCapacity = 1024;
constexpr uint64_t kTraceCapacity = 16384;

template <class T>
T* sparse(size_t count) {
  void* memory = calloc(count, sizeof(T));
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

}  // namespace

DaemonOwner::DaemonOwner(uint32_t block_count)
    : daemon_(std::make_unique<DaemonMemory>()),
      blocks_(block_count),
      pools_(block_count),
      submissions_(kSubmissionCapacity),
      completion_entries_(kCompletionCapacity) {
  if (block_count == 0 || block_count > SubmissionRing::kMaxBlocks)
    throw Error(Code::invalid_argument, std::to_string(block_count) + " blocks are not possible",
                "use 1 to " + std::to_string(SubmissionRing::kMaxBlocks));
  daemon_->block_count = block_count;
  daemon_->blocks = blocks_.data();
  daemon_->submissions.capacity = kSubmissionCapacity;
  daemon_->submissions.entries = submissions_.data();
  completions_.capacity = kCompletionCapacity;
  completions_.entries = completion_entries_.data();
  for (BlockMemory& block : blocks_) {
    // One task a lane at most; kLaneDepth completions a lane at most.
    block.tasks = tasks_.emplace_back(sparse<Task>(kMaxLanes)).get();
    block.unpublished = unpublished_.emplace_back(sparse<uint64_t>(uint64_t(kMaxLanes) * kLaneDepth)).get();
    block.trace.capacity = kTraceCapacity;
    block.trace.records = records_.emplace_back(sparse<TraceRecord>(kTraceCapacity)).get();
  }
}

void DaemonOwner::share_pool(uint64_t slots) {
  for (uint64_t slot = 0; slot < slots; ++slot)
    pools_[slot % pools_.size()].push_back(kPoolSlot + uint32_t(slot));
  for (size_t b = 0; b < pools_.size(); ++b) {
    std::reverse(pools_[b].begin(), pools_[b].end());  // low slots first: few pages are touched
    blocks_[b].pool = {pools_[b].data(), uint32_t(pools_[b].size()), uint32_t(pools_[b].size())};
  }
}

void DaemonOwner::set_lane(uint32_t id, Lane* lane) {
  Lane**& segment = daemon_->segments[id / kLaneSegment];
  if (segment == nullptr) segment = segments_.emplace_back(std::make_unique<Lane*[]>(kLaneSegment)).get();
  segment[id % kLaneSegment] = lane;
}

Scheduling scheduling_from(const starling_scheduling& wishes) {
  if (wishes.order != STARLING_ORDER_FIFO && wishes.order != STARLING_ORDER_PRIORITY)
    throw Error(Code::invalid_argument, "order " + std::to_string(int(wishes.order)) + " does not exist",
                "use a value of starling_order");
  auto or_default = [](uint64_t wish, uint64_t otherwise) { return wish ? wish : otherwise; };
  Scheduling s{};
  s.initial_budget = or_default(wishes.initial_budget_ns, 20'000);
  s.minimum_budget = or_default(wishes.minimum_budget_ns, 500);
  s.success_factor = uint32_t(or_default(wishes.success_factor, 20));
  s.position_shift = uint32_t(or_default(wishes.position_shift, 2));
  s.quit_period = or_default(wishes.quit_period_ns, 300'000);
  s.residency_limit = or_default(wishes.residency_limit_ns, 50'000'000);
  s.maximum_budget = std::max<uint64_t>(s.initial_budget, 100'000);
  s.fetch_batch = 8;
  s.priority_order = wishes.order == STARLING_ORDER_PRIORITY;
  s.unbounded = wishes.unbounded != 0;
  s.in_turn = wishes.in_turn != 0 || s.unbounded;
  if (wishes.fixed) {
    s.minimum_budget = s.maximum_budget = s.initial_budget;
    s.success_factor = 1;
    s.position_shift = 0;
  }
  return s;
}

starling_scheduling scheduling_to(const Scheduling& s) {
  starling_scheduling out{};
  out.initial_budget_ns = s.initial_budget;
  out.minimum_budget_ns = s.minimum_budget;
  out.success_factor = s.success_factor;
  out.position_shift = s.position_shift;
  out.quit_period_ns = s.quit_period;
  out.residency_limit_ns = s.residency_limit;
  out.order = s.priority_order ? STARLING_ORDER_PRIORITY : STARLING_ORDER_FIFO;
  out.unbounded = int32_t(s.unbounded);
  out.in_turn = int32_t(s.in_turn);
  return out;
}

device::CompletionQueueKind completion_queue_named(const char* name) {
  const std::string text = name ? name : "packed_ring";
  if (text == "ring") return device::CompletionQueueKind::kRing;
  if (text == "packed_ring") return device::CompletionQueueKind::kPackedRing;
  if (text == "slots") return device::CompletionQueueKind::kSlots;
  throw Error(Code::invalid_argument, "completion queue '" + text + "' does not exist",
              "use ring, packed_ring or slots");
}

}  // namespace starling
