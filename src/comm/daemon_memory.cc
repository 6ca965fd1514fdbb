#include "comm/daemon_memory.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"

namespace starling {
namespace {

constexpr uint64_t kSubmissionCapacity = 4096;
constexpr uint64_t kCompletionCapacity = 1024;
// Of a daemon that stays (device/daemon_block.h): ranks that are late by less than a second cost it no block.
constexpr uint64_t kRoamPeriods = 16;
constexpr uint64_t kLeavePeriods = 4096;
constexpr uint64_t kMostQuitPeriod = uint64_t(1) << 40;

device::CompletionQueueKind completion_queue_named(const char* name, const Place& place) {
  const std::string text = name ? name : "packed_ring";
  if (text == "packed_ring") return device::CompletionQueueKind::kPackedRing;
  // The other two need the host to see what blocks change atomically: no GPU can do that in the host's
  // memory.
  if ((text == "ring" || text == "slots") && !place.traits().direct)
    throw Error(Code::unsupported, "completion queue '" + text + "' is not possible on " + place.name(),
                "use packed_ring there");
  if (text == "ring") return device::CompletionQueueKind::kRing;
  if (text == "slots") return device::CompletionQueueKind::kSlots;
  throw Error(Code::invalid_argument, "completion queue '" + text + "' does not exist",
              "use ring, packed_ring or slots");
}

}  // namespace

DaemonOwner::DaemonOwner(uint32_t block_count, const Scheduling& scheduling, const char* completion_queue,
                         Place& place)
    : place_(place), completion_kind_(completion_queue_named(completion_queue, place)) {
  if (block_count == 0 || block_count > SubmissionRing::kMaxBlocks)
    throw Error(Code::invalid_argument, std::to_string(block_count) + " blocks are not possible",
                "use 1 to " + std::to_string(SubmissionRing::kMaxBlocks));
  const PlaceTraits& traits = place.traits();
  auto shared_words = [&](uint64_t count) {
    return reinterpret_cast<uint64_t*>(place.allocate_shared(count * sizeof(uint64_t)));
  };
  image_.block_count = block_count;
  image_.scheduling = scheduling;
  submissions_ = {kSubmissionCapacity, shared_words(kSubmissionCapacity),
                  shared_words(block_count * SubmissionRing::kHeadStride), 0};
  image_.submissions = submissions_;
  if (!traits.direct) {
    image_.submissions.entries = make<uint64_t>(kSubmissionCapacity);
    image_.submissions.heads = make<uint64_t>(block_count * SubmissionRing::kHeadStride);
  }
  // Where the host can read them, also where watchers can: in the segment.
  if (traits.direct)
    image_.blocks = reinterpret_cast<BlockMemory*>(
        place.exported(place.allocate_exported(block_count * sizeof(BlockMemory))));
  else
    image_.blocks = make<BlockMemory>(block_count);
  std::vector<BlockMemory> blocks(block_count);
  for (BlockMemory& block : blocks) {
    // One task a lane at most; lane_depth completions a lane at most.
    block.tasks = make<Task>(traits.lane_limit);
    block.unpublished = make<uint64_t>(uint64_t(traits.lane_limit) * traits.lane_depth);
    block.trace.capacity = traits.trace_capacity;
    if (traits.trace_capacity > 0) block.trace.records = make<TraceRecord>(traits.trace_capacity);
  }
  write_blocks(blocks);
  if (traits.streams) {
    image_.work = shared_words(1);
    image_.parked = make<ParkedRing>(block_count);
    std::vector<ParkedRing> rings(block_count);
    constexpr uint64_t kPlaces = device::kStartLimit + kCapturedPlaces;
    static_assert((kPlaces & (kPlaces - 1)) == 0);
    for (ParkedRing& ring : rings) ring = {0, 0, kPlaces, make<Parked>(kPlaces)};
    place.write(image_.parked, rings.data(), rings.size() * sizeof(ParkedRing));
    image_.parts = make<DaemonParts>(1);
    const uint64_t period = std::min(scheduling.quit_period, kMostQuitPeriod);
    const DaemonParts parts{kRoamPeriods * period, kLeavePeriods * period, 0, 0, make<uint64_t>(block_count)};
    place.write(image_.parts, &parts, sizeof parts);
  }
  completions_.capacity = kCompletionCapacity;
  completions_.entries = shared_words(kCompletionCapacity);
  completions_.head = shared_words(1);
  if (traits.direct) {
    device_completions_ = &completions_;
  } else {
    device_completions_ = make<device::CompletionMemory>(1);
    place.write(device_completions_, &completions_, sizeof completions_);
  }
  daemon_ = make<DaemonMemory>(1);
  place.write(daemon_, &image_, sizeof image_);
  place.flush();
}

DaemonStart DaemonOwner::start() const {
  return {daemon_,     device_completions_, completion_kind_,  &submissions_,
          image_.work, image_.blocks,       image_.scheduling, image_.block_count};
}

void DaemonOwner::write_blocks(const std::vector<BlockMemory>& blocks) {
  place_.write(image_.blocks, blocks.data(), blocks.size() * sizeof(BlockMemory));
}

void DaemonOwner::set_scheduling(const Scheduling& scheduling) {
  image_.scheduling = scheduling;
  place_.write(&daemon_->scheduling, &scheduling, sizeof scheduling);
}

void DaemonOwner::share_pool(uint64_t slots) {
  std::vector<BlockMemory> all = blocks();
  for (uint32_t b = 0; b < block_count(); ++b) {
    std::vector<uint32_t> own;
    for (uint64_t slot = b; slot < slots; slot += block_count()) own.push_back(kPoolSlot + uint32_t(slot));
    std::reverse(own.begin(), own.end());  // low slots first: few pages are touched
    SlotPool& pool = all[b].pool;
    pool = {make<uint32_t>(std::max<uint64_t>(own.size(), 1)), uint32_t(own.size()), uint32_t(own.size())};
    place_.write(pool.free, own.data(), own.size() * sizeof(uint32_t));
  }
  write_blocks(all);
  place_.flush();
}

void DaemonOwner::set_lane(uint32_t id, Lane* lane) {
  Lane**& segment = image_.segments[id / kLaneSegment];
  if (segment == nullptr) {
    segment = make<Lane*>(kLaneSegment);
    place_.write(&daemon_->segments[id / kLaneSegment], &segment, sizeof segment);
  }
  place_.write(&segment[id % kLaneSegment], &lane, sizeof lane);
}

std::vector<BlockMemory> DaemonOwner::blocks() const {
  std::vector<BlockMemory> blocks(block_count());
  place_.read(blocks.data(), image_.blocks, blocks.size() * sizeof(BlockMemory));
  return blocks;
}

constexpr uint64_t kShortestResidencyNs = 100'000;

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
  // A daemon that leaves before it has looked at a task would never finish one.
  s.residency_limit = std::max(s.residency_limit, kShortestResidencyNs);
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

}  // namespace starling
