#include "machine/cuda/executor.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "base/env.h"
#include "device/bind.h"
#include "machine/cpu/futex.h"
#include "machine/cpu/lock_soon.h"
#include "machine/cuda/error.h"

namespace starling::cuda {
namespace {

constexpr uint64_t kRestartPeriodNs = 50'000;  // stuck operations are tried again after so long
constexpr uint64_t kQuitPeriodNs =
    1'000'000;  // only the host ends a residency: after so long without a completion
constexpr uint64_t kMissingPeriodNs = 10'000'000;  // but where ranks have not called them yet
constexpr uint64_t kSoonNs = 30'000;
constexpr uint64_t kErrorPeriodNs =
    2'000'000;  // how often the driver is asked whether the kernel still lives
constexpr uint32_t kLaunchLimit = 512;  // the driver makes its callers wait from 1,021 on
static_assert(3 * device::kMostTogether <= kLaunchLimit);  // StreamHost::entries_each()
// Beyond it a guard has to be there before a stream stands, and where that cannot come, its caller waits.
// Each may keep a multiprocessor once it is woken.
constexpr uint32_t kWatchedStreams = 64;
constexpr uint32_t kWatchShare = 2;  // of the GPU's, at most
// Those of the first streams have more blocks: a program's main stream that stands keeps its launch queue
// full, and with it the daemon out, and one block alone is slow.
constexpr uint32_t kWideWatches = 2;
constexpr uint32_t kWatchBlocks = 16;
// A daemon comes within 50 us mostly; beside a caller whose launch queue is full in 0.3 to 1.2 ms, and while
// that stands not at all. Woken, a watch costs a step 0.4 to 1.2 ms (bench/results/gpu_train_wakes.txt).
constexpr uint64_t kWakeNs = 1'000'000;
// A stream that stands goes on within microseconds, where fewer stand than there are hardware queues.
constexpr uint64_t kTurnNs = 200'000;
constexpr uint64_t kServedNs = 1'000'000'000;
constexpr uint64_t kCallRowNs = 100'000;
// A program that synchronizes its device while another thread calls waits for so long.
constexpr uint64_t kCallLifeNs = 2'000'000;
constexpr uint32_t kGateShare = 8;  // of the GPU's multiprocessors, that gates may keep
constexpr uint64_t kMessageBytesANs = 200;  // a message of its own takes less, mostly
constexpr uint64_t kReplayBudgetNs = 500'000;
constexpr uint64_t kReplayBytesANs = 100;  // peers read a buffer at least so fast, and its owner waits

constexpr uint64_t kRingPatience = 4;  // tiles
constexpr uint64_t kLineTileBytes = 8 << 20;  // of all blocks, at least: who is late is not so for less

// Rings, and chains of puts: a late block keeps the next ones waiting, tile by tile.
bool is_line(const PlanView& plan) {
  const Collective kind = plan.header->collective;
  const BlockPlan& block = plan.blocks()[0];
  if (kind == Collective::kAllReduce || kind == Collective::kAllGather || kind == Collective::kReduceScatter)
    return block.receive_count == 1;
  if (kind != Collective::kBroadcast && kind != Collective::kReduce) return false;
  const auto is_put = [](const Instruction& i) { return (i.flags & kPut) != 0; };
  const Instruction* const first = plan.instructions() + block.instruction_first;
  return block.receive_count <= 1 && block.send_count <= 1 &&
         std::any_of(first, first + block.instruction_count, is_put);
}

// What the block hears first of a peer is that a tile has landed.
bool begins_with_landing(const PlanView& plan) {
  const BlockPlan& block = plan.blocks()[0];
  const Instruction* const first = plan.instructions() + block.instruction_first;
  const Instruction* const end = first + block.instruction_count;
  const Instruction* const heard =
      std::find_if(first, end, [](const Instruction& i) { return receives(i.opcode); });
  return heard != end && heard->opcode == Opcode::recv && (heard->flags & kPut) != 0;
}

// Of a message that is put or read its receiver, or its sender, sees nothing before all of a tile has moved:
// how long that may take, beside what a start kernel waits for anything.
struct Moving {
  uint64_t first_ns;  // before anything has come
  uint64_t later_ns;
};

Moving moving(const StreamLaunch& launch) {
  const PlanHeader& plan = *launch.plan;
  if (plan.protocol != Protocol::kPull) return {0, 0};
  const uint64_t tile = launch.operation.tile_bytes * plan.block_count;
  const auto taken = [&](uint64_t bytes) {
    return std::min(launch.operation.group_bytes, bytes) / kMessageBytesANs;
  };
  const PlanView view{&plan};
  const uint64_t first = begins_with_landing(view) ? taken(tile) : 0;
  if (plan.collective == Collective::kSendRecv) return {first, taken(tile)};
  if (!is_line(view)) return {first, first};
  return {first, kRingPatience * taken(std::max(tile, kLineTileBytes))};
}

device::Budget budget_of(const StreamLaunch& launch) {
  const Scheduling& s = launch.scheduling;
  const uint64_t patience = launch.patient ? s.quit_period : 0;
  const bool fixed = s.minimum_budget == s.maximum_budget;
  const Moving more = fixed ? Moving{0, 0} : moving(launch);
  return {std::max(s.initial_budget, patience) + (launch.hasty ? more.first_ns : more.later_ns),
          std::max(s.maximum_budget, patience) + more.later_ns, s.success_factor, uint16_t(s.unbounded),
          uint16_t(launch.hasty)};
}

device::StreamFacts facts_of(const ExecutorOptions& options) {
  int processors = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, options.device),
        "cudaDeviceGetAttribute");
  const uint32_t gates = std::max(1u, uint32_t(processors) / kGateShare);
  const uint32_t watched = std::min(kWatchedStreams, uint32_t(processors) / kWatchShare);
  const uint32_t most = std::max(uint32_t(processors) * 3 / 4, watched);  // blocks of all watches together
  const uint32_t wide = (most - watched) / kWideWatches;
  return {kLaunchLimit,
          gates,
          device::kStartLimit,
          single_hardware_queue() ? 1u : 0u,
          kRestartPeriodNs,
          kQuitPeriodNs,
          1,
          options.alone,
          kMissingPeriodNs,
          watched,
          kWideWatches,
          std::clamp(wide, 1u, std::min(kWatchBlocks, options.start.block_count)),
          kWakeNs,
          kTurnNs,
          kServedNs,
          reinterpret_cast<uintptr_t>(cudaStreamPerThread),
          options.calls,
          device::kCallBoxes,
          kCallRowNs,
          uint64_t(settings().call_linger_us) * 1000,
          kCallLifeNs};
}

cpu::WaitPolicy no_waiting() { return {.spins = 1, .idle_spins = 1, .idle_yields = 1, .sleep_ns = 1}; }

}  // namespace

CudaExecutor::CudaExecutor(const ExecutorOptions& options)
    : options_(options),
      device_(options),
      machine_(0, no_waiting(), nullptr, nullptr),
      host_(machine_, device_, facts_of(options), options.policy,
            {options.start.daemon, options.start.completions, options.start.completion_kind, 0,
             options.pool_base, 0, 0, 0, options.policy.watches},
            {options.start.submissions, options.start.block_count, options.start.work, options.drain}) {}

CudaExecutor::~CudaExecutor() {
  // Whoever is inside leaves at its next yield, also with streams that stand: nobody will complete their
  // operations any more. (Streams with watches have been released.) Release: pairs with the relay's look.
  const uint64_t last = options_.policy.watches ? ~uint64_t(0) : host_.launches();
  std::atomic_ref<uint64_t>(*options_.drain).store(last, std::memory_order_release);
  {
    const std::lock_guard lock(mutex_);
    host_.end_calls();
  }
  try {
    device_.synchronize_daemon();
  } catch (const Error&) {
    // The device has failed: nothing runs there any more.
  }
}

void CudaExecutor::ring() {
  std::lock_guard lock(mutex_);
  if (device_.failure().empty()) host_.serve();
}

bool CudaExecutor::keep_running(bool work, bool called) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return true;
  const uint64_t now = cpu::monotonic_ns();
  if (work && now - looked_at_ns_ > kErrorPeriodNs) {
    looked_at_ns_ = now;
    device_.look_soon();
    if (!device_.failure().empty()) return false;
  }
  host_.note_called(called);
  host_.poll();
  const uint64_t next = host_.next_poll();
  hurries_ = next < now + kSoonNs;
  return next != ~uint64_t(0);
}

void CudaExecutor::synchronize() {
  uint64_t target = 0;
  uint64_t helpers = 0;
  {
    std::lock_guard lock(mutex_);
    target = host_.launches();
    helpers = device_.helpers_asked();
  }
  while (device_.last_left() < target || device_.helpers_left() < helpers) {
    device_.look_for_errors();
    if (const std::string why = device_.failure(); !why.empty())
      throw Error(Code::system, why, "see the driver's log (nvidia-smi, dmesg)");
    const timespec nap{0, 5'000};
    nanosleep(&nap, nullptr);
  }
}

bool CudaExecutor::quiet() const {
  std::lock_guard lock(mutex_);
  return host_.settled() && host_.quiet();
}

bool CudaExecutor::submissions_read() const {
  std::lock_guard lock(mutex_);
  return host_.submissions_read();
}

bool CudaExecutor::asks_for_calls() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && host_.asks_for_calls();
}

void CudaExecutor::met(device::StreamEntry& entry) {
  const std::lock_guard lock(mutex_);
  host_.met(entry);
}

void CudaExecutor::note_calls(bool missing) {
  const std::lock_guard lock(mutex_);
  host_.note_calls(missing);
}

bool CudaExecutor::wakes_watches() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) wakes_watches_ = host_.wakes_watches();
  return wakes_watches_;  // as it was a moment ago
}

const device::Watched* CudaExecutor::turn_watches(const device::WatchLook& look, bool needed) {
  const std::lock_guard lock(mutex_);
  return host_.turn_watches(look, needed);
}

bool CudaExecutor::only_kernels() const {
  std::lock_guard lock(mutex_);
  return host_.settled() && !host_.any_rendezvous();
}

// ---- streams ------------------------------------------------------------------------------------------

bool CudaExecutor::may_enter(const device::StreamCall& call) {
  const auto lock = cpu::lock_soon(mutex_);
  return host_.may_enter(call);
}

bool CudaExecutor::may_hold() {
  std::lock_guard lock(mutex_);
  return host_.may_hold();
}

bool CudaExecutor::may_hold(const device::StreamEntry& entry, device::Stream stream, bool by_itself) {
  std::lock_guard lock(mutex_);
  return host_.may_hold(entry, stream, by_itself);
}

bool CudaExecutor::may_stand() {
  std::lock_guard lock(mutex_);
  return host_.may_stand();
}

device::StreamEntry CudaExecutor::enter(const device::StreamCall& call) {
  const auto lock = cpu::lock_soon(mutex_);
  // That handle names another stream on each thread.
  device::StreamCall known = call;
  known.follows = call.follows && call.stream != device::Stream(cudaStreamPerThread);
  return host_.enter(known);
}

void CudaExecutor::abandon(const device::StreamEntry& entry) {
  const std::lock_guard lock(mutex_);
  host_.abandon(entry);
}

uint32_t CudaExecutor::hold(device::StreamEntry& entry, device::Stream stream, bool by_itself) {
  std::lock_guard lock(mutex_);
  return host_.hold(entry, stream, by_itself);
}

void CudaExecutor::completed(const device::StreamEntry& entry) {
  const auto lock = cpu::lock_soon(mutex_);
  host_.completed(entry);
}

void CudaExecutor::poison(const Handover& handover, uint64_t newest) { host_.poison(handover, newest); }

// Where it is built it stays: it is large.
device::StartArguments& CudaExecutor::add_start(Starts& starts, const StreamLaunch& launch) const {
  const BlockMemory* const blocks = launch.scheduling.priority_order ? options_.start.blocks : nullptr;
  return starts.emplace_back(launch.operation, launch.near, launch.handover, launch.lane,
                             options_.start.daemon, launch.priority, uint16_t(0), budget_of(launch),
                             uint64_t(0), nullptr, blocks, nullptr, launch.plan->total_bytes);
}

void CudaExecutor::enqueue(std::span<const StreamLaunch> together) {
  Starts starts;
  std::array<device::Entering, device::kMostTogether> entering;
  std::array<const StreamLaunch*, device::kMostTogether> launches;
  for (size_t k = 0; k < together.size(); ++k) launches[k] = &together[k];
  // In the order of their kernel, as device::put_in_order(): then the argument lies there as it is.
  std::sort(launches.begin(), launches.begin() + ptrdiff_t(together.size()),
            [](const StreamLaunch* a, const StreamLaunch* b) { return a->order < b->order; });
  for (size_t k = 0; k < together.size(); ++k) {
    const StreamLaunch& launch = *launches[k];
    device::StartArguments& start = add_start(starts, launch);
    if (launch.entry.path == device::StreamPath::kKernel)
      device::ProgramBinder(*launch.plan, launch.operation).bind(start.bound);
    entering[k] = {launch.entry, &launch.handover, launch.arrival, &start, launch.order};
  }
  host_.enqueue(together.front().stream, entering.data(), uint32_t(together.size()));
}

void CudaExecutor::wait_for(device::Stream stream, const Handover& handover, uint64_t sequence,
                            uint32_t watch_blocks) {
  host_.wait_for(stream, handover, sequence, watch_blocks);
}

// ---- captures -----------------------------------------------------------------------------------------

bool CudaExecutor::may_capture() const {
  std::lock_guard lock(mutex_);
  return host_.may_capture();
}

bool CudaExecutor::take_gate() {
  std::lock_guard lock(mutex_);
  return host_.take_gate();
}

void CudaExecutor::give_gate() {
  std::lock_guard lock(mutex_);
  host_.give_gate();
}

void CudaExecutor::note_replays(bool under_way) {
  std::lock_guard lock(mutex_);
  host_.note_replays(under_way);
}

void CudaExecutor::capture(std::span<const CapturedLaunch> together) {
  Starts starts;
  std::array<device::Entering, device::kMostTogether> entering;
  for (size_t k = 0; k < together.size(); ++k) {
    const StreamLaunch& launch = together[k].launch;
    device::StartArguments& start = add_start(starts, launch);
    start.captured = together[k].number;
    device::ProgramBinder(*launch.plan, launch.operation).bind(start.bound);
    // Ranks launch a graph at different moments, and a daemon is not there sooner: its host looks for replays
    // once a millisecond.
    const uint64_t budget_ns =
        kReplayBudgetNs + launch.operation.chunk_bytes * launch.operation.rank_count / kReplayBytesANs;
    start.budget.ticks = std::max(start.budget.ticks, budget_ns);
    start.budget.maximum = std::max(start.budget.maximum, budget_ns);
    entering[k] = {launch.entry, &launch.handover, nullptr, &start, launch.order};
  }
  const device::Stream stream = together.front().launch.stream;
  for (const CapturedLaunch& one : together) device_.come_behind(stream, *one.order);
  host_.capture(stream, entering.data(), uint32_t(together.size()));
  for (const CapturedLaunch& one : together) device_.come_before(stream, **one.order);
}

void CudaExecutor::capture_wait(device::Stream stream, const Handover& handover, const uint64_t* captured) {
  host_.capture_wait(stream, handover, captured);
}

}  // namespace starling::cuda
