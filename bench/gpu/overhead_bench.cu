// What yielding costs on a GPU, in the form of DFCCL §6.2: loading and saving a context, writing a completion
// entry, shared memory, and memory of 1,000 collectives.
//
//   overhead_bench [ranks] [collectives]        prints one line of JSON; ranks are threads of one process
//
// The times are those of one block of the daemon's size, by the daemon's own data structures, on contexts
// that lie in the GPU's memory (1,000 of them in turn, so none is near): of many in a row, by the GPU's
// clock.
//
//   context_load_us       operation and dynamic context into shared memory, two barriers
//   task_load_us          the same with the plan and the lane's pointers, as the daemon loads a task
//   context_save_us       the dynamic context back into the GPU's memory
//   completion_write_us   an entry of the packed ring in pinned host memory, with its release, in a row
//   completion_write_apart_us  the same when the last one has long arrived, as of operations that end now and
//   then
#include <thread>
#include <vector>

#include "device/daemon.h"
#include "device/start.h"
#include "gpu_ranks.h"
#include "machine/cuda/daemon.h"
#include "machine/cuda/machine.cuh"
#include "meeting.h"

namespace {

using namespace gpu_bench;
using namespace starling;
using cuda::CudaMachine;

constexpr uint32_t kContexts = 1000;
constexpr uint32_t kPlanBytes = 2048;  // of one rank, as a ring of a few channels has
constexpr uint32_t kRounds = 20;
constexpr uint64_t kApartNs = 10'000;

struct Contexts {
  Operation* operations;
  LaneBlock* blocks;
  Lane* lanes;
  std::byte* plans;  // kPlanBytes each
};

struct Spent {
  uint64_t load_ns, task_load_ns, save_ns, completion_ns, completion_apart_ns;
};

__device__ void load(CudaMachine& m, device::ActiveSlot& slot, const Contexts& contexts, uint32_t at) {
  const auto* from = reinterpret_cast<const Pack*>(&contexts.operations[at]);
  for (uint32_t w = m.thread_index(); w < sizeof(Operation) / sizeof(Pack); w += m.thread_count())
    reinterpret_cast<Pack*>(&slot.operation)[w] = from[w];
  if (m.thread_index() == 0) slot.context = contexts.blocks[at].context;
  m.barrier();
}

// Of entries first to last; paused: what passes between two of them is not counted.
__device__ uint64_t time_entries(CudaMachine& m, device::CompletionMemory& completions, uint64_t pause_ns) {
  uint64_t spent = 0, begin = m.now();
  for (uint32_t k = 1; k <= kContexts; ++k) {
    device::publish(m, device::CompletionQueueKind::kPackedRing, completions, k, 0);
    if (pause_ns == 0) continue;
    const uint64_t now = m.now();
    spent += now - begin;
    while ((begin = m.now()) - now < pause_ns) {}
  }
  return pause_ns == 0 ? m.now() - begin : spent;
}

__global__ void __launch_bounds__(cuda::kDaemonThreads, 1)
    overhead_kernel(Contexts contexts, device::CompletionMemory* in_a_row, device::CompletionMemory* apart,
                    Spent* spent) {
  __shared__ device::BlockState state;
  __shared__ CudaMachine::DaemonStage stage;
  CudaMachine m(cuda::kDaemonThreads, &stage);
  device::ActiveSlot& slot = state.slots[0];
  constexpr uint32_t kTimes = kRounds * kContexts;
  uint64_t begin = m.now();
  for (uint32_t k = 0; k < kTimes; ++k) {
    load(m, slot, contexts, k % kContexts);
    m.barrier();
  }
  const uint64_t loaded = m.now() - begin;
  begin = m.now();
  for (uint32_t k = 0; k < kTimes; ++k) {
    const uint32_t at = k % kContexts;
    load(m, slot, contexts, at);
    const auto* far = reinterpret_cast<const PlanHeader*>(contexts.plans + size_t(at) * kPlanBytes);
    const PlanHeader* plan = device::bring_plan_near(m, 0, far, far->total_bytes);
    Lane* near = m.stage_lane(0, &contexts.lanes[at]);
    m.barrier();
    if (m.thread_index() == 0) {
      slot.operation.plan = plan;
      slot.near = near;
    }
    m.barrier();
  }
  const uint64_t task_loaded = m.now() - begin;
  if (m.thread_index() != 0) return;
  begin = m.now();
  for (uint32_t k = 0; k < kTimes; ++k) {
    slot.context.steps = k;
    contexts.blocks[k % kContexts].context = slot.context;
  }
  const uint64_t saved = m.now() - begin;
  const uint64_t row = time_entries(m, *in_a_row, 0);
  *spent = {loaded, task_loaded, saved, row, time_entries(m, *apart, kApartNs)};
}

template <class T>
T* zeroed(size_t count) {
  T* memory = nullptr;
  gpu_bench::cuda(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
  gpu_bench::cuda(cudaMemset(memory, 0, count * sizeof(T)), "cudaMemset");
  return memory;
}

Spent time_contexts() {
  gpu_bench::cuda(cudaSetDevice(0), "cudaSetDevice");
  const Contexts contexts{zeroed<Operation>(kContexts), zeroed<LaneBlock>(kContexts), zeroed<Lane>(kContexts),
                          zeroed<std::byte>(size_t(kContexts) * kPlanBytes)};
  std::vector<std::byte> plans(size_t(kContexts) * kPlanBytes);
  for (uint32_t k = 0; k < kContexts; ++k)
    reinterpret_cast<PlanHeader*>(&plans[size_t(k) * kPlanBytes])->total_bytes = kPlanBytes;
  gpu_bench::cuda(cudaMemcpy(contexts.plans, plans.data(), plans.size(), cudaMemcpyHostToDevice),
                  "cudaMemcpy");
  // As the library has it: the tail in the GPU's memory, entries and the poller's head in the host's.
  constexpr uint64_t kCapacity = 1024;
  static_assert(kContexts <= kCapacity);
  constexpr int kQueues = 2;
  uint64_t* pinned[kQueues] = {};
  device::CompletionMemory queues[kQueues] = {};
  for (int q = 0; q < kQueues; ++q) {
    gpu_bench::cuda(cudaHostAlloc(&pinned[q], (kCapacity + 1) * sizeof(uint64_t), cudaHostAllocMapped),
                    "cudaHostAlloc");
    std::memset(pinned[q], 0, (kCapacity + 1) * sizeof(uint64_t));
    queues[q].capacity = kCapacity;
    queues[q].entries = pinned[q] + 1;
    queues[q].head = pinned[q];
  }
  auto* completions = zeroed<device::CompletionMemory>(kQueues);
  Spent* spent = zeroed<Spent>(1);
  Spent found{};
  for (int round = 0; round < 2; ++round) {  // the second one counts
    gpu_bench::cuda(cudaMemcpy(completions, queues, sizeof queues, cudaMemcpyHostToDevice), "cudaMemcpy");
    overhead_kernel<<<1, cuda::kDaemonThreads>>>(contexts, &completions[0], &completions[1], spent);
    gpu_bench::cuda(cudaGetLastError(), "launch");
    gpu_bench::cuda(cudaMemcpy(&found, spent, sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  for (const uint64_t* entries : pinned)
    if ((entries[kContexts] & device::kTokenMask) != kContexts)
      die("completion queue", "an entry is missing");
  return found;
}

struct Lanes {
  uint64_t lane_bytes = 0, device_bytes = 0;
  uint32_t blocks = 0;
};

// Callbacks count what has ended, and what of it failed.
struct Counters {
  std::atomic<uint32_t> ended{0}, failed{0};

  static void count(starling_status status, const char*, void* user) {
    auto* c = static_cast<Counters*>(user);
    if (status != STARLING_SUCCESS) c->failed.fetch_add(1);
    c->ended.fetch_add(1);
  }
};

starling_operation small_sum(float* buffer) {
  starling_operation sum{};
  sum.struct_bytes = sizeof sum;
  sum.kind = STARLING_ALL_REDUCE;
  sum.input = sum.output = buffer;
  sum.count = 256;
  sum.data_type = STARLING_FLOAT32;
  sum.timeout_ns = 30'000'000'000;
  return sum;
}

void run_registered(const Member& member, int ranks, uint32_t collectives, float* buffer,
                    Counters& counters) {
  std::vector<uint32_t> devices;
  for (int r = 0; r < ranks; ++r) devices.push_back(uint32_t(r));
  const starling_operation shape = small_sum(nullptr);
  for (uint32_t k = 0; k < collectives; ++k)
    ok(starling_register(member.comm, k, devices.data(), uint32_t(ranks), &shape), "register");
  for (uint32_t k = 0; k < collectives; ++k)
    ok(starling_run(member.comm, k, buffer, buffer, Counters::count, &counters), "run");
}

void run_named(const Member& member, uint32_t collectives, float* buffer, Counters& counters) {
  starling_operation sum = small_sum(buffer);
  sum.callback = Counters::count;
  sum.user = &counters;
  for (uint32_t k = 0; k < collectives; ++k) {
    const std::string name = "gradient " + std::to_string(k);
    sum.lane = name.c_str();
    ok(starling_submit(member.comm, &sum, nullptr), "submit");
  }
}

// As many collectives, each in a lane of its own: registered ones, whose lanes have their plan's channels, or
// lanes that have a name, which take any operation. Each runs once, so all are connected.
Lanes measure_lanes(Meeting& meeting, Store& store, int rank, int ranks, int devices, uint32_t collectives,
                    bool named) {
  const Member member(rank, ranks, rank % devices, &store);
  float* buffer = zeroed<float>(256);
  size_t free_before = 0, free_after = 0, total = 0;
  gpu_bench::cuda(cudaDeviceSynchronize(), "synchronize");
  gpu_bench::cuda(cudaMemGetInfo(&free_before, &total), "cudaMemGetInfo");
  Counters counters;
  if (named)
    run_named(member, collectives, buffer, counters);
  else
    run_registered(member, ranks, collectives, buffer, counters);
  while (counters.ended.load() < collectives) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (counters.failed.load() != 0) die(named ? "named lanes" : "registered collectives", "some failed");
  gpu_bench::cuda(cudaMemGetInfo(&free_after, &total), "cudaMemGetInfo");
  starling_statistics s{};
  s.struct_bytes = sizeof s;
  ok(starling_context_statistics(member.context, &s), "statistics");
  meeting.barrier();
  return {s.lane_bytes, free_before - std::min(free_after, free_before),
          starling_context_blocks(member.context)};
}

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  signal(SIGALRM, end_hang);
  begin_step("contexts", 30);
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int devices = devices_for(ranks);
  const uint32_t collectives = argc > 2 ? uint32_t(std::atoi(argv[2])) : 1000;
  const Spent spent = time_contexts();
  Lanes lanes[2];
  for (const bool named : {false, true}) {
    Meeting* meeting = Meeting::make(ranks);
    Store store;
    run_ranks(ranks, false, [&](int rank) {
      begin_step(named ? "named lanes" : "registered collectives", 60);
      const Lanes mine = measure_lanes(*meeting, store, rank, ranks, devices, collectives, named);
      if (rank == 0) lanes[named] = mine;
    });
  }
  cudaDeviceProp properties{};
  gpu_bench::cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  const double times = double(kRounds) * kContexts * 1e3;
  std::printf(
      "{\"device\": \"%s\", \"gpus\": %d, \"ranks\": %d, \"context_load_us\": %.4f, \"task_load_us\": %.4f, "
      "\"context_save_us\": %.4f, \"completion_write_us\": %.4f, \"completion_write_apart_us\": %.4f, "
      "\"context_bytes\": %zu, \"daemon_shared_bytes\": %zu, \"start_shared_bytes\": %zu, ",
      properties.name, devices, ranks, double(spent.load_ns) / times, double(spent.task_load_ns) / times,
      double(spent.save_ns) / times, double(spent.completion_ns) / (kContexts * 1e3),
      double(spent.completion_apart_ns) / (kContexts * 1e3), sizeof(DynamicContext),
      sizeof(device::BlockState) + device::kActiveSlots * sizeof(CudaMachine::DaemonStage),
      sizeof(device::StartState) + sizeof(CudaMachine::StartStage));
  const Lanes &registered = lanes[false], &named = lanes[true];
  const double blocks = std::max(registered.blocks, 1u);
  std::printf(
      "\"collectives\": %u, \"blocks\": %u, \"lane_bytes\": %llu, \"device_bytes\": %llu, "
      "\"bytes_per_block\": %.0f, \"named_lane_bytes\": %llu, \"named_device_bytes\": %llu, "
      "\"named_bytes_per_block\": %.0f}\n",
      collectives, registered.blocks, (unsigned long long)registered.lane_bytes,
      (unsigned long long)registered.device_bytes, double(registered.lane_bytes) / blocks,
      (unsigned long long)named.lane_bytes, (unsigned long long)named.device_bytes,
      double(named.lane_bytes) / blocks);
  std::fflush(stdout);
  _exit(0);
}
