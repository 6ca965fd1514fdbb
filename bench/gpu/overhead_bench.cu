// What yielding costs on a GPU, in the form of DFCCL §6.2: loading and saving a context, writing a completion
// entry, shared memory, and memory of 1,000 collectives.
//
//   overhead_bench [gpus] [collectives]        prints one line of JSON; ranks are threads of one process
//
// The times are those of one block of the daemon's size, by the daemon's own data structures, on contexts
// that lie in the GPU's memory (1,000 of them in turn, so none is near): of many in a row, by the GPU's
// clock.
//
//   context_load_us       operation and dynamic context into shared memory, two barriers
//   task_load_us          the same with the plan and the lane's pointers, as the daemon loads a task
//   context_save_us       the dynamic context back into the GPU's memory
//   completion_write_us   an entry of the packed ring in pinned host memory, with its release
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

struct Contexts {
  Operation* operations;
  LaneBlock* blocks;
  Lane* lanes;
  std::byte* plans;  // kPlanBytes each
};

struct Spent {
  uint64_t load_ns, task_load_ns, save_ns, completion_ns;
};

__device__ void load(CudaMachine& m, device::ActiveSlot& slot, const Contexts& contexts, uint32_t at) {
  const auto* from = reinterpret_cast<const Pack*>(&contexts.operations[at]);
  for (uint32_t w = m.thread_index(); w < sizeof(Operation) / sizeof(Pack); w += m.thread_count())
    reinterpret_cast<Pack*>(&slot.operation)[w] = from[w];
  if (m.thread_index() == 0) slot.context = contexts.blocks[at].context;
  m.barrier();
}

__global__ void __launch_bounds__(cuda::kDaemonThreads, 1)
    overhead_kernel(Contexts contexts, device::CompletionMemory* completions, Spent* spent) {
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
  begin = m.now();
  for (uint32_t k = 1; k <= kContexts; ++k)
    device::publish(m, device::CompletionQueueKind::kPackedRing, *completions, k, 0);
  *spent = {loaded, task_loaded, saved, m.now() - begin};
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
  uint64_t* pinned = nullptr;
  constexpr uint64_t kCapacity = 1024;
  static_assert(kContexts <= kCapacity);
  gpu_bench::cuda(cudaHostAlloc(&pinned, (kCapacity + 1) * sizeof(uint64_t), cudaHostAllocMapped),
                  "cudaHostAlloc");
  std::memset(pinned, 0, (kCapacity + 1) * sizeof(uint64_t));
  device::CompletionMemory queue{};
  queue.capacity = kCapacity;
  queue.entries = pinned + 1;
  queue.head = pinned;
  auto* completions = zeroed<device::CompletionMemory>(1);
  gpu_bench::cuda(cudaMemcpy(completions, &queue, sizeof queue, cudaMemcpyHostToDevice), "cudaMemcpy");
  Spent* spent = zeroed<Spent>(1);
  Spent found{};
  for (int round = 0; round < 2; ++round) {  // the second one counts
    gpu_bench::cuda(cudaMemcpy(completions, &queue, sizeof queue, cudaMemcpyHostToDevice), "cudaMemcpy");
    overhead_kernel<<<1, cuda::kDaemonThreads>>>(contexts, completions, spent);
    gpu_bench::cuda(cudaGetLastError(), "launch");
    gpu_bench::cuda(cudaMemcpy(&found, spent, sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  if ((pinned[kContexts] & device::kTokenMask) != kContexts) die("completion queue", "an entry is missing");
  return found;
}

struct Lanes {
  uint64_t lane_bytes = 0, device_bytes = 0;
  uint32_t blocks = 0;
};

// Registers the collectives on every rank and runs each once, so that all are connected.
Lanes measure_lanes(Meeting& meeting, Store& store, int rank, int gpus, uint32_t collectives) {
  const Member member(rank, gpus, rank, &store);
  float* buffer = zeroed<float>(256);
  starling_operation shape{};
  shape.struct_bytes = sizeof shape;
  shape.kind = STARLING_ALL_REDUCE;
  shape.count = 256;
  shape.data_type = STARLING_FLOAT32;
  shape.timeout_ns = 30'000'000'000;
  std::vector<uint32_t> devices;
  for (int r = 0; r < gpus; ++r) devices.push_back(uint32_t(r));
  size_t free_before = 0, free_after = 0, total = 0;
  gpu_bench::cuda(cudaDeviceSynchronize(), "synchronize");
  gpu_bench::cuda(cudaMemGetInfo(&free_before, &total), "cudaMemGetInfo");
  for (uint32_t k = 0; k < collectives; ++k)
    ok(starling_register(member.comm, k, devices.data(), uint32_t(gpus), &shape), "register");
  std::atomic<uint32_t> ended{0}, failed{0};
  struct Counters {
    std::atomic<uint32_t>&ended, &failed;
  } counters{ended, failed};
  const auto count = [](starling_status status, const char*, void* user) {
    auto* c = static_cast<Counters*>(user);
    if (status != STARLING_SUCCESS) c->failed.fetch_add(1);
    c->ended.fetch_add(1);
  };
  for (uint32_t k = 0; k < collectives; ++k)
    ok(starling_run(member.comm, k, buffer, buffer, count, &counters), "run");
  while (ended.load() < collectives) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (failed.load() != 0) die("registered collectives", "some failed");
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
  int gpus = 0;
  gpu_bench::cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  gpus = std::min(gpus, argc > 1 ? std::atoi(argv[1]) : 2);
  const uint32_t collectives = argc > 2 ? uint32_t(std::atoi(argv[2])) : 1000;
  const Spent spent = time_contexts();
  Meeting* meeting = Meeting::make(gpus);
  Store store;
  Lanes lanes;
  run_ranks(gpus, false, [&](int rank) {
    begin_step("registered collectives", 60);
    const Lanes mine = measure_lanes(*meeting, store, rank, gpus, collectives);
    if (rank == 0) lanes = mine;
  });
  cudaDeviceProp properties{};
  gpu_bench::cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  const double times = double(kRounds) * kContexts * 1e3;
  std::printf(
      "{\"device\": \"%s\", \"gpus\": %d, \"context_load_us\": %.4f, \"task_load_us\": %.4f, "
      "\"context_save_us\": %.4f, \"completion_write_us\": %.4f, \"context_bytes\": %zu, "
      "\"daemon_shared_bytes\": %zu, \"start_shared_bytes\": %zu, \"collectives\": %u, \"blocks\": %u, "
      "\"lane_bytes\": %llu, \"device_bytes\": %llu, \"bytes_per_block\": %.0f}\n",
      properties.name, gpus, double(spent.load_ns) / times, double(spent.task_load_ns) / times,
      double(spent.save_ns) / times, double(spent.completion_ns) / (kContexts * 1e3), sizeof(DynamicContext),
      sizeof(device::BlockState) + device::kActiveSlots * sizeof(CudaMachine::DaemonStage),
      sizeof(device::StartState) + sizeof(CudaMachine::StartStage), collectives, lanes.blocks,
      (unsigned long long)lanes.lane_bytes, (unsigned long long)lanes.device_bytes,
      double(lanes.lane_bytes) / std::max(lanes.blocks, 1u));
  std::fflush(stdout);
  _exit(0);
}
