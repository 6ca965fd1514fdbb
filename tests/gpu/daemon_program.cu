// Goal: the daemon of src/device runs on real GPUs: DFCCL's programs 1 and 2 over NVLink give right sums.
// Method: one thread a GPU, each with its own daemon kernel; named all-reduces in random orders, with and
// without cudaDeviceSynchronize in between; plans and headers are the CPU machine's. Prints one line a case,
// exits 1 on error.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/submission_queue.h"
#include "machine/cpu/machine.h"
#include "machine/cuda/daemon.h"
#include "plan/generate.h"

#include <cuda_runtime.h>

using namespace starling;

#define CUDA(call)                                                                                    \
  do {                                                                                                \
    const cudaError_t status = (call);                                                                \
    if (status != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (false)

namespace {

constexpr uint32_t kLanes = 8;
constexpr uint32_t kBlocks = 8;
constexpr uint32_t kSlotBytes = 1 << 17;
constexpr uint32_t kPrivateSlots = 2;
constexpr uint64_t kBytes[kLanes] = {256, 147456, 2048, 1024, 65536, 147456, 524288, 1048576};

template <class T>
T* on_device(size_t count) {
  T* memory = nullptr;
  CUDA(cudaMalloc(&memory, count * sizeof(T)));
  CUDA(cudaMemset(memory, 0, count * sizeof(T)));
  return memory;
}
template <class T>
T* on_host(size_t count) {
  T* memory = nullptr;
  CUDA(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable));
  std::memset(static_cast<void*>(memory), 0, count * sizeof(T));
  return memory;
}
template <class T>
void upload(T* device, const std::vector<T>& host) {
  CUDA(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
}

struct DeviceLane {
  Lane host;  // as uploaded
  Lane* device;
  Inbox* inboxes;
  Credit* credits;
  std::byte* slots;
  Operation* operations;
  uint64_t targets[kLaneDepth] = {};
  uint64_t sequence = 0;
  float* input;
  float* output;
};

struct Gpu {
  uint32_t rank;
  DaemonMemory* daemon;
  device::CompletionMemory* completions;
  std::vector<DeviceLane> lanes{kLanes};
  const PlanHeader* plan;
  cudaStream_t daemon_stream, copy_stream;
  uint64_t launch = 0;
  uint64_t outstanding = 0;
};

void make_daemon(Gpu& gpu) {
  gpu.daemon = on_host<DaemonMemory>(1);
  gpu.completions = on_host<device::CompletionMemory>(1);
  gpu.completions->capacity = 1024;
  gpu.completions->entries = on_host<uint64_t>(1024);
  DaemonMemory& d = *gpu.daemon;
  d.block_count = kBlocks;
  d.submissions.capacity = 256;
  d.submissions.entries = on_host<Submission>(256);
  d.scheduling = {20'000, 2'000, 400'000, 200'000, 20'000'000, 20, 1, 8, 0, 0, 0};
  std::vector<BlockMemory> blocks(kBlocks);
  for (BlockMemory& block : blocks) {
    block.tasks = on_device<Task>(kLanes);
    block.unpublished = on_device<uint64_t>(kLanes * kLaneDepth);
  }
  d.blocks = on_device<BlockMemory>(kBlocks);
  upload(d.blocks, blocks);
  d.segments[0] = on_host<Lane*>(kLaneSegment);
}

void make_lanes(Gpu& gpu, uint32_t size) {
  for (uint32_t l = 0; l < kLanes; ++l) {
    DeviceLane& lane = gpu.lanes[l];
    const uint64_t ends = size * kBlocks;
    lane.inboxes = on_device<Inbox>(ends);
    lane.credits = on_device<Credit>(ends);
    lane.slots = on_device<std::byte>(ends * kPrivateSlots * kSlotBytes);
    std::vector<Credit> credits(ends);
    for (Credit& credit : credits) {
      credit.granted = kPrivateSlots;
      for (uint32_t k = 0; k < kPrivateSlots; ++k) credit.grants[k] = k;
    }
    upload(lane.credits, credits);
    lane.operations = on_host<Operation>(kLaneDepth);
    lane.input = on_device<float>(kBytes[l] / 4);
    lane.output = on_device<float>(kBytes[l] / 4);
    std::vector<LaneBlock> blocks(kBlocks);
    for (LaneBlock& block : blocks) block.context.sequence = ~uint64_t(0);
    Lane& host = lane.host = Lane{};
    host.blocks = on_device<LaneBlock>(kBlocks);
    upload(host.blocks, blocks);
    host.fault = on_device<uint64_t>(1);
    host.id = l;
    host.peer_count = size;
    host.rank = gpu.rank;
    host.channel_count = kBlocks;
    host.private_slots = kPrivateSlots;
    host.slot_bytes = kSlotBytes;
    host.operations = lane.operations;
    host.finished = on_device<uint64_t>(kLaneDepth);
  }
}

void connect(Gpu& gpu, std::vector<Gpu>& all) {
  const uint32_t size = uint32_t(all.size());
  for (uint32_t l = 0; l < kLanes; ++l) {
    DeviceLane& lane = gpu.lanes[l];
    std::vector<SendEnd> sends(size * kBlocks);
    std::vector<ReceiveEnd> receives(size * kBlocks);
    for (uint32_t peer = 0; peer < size; ++peer) {
      DeviceLane& theirs = all[peer].lanes[l];
      for (uint32_t channel = 0; channel < kBlocks; ++channel) {
        const uint32_t here = peer * kBlocks + channel;
        const uint64_t there = gpu.rank * kBlocks + channel;
        sends[here] = {1,
                       lane.credits + here,
                       theirs.inboxes + there,
                       theirs.slots + there * kPrivateSlots * kSlotBytes,
                       nullptr,
                       0,
                       0,
                       nullptr,
                       peer,
                       0};
        ReceiveEnd& r = receives[here];
        r.connected = 1;
        r.inbox = lane.inboxes + here;
        r.credit = theirs.credits + there;
        r.private_slots = lane.slots + uint64_t(here) * kPrivateSlots * kSlotBytes;
        r.granted = kPrivateSlots;
        for (uint32_t k = 0; k < kPrivateSlots; ++k) r.grants[k] = k;
        r.peer = peer;
      }
    }
    lane.host.sends = on_device<SendEnd>(sends.size());
    lane.host.receives = on_device<ReceiveEnd>(receives.size());
    upload(lane.host.sends, sends);
    upload(lane.host.receives, receives);
    lane.device = on_device<Lane>(1);
    upload(lane.device, {lane.host});
    gpu.daemon->segments[0][l] = lane.device;
  }
}

struct Host {
  Gpu& gpu;
  cpu::CpuMachine machine{0, {64, 1, 1, 1000}, nullptr, nullptr};

  // Launches the daemon if it is not resident: an event-driven start.
  void launch_if_gone() {
    const cudaError_t status = cudaStreamQuery(gpu.daemon_stream);
    if (status == cudaErrorNotReady) return;
    CUDA(status);
    const device::DaemonArguments arguments{gpu.daemon, gpu.completions,
                                            device::CompletionQueueKind::kPackedRing, ++gpu.launch, nullptr};
    CUDA(cudaError_t(cuda::launch_daemon(arguments, kBlocks, gpu.daemon_stream)));
  }

  void submit(uint32_t l) {
    DeviceLane& lane = gpu.lanes[l];
    const uint32_t at = lane.sequence % kLaneDepth;
    Operation op{};
    op.plan = gpu.plan;
    op.sequence = lane.sequence;
    op.buffers[uint32_t(BufferKind::kInput)].base = reinterpret_cast<std::byte*>(lane.input);
    op.buffers[uint32_t(BufferKind::kOutput)].base = reinterpret_cast<std::byte*>(lane.output);
    op.group_bytes = kBytes[l];
    PlanHeader header;
    CUDA(cudaMemcpyAsync(&header, gpu.plan, sizeof header, cudaMemcpyDeviceToHost, gpu.copy_stream));
    CUDA(cudaStreamSynchronize(gpu.copy_stream));
    const uint64_t per_group = header.chunks_per_group;
    op.chunk_bytes = ((kBytes[l] + per_group - 1) / per_group + 15) & ~15ull;
    op.tile_bytes = kSlotBytes;
    op.tile_count = (op.chunk_bytes + op.tile_bytes - 1) / op.tile_bytes;
    op.data_type = DataType::kFloat32;
    op.block_count = uint8_t(header.block_count);
    op.rank_count = header.rank_count;
    op.token = (uint64_t(l) + 1) << 28 | lane.sequence;
    op.finished_target = lane.targets[at] += op.block_count;
    lane.operations[at] = op;
    const Submission submission{l, 0, op.block_count, 0, lane.sequence++};
    while (!device::push_submission(machine, gpu.daemon->submissions, kBlocks, submission)) launch_if_gone();
    ++gpu.outstanding;
    launch_if_gone();
  }

  bool finish(double limit_s) {
    const auto start = std::chrono::steady_clock::now();
    uint64_t token;
    while (gpu.outstanding > 0) {
      while (device::pop(machine, device::CompletionQueueKind::kPackedRing, *gpu.completions, token))
        --gpu.outstanding;
      if (gpu.outstanding > 0) launch_if_gone();
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > limit_s)
        return false;
    }
    return true;
  }
};

bool check(Gpu& gpu, uint32_t l, uint32_t size, int iteration) {
  std::vector<float> output(kBytes[l] / 4);
  CUDA(cudaMemcpyAsync(output.data(), gpu.lanes[l].output, kBytes[l], cudaMemcpyDeviceToHost,
                       gpu.copy_stream));
  CUDA(cudaStreamSynchronize(gpu.copy_stream));
  for (size_t i = 0; i < output.size(); ++i) {
    const float expected = float(size) * float(i % 31 + uint64_t(iteration)) + float(size * (size - 1) / 2);
    if (output[i] == expected) continue;
    std::fprintf(stderr, "rank %u lane %u element %zu: %f, not %f\n", gpu.rank, l, i, output[i], expected);
    return false;
  }
  return true;
}

std::atomic<bool> failed{false};

void run_rank(Gpu& gpu, uint32_t size, int iterations, int synchronize_every, std::barrier<>& barrier) {
  CUDA(cudaSetDevice(int(gpu.rank)));
  Host host{gpu};
  std::mt19937 random(77 + gpu.rank);
  std::vector<uint32_t> order(kLanes);
  for (uint32_t l = 0; l < kLanes; ++l) order[l] = l;
  for (int iteration = 0; iteration < iterations && !failed; ++iteration) {
    for (uint32_t l = 0; l < kLanes; ++l) {
      std::vector<float> input(kBytes[l] / 4);
      for (size_t i = 0; i < input.size(); ++i)
        input[i] = float(i % 31 + uint64_t(iteration)) + float(gpu.rank);
      CUDA(cudaMemcpyAsync(gpu.lanes[l].input, input.data(), kBytes[l], cudaMemcpyHostToDevice,
                           gpu.copy_stream));
      CUDA(cudaStreamSynchronize(gpu.copy_stream));
    }
    std::shuffle(order.begin(), order.end(), random);
    int submitted = 0;
    for (uint32_t l : order) {
      host.submit(l);
      if (synchronize_every != 0 && ++submitted % synchronize_every == 0) CUDA(cudaDeviceSynchronize());
    }
    if (!host.finish(20)) {
      std::fprintf(stderr, "rank %u: %lu operations did not finish in iteration %d\n", gpu.rank,
                   (unsigned long)gpu.outstanding, iteration);
      failed = true;
    }
    for (uint32_t l = 0; l < kLanes && !failed; ++l)
      if (!check(gpu, l, size, iteration)) failed = true;
  }
  barrier.arrive_and_wait();
  CUDA(cudaStreamSynchronize(gpu.daemon_stream));
}

void time_ordered(std::vector<Gpu>& gpus, uint32_t l) {
  constexpr int kRounds = 200;
  std::vector<double> times(kRounds);
  std::vector<std::thread> threads;
  std::barrier barrier(ptrdiff_t(gpus.size()));
  for (Gpu& gpu : gpus)
    threads.emplace_back([&] {
      CUDA(cudaSetDevice(int(gpu.rank)));
      Host host{gpu};
      for (int round = 0; round < kRounds && !failed; ++round) {
        barrier.arrive_and_wait();
        const auto start = std::chrono::steady_clock::now();
        host.submit(l);
        if (!host.finish(10)) failed = true;
        if (gpu.rank == 0)
          times[round] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      }
      barrier.arrive_and_wait();
    });
  for (std::thread& thread : threads) thread.join();
  std::sort(times.begin(), times.end());
  std::printf("  %8lu B: median %.1f us, least %.1f us, from the CPU's submission to its completion\n",
              (unsigned long)kBytes[l], times[kRounds / 2] * 1e6, times[0] * 1e6);
}

void print_counters(Gpu& gpu) {
  std::vector<BlockMemory> blocks(kBlocks);
  CUDA(cudaMemcpy(blocks.data(), gpu.daemon->blocks, kBlocks * sizeof(BlockMemory), cudaMemcpyDeviceToHost));
  const BlockCounters& c = blocks[0].counters;
  std::printf(
      "  rank %u block 0: %lu launches, %lu parks, %lu resumes, %lu loads, %lu saves, quits %lu idle %lu "
      "stuck %lu drained\n",
      gpu.rank, (unsigned long)c.launches, (unsigned long)c.parks, (unsigned long)c.resumes,
      (unsigned long)c.loads, (unsigned long)c.saves, (unsigned long)c.quits_idle,
      (unsigned long)c.quits_stuck, (unsigned long)c.quits_drained);
}

int run_case(const char* algorithm, uint32_t size, int iterations) {
  const Plan plan = generate(algorithm, {Collective::kAllReduce, size, 0, kBlocks, false});
  std::vector<Gpu> gpus(size);
  for (uint32_t r = 0; r < size; ++r) {
    CUDA(cudaSetDevice(int(r)));
    for (uint32_t peer = 0; peer < size; ++peer)
      if (peer != r) {
        const cudaError_t status = cudaDeviceEnablePeerAccess(int(peer), 0);
        if (status != cudaErrorPeerAccessAlreadyEnabled) CUDA(status);
        (void)cudaGetLastError();
      }
    Gpu& gpu = gpus[r];
    gpu.rank = r;
    CUDA(cudaError_t(cuda::preload_daemon()));
    int least, greatest;
    CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA(cudaStreamCreateWithPriority(&gpu.daemon_stream, cudaStreamNonBlocking, greatest));
    CUDA(cudaStreamCreateWithFlags(&gpu.copy_stream, cudaStreamNonBlocking));
    make_daemon(gpu);
    make_lanes(gpu, size);
    auto part = plan.part(r);
    std::byte* bytes = on_device<std::byte>(part.size());
    CUDA(cudaMemcpy(bytes, part.data(), part.size(), cudaMemcpyHostToDevice));
    gpu.plan = reinterpret_cast<const PlanHeader*>(bytes);
  }
  for (Gpu& gpu : gpus) {
    CUDA(cudaSetDevice(int(gpu.rank)));
    connect(gpu, gpus);
    CUDA(cudaDeviceSynchronize());
  }
  for (int synchronize_every : {0, 1, 2, 4}) {
    std::barrier barrier{ptrdiff_t(size)};
    std::vector<std::thread> threads;
    const auto start = std::chrono::steady_clock::now();
    for (Gpu& gpu : gpus)
      threads.emplace_back([&] { run_rank(gpu, size, iterations, synchronize_every, barrier); });
    for (std::thread& thread : threads) thread.join();
    std::printf(
        "%s, %u GPUs, synchronize after every %d: %s, %.2f ms an iteration\n", algorithm, size,
        synchronize_every, failed ? "FAILED" : "ok",
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e3 / iterations);
    if (failed) return 1;
    CUDA(cudaSetDevice(0));
    print_counters(gpus[0]);
  }
  for (uint32_t l : {0u, 2u, 4u, 6u, 7u}) time_ordered(gpus, l);
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 20;
  int devices = 0;
  CUDA(cudaGetDeviceCount(&devices));
  setvbuf(stdout, nullptr, _IOLBF, 0);
  for (const char* algorithm : {"ring", "two_shot", "one_shot"})
    for (uint32_t size : {1u, 2u, 4u})
      if (int(size) <= devices && (size > 1 || devices == 1) && run_case(algorithm, size, iterations) != 0)
        return 1;
  std::printf("all cases passed\n");
  return 0;
}
