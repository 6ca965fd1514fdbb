// Goal: what a graph's kernels are given of a lane of captured operations is right, stays as long as the
// graph, and goes with it; and the host sees replays begin and end, though nobody tells it. Method: a lane on
// a place that is like a GPU's to the host, in plain memory that is counted; the words that blocks would
// write are written by hand.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>

#include "comm/lane.h"
#include "plan/cache.h"
#include "plan/text.h"

namespace starling {
namespace {

class GpuLike final : public Place {
 public:
  explicit GpuLike(cpu::Arena& arena) : arena_(arena) {}
  ~GpuLike() override {
    for (const auto& [memory, bytes] : taken_) std::free(memory);
  }

  const PlaceTraits& traits() const override {
    static constexpr PlaceTraits kTraits{.direct = false,
                                         .notifies = false,
                                         .streams = true,
                                         .lane_depth = kGpuLaneDepth,
                                         .default_blocks = 4,
                                         .lane_limit = 64,
                                         .slot_bytes_limit = 1 << 17,
                                         .packet_bytes_limit = 8192,
                                         .pull_bytes = 1 << 20,
                                         .trace_capacity = 0};
    return kTraits;
  }
  std::string name() const override { return "gpu-like"; }
  std::byte* allocate(uint64_t bytes) override {
    void* memory = std::aligned_alloc(256, (bytes + 255) & ~uint64_t(255));
    std::memset(memory, 0, bytes);
    return taken_.emplace(static_cast<std::byte*>(memory), bytes).first->first;
  }
  void release(std::byte* memory, uint64_t bytes) override {
    const auto found = taken_.find(memory);
    ASSERT_TRUE(found != taken_.end() && found->second == bytes) << "released what was not taken";
    std::free(memory);
    taken_.erase(found);
  }
  std::byte* allocate_shared(uint64_t bytes) override { return allocate(bytes); }
  void release_shared(std::byte* memory, uint64_t bytes) override { release(memory, bytes); }
  uint64_t allocate_exported(uint64_t bytes) override { return arena_.allocate(bytes); }
  void release_exported(uint64_t offset, uint64_t bytes) override { arena_.release(offset, bytes); }
  std::byte* exported(uint64_t offset) const override { return arena_.at(offset); }
  Pool make_pool(uint64_t) override { return {}; }
  void write(void* to, const void* from, uint64_t bytes) override { std::memcpy(to, from, bytes); }
  void flush() override {}
  void read(void* to, const void* from, uint64_t bytes) const override { std::memcpy(to, from, bytes); }
  std::unique_ptr<PeerMemory> attach(const std::shared_ptr<cpu::PeerArena>&) override { return nullptr; }
  bool check_buffer(const void*, const char*) const override { return true; }
  void check_pulled(const void*) const override {}
  std::unique_ptr<Executor> start(const DaemonStart&) override { return nullptr; }

  bool has(const void* memory, uint64_t bytes) const {
    const auto* at = static_cast<const std::byte*>(memory);
    for (const auto& [begin, size] : taken_)
      if (at >= begin && at + bytes <= begin + size) return true;
    return false;
  }
  size_t taken() const { return taken_.size(); }

 private:
  cpu::Arena& arena_;
  std::map<std::byte*, uint64_t> taken_;
};

constexpr uint32_t kBlocks = 4;
constexpr const char* kThroughScratch = R"(starling-plan 1
name through_scratch
collective broadcast
ranks 2
root 0
in_place 0
chunks_per_group 1
groups 1 1
rank 0 scratch 1
block 0
0 copy input[0] -> scratch[0] size input[0]
1 copy input[0] -> output[0] size input[0]
2 send scratch[0] -> >1.0 size input[0]
rank 1 scratch 0
block 0
0 recv <0.0 -> output[0] size output[0]
)";

class Capture : public ::testing::Test {
 protected:
  void begin() {
    LaneOptions options{{1, 2}, "default (capture 0)", 0, 0, {}, kBlocks, 1 << 17, true, true};
    options.members.resize(2);
    lane_ = std::make_unique<HostLane>(options, arena_, place_, shelf_);
    lane_->open(0, kBlocks);
    lane_->begin_captures(17, 5'000'000'000, dropped_);
  }

  Flight flight(starling_collective kind, const char* algorithm = nullptr, const size_t* counts = nullptr) {
    starling_operation call{};
    call.struct_bytes = sizeof call;
    call.kind = kind;
    call.input = input_.data();
    call.output = output_.data();
    call.count = 1000;
    call.data_type = STARLING_FLOAT32;
    call.algorithm = algorithm;
    call.input_counts = call.output_counts = counts;
    LoweringContext context{0, 2, kBlocks, &plans_};
    context.on_gpu = true;
    Flight flight;
    flight.lowered = lower(context, call);
    flight.on_stream = true;
    return flight;
  }

  StreamLaunch capture(Flight&& flight) {
    lane_->bind_captured(flight);
    return lane_->capture(std::move(flight));
  }
  cpu::CpuMachine host() { return {0, {}, &arena_.header()->host, nullptr}; }
  bool look(uint64_t now = 1) {
    cpu::CpuMachine machine = host();
    return lane_->look_at_replays(machine, now);
  }
  void begun(uint64_t number) { *lane_->handover().begun = number + 1; }
  void told(uint64_t number) { lane_->handover().done[number % kGpuLaneDepth].told = number + 1; }

  cpu::Arena arena_{{64 << 20}};
  GpuLike place_{arena_};
  PlanShelf shelf_{place_};
  PlanCache plans_;
  std::vector<float> input_ = std::vector<float>(4000), output_ = std::vector<float>(4000);
  std::shared_ptr<std::atomic<bool>> dropped_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<HostLane> lane_;
};

// As device/start.h computes targets from a number: those of the operation before the first one are reached.
TEST_F(Capture, BeginsAsIfOneRoundHadBeen) {
  begin();
  const Handover& handover = lane_->handover();
  const uint64_t first = *handover.begun;
  EXPECT_EQ(first % kGpuLaneDepth, 0u);
  EXPECT_GT(first, 0u);
  EXPECT_EQ(handover.turns[0].issued, first * kIssued);
  for (uint32_t part = 0; part < kBlocks; ++part) EXPECT_EQ(handover.turns[part].next, first);
  const Lane& lane = *lane_->device();
  ASSERT_NE(lane.handover, nullptr);
  EXPECT_EQ(lane.handover->begun, handover.begun);
  EXPECT_EQ(lane.tables, nullptr);
  const auto finished_before = [&](uint64_t number) { return number / kGpuLaneDepth * handover.width; };
  for (uint64_t number = first; number < first + kGpuLaneDepth; ++number) {
    const uint64_t* finished = lane.finished;
    EXPECT_EQ(finished[number % kGpuLaneDepth], finished_before(number));
    EXPECT_TRUE(
        reached(finished[(number - 1) % kGpuLaneDepth], finished_before(number - 1) + handover.width) ||
        number != first);
  }
  for (uint32_t block = 0; block < kBlocks; ++block) EXPECT_EQ(lane.blocks[block].progress >> 40, first);
}

TEST_F(Capture, GivesKernelsWhatStays) {
  begin();
  std::vector<StreamLaunch> launches;
  const std::array<size_t, 2> counts = {300, 700};
  for (int k = 0; k < 100; ++k)
    launches.push_back(capture(flight(STARLING_ALL_TO_ALL, nullptr, counts.data())));
  const auto& numbers = lane_->captures()->numbers;
  ASSERT_EQ(numbers.size(), launches.size());
  for (size_t k = 0; k < launches.size(); ++k) {
    const Operation& op = launches[k].operation;
    EXPECT_EQ(op.token, 0u);
    EXPECT_NE(launches[k].handover.begun, nullptr);
    EXPECT_TRUE(place_.has(op.plan, sizeof(PlanHeader)));
    EXPECT_TRUE(place_.has(numbers[k], sizeof(uint64_t)));
    EXPECT_TRUE(k == 0 || numbers[k] != numbers[k - 1]);
    const GroupExtent* groups = op.buffers[uint32_t(BufferKind::kInput)].groups;
    ASSERT_TRUE(place_.has(groups, 2 * sizeof(GroupExtent)));
    EXPECT_EQ(groups[0].bytes, 300 * sizeof(float));
    EXPECT_EQ(groups[1].offset_bytes, 300 * sizeof(float));
  }
}

// The first comes behind the last one of the replay before, which is not known.
TEST_F(Capture, FencesWhereBlocksShare) {
  begin();
  EXPECT_TRUE(capture(flight(STARLING_ALL_REDUCE)).operation.fence_previous);
  EXPECT_FALSE(capture(flight(STARLING_ALL_REDUCE)).operation.fence_previous);
  const std::byte* first = nullptr;
  for (int k = 0; k < 3; ++k) {
    Flight one = flight(STARLING_BROADCAST);
    one.lowered.plan = std::make_shared<const Plan>(plan_from_text(kThroughScratch));
    one.lowered.operation.chunk_bytes *= k == 2 ? 4 : 1;
    const Operation op = capture(std::move(one)).operation;
    EXPECT_TRUE(op.fence_previous);
    const std::byte* scratch = op.buffers[uint32_t(BufferKind::kScratch)].base;
    EXPECT_TRUE(place_.has(scratch, op.chunk_bytes));
    if (k == 0) first = scratch;
    EXPECT_EQ(scratch == first, k < 2);  // one piece for all, as long as it is large enough
  }
  EXPECT_TRUE(place_.has(first, 1)) << "kernels of the graph still point there";
}

TEST_F(Capture, ReplaysAreSeen) {
  begin();
  capture(flight(STARLING_ALL_REDUCE));
  capture(flight(STARLING_ALL_GATHER));
  const uint64_t first = *lane_->handover().begun;
  EXPECT_FALSE(look());
  EXPECT_FALSE(lane_->busy());
  EXPECT_TRUE(lane_->in_use());
  begun(first);
  EXPECT_TRUE(look(100));
  EXPECT_TRUE(lane_->busy());
  EXPECT_FALSE(lane_->idle_on_device());
  EXPECT_EQ(lane_->oldest(), first);
  EXPECT_EQ(lane_->captures()->since_ns, 100u);
  EXPECT_FALSE(look(150));
  told(first);
  begun(first + 1);
  EXPECT_TRUE(look(200));
  EXPECT_EQ(lane_->oldest(), first + 1);
  EXPECT_EQ(lane_->captures()->since_ns, 200u);
  EXPECT_EQ(lane_->replayed().lowered.signature.collective, Collective::kAllGather);
  told(first + 1);
  EXPECT_TRUE(look(300));
  EXPECT_FALSE(lane_->busy());
  begun(first + 2);  // the next replay
  EXPECT_TRUE(look(1000));
  EXPECT_EQ(lane_->captures()->since_ns, 1000u);
  EXPECT_EQ(lane_->replayed().lowered.signature.collective, Collective::kAllReduce);
  EXPECT_GT(lane_->newest(), first + 2);
}

// The poller looks at its clock before it looks at replays.
TEST_F(Capture, ReplaysTimeOut) {
  begin();
  capture(flight(STARLING_ALL_REDUCE));
  const uint64_t first = *lane_->handover().begun;
  const uint64_t timeout = 5'000'000'000;
  EXPECT_FALSE(lane_->captures()->timed_out(2 * timeout));
  begun(first);
  look(1000);
  EXPECT_FALSE(lane_->captures()->timed_out(999));
  EXPECT_FALSE(lane_->captures()->timed_out(1000));
  EXPECT_FALSE(lane_->captures()->timed_out(timeout + 999));
  EXPECT_TRUE(lane_->captures()->timed_out(timeout + 1000));
  told(first);
  look(2000);
  EXPECT_FALSE(lane_->captures()->timed_out(2 * timeout));
}

TEST_F(Capture, GoesWithItsGraph) {
  for (const starling_collective kind : {STARLING_ALL_REDUCE, STARLING_BARRIER})
    shelf_.get(flight(kind).lowered.plan, 0);  // plans stay on their shelf
  const size_t before = place_.taken();
  begin();
  for (int k = 0; k < 5; ++k) capture(flight(STARLING_ALL_REDUCE));
  capture(flight(STARLING_BARRIER));
  EXPECT_TRUE(lane_->may_replay());
  dropped_->store(true);
  EXPECT_FALSE(lane_->may_replay());
  EXPECT_FALSE(lane_->in_use());
  EXPECT_GT(place_.taken(), before);
  lane_.reset();
  EXPECT_EQ(place_.taken(), before);
}

}  // namespace
}  // namespace starling
