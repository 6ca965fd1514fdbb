// Operations ordered on CUDA streams, Starling and NCCL side by side in one run; ranks are threads of one
// process.
//
//   stream_bench times [gpus] [largest bytes] [algorithm]
//       all_reduce, float32, out of place, the stream held until it is complete; by the library's choice, or
//       an algorithm with all blocks
//   stream_bench disorder [gpus] [iterations] [k]
//       eight all-reduces in a random order of each rank's own, with cudaDeviceSynchronize after every k-th
//       (0: never); Starling only
//
// times: `alone` from the call to the end of cudaStreamSynchronize; `call` what the call takes of the
// caller's time, and `burst` the time of an operation, both of 50 that stand one behind the other in the
// stream; `gpu` the same where all of them are in the stream before the first may begin, so that no caller
// counts, by the GPU's clock.
#include <starling/starling.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "gpu_ranks.h"

namespace {

using namespace gpu_bench;

constexpr int kBurst = 50;
constexpr int kRounds = 15;

struct Job {
  int gpus;
  Store store;
  std::barrier<> barrier;
  Nccl nccl{};
  std::vector<Nccl::Comm> comms;
  bool with_nccl = false;
  explicit Job(int count) : gpus(count), barrier(count), comms(size_t(count), nullptr) {}
};

__global__ void fill(float* to, size_t count, float value) {
  for (size_t k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += size_t(gridDim.x) * blockDim.x)
    to[k] = value + float(k % 31);
}
__global__ void compare(const float* seen, size_t count, float value, float factor, unsigned* wrong) {
  for (size_t k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += size_t(gridDim.x) * blockDim.x)
    if (seen[k] != value + factor * float(k % 31)) atomicAdd(wrong, 1);
}

void print_statistics(const Member& member, const char* what) {
  starling_statistics s{};
  s.struct_bytes = sizeof s;
  ok(starling_context_statistics(member.context, &s), "statistics");
  std::printf("# %s: %llu operations, launches of the daemon's blocks %llu, parks %llu, resumes %llu\n", what,
              (unsigned long long)s.submissions, (unsigned long long)s.launches, (unsigned long long)s.parks,
              (unsigned long long)s.resumes);
}

// Keeps its stream until the host says so, or for some seconds.
__global__ void stand(const volatile unsigned* go) {
  for (unsigned k = 0; *go == 0 && k < (1u << 23); ++k) __nanosleep(100);
}

starling_operation all_reduce(const float* input, float* output, size_t count, cudaStream_t stream) {
  starling_operation op{};
  op.struct_bytes = sizeof op;
  op.kind = STARLING_ALL_REDUCE;
  op.input = input;
  op.output = output;
  op.count = count;
  op.data_type = STARLING_FLOAT32;
  op.start = STARLING_START_HOLD_STREAM;
  op.stream = stream;
  return op;
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Times {
  double alone_us, call_us, burst_us, gpu_us;
};

template <class Call>
Times measure(Job& job, cudaStream_t stream, int burst, Call&& call) {
  std::vector<double> alone, calls, bursts, gpu;
  for (int round = 0; round < 3 * kRounds; ++round) {
    job.barrier.arrive_and_wait();
    const auto start = Clock::now();
    call();
    cuda(cudaStreamSynchronize(stream), "synchronize");
    alone.push_back(us_since(start));
  }
  for (int round = 0; round < kRounds; ++round) {
    job.barrier.arrive_and_wait();
    const auto start = Clock::now();
    for (int k = 0; k < burst; ++k) call();
    calls.push_back(us_since(start) / burst);
    cuda(cudaStreamSynchronize(stream), "synchronize");
    bursts.push_back(us_since(start) / burst);
  }
  unsigned* go;
  cuda(cudaHostAlloc(&go, sizeof *go, cudaHostAllocMapped), "cudaHostAlloc");
  cudaEvent_t begin, end;
  cuda(cudaEventCreate(&begin), "event");
  cuda(cudaEventCreate(&end), "event");
  for (int round = 0; round < kRounds; ++round) {
    *go = 0;
    stand<<<1, 1, 0, stream>>>(go);
    cuda(cudaEventRecord(begin, stream), "event");
    for (int k = 0; k < burst; ++k) call();
    cuda(cudaEventRecord(end, stream), "event");
    job.barrier.arrive_and_wait();
    *static_cast<volatile unsigned*>(go) = 1;
    cuda(cudaStreamSynchronize(stream), "synchronize");
    float ms;
    cuda(cudaEventElapsedTime(&ms, begin, end), "event");
    gpu.push_back(1e3 * ms / burst);
  }
  cuda(cudaEventDestroy(begin), "event");
  cuda(cudaEventDestroy(end), "event");
  cuda(cudaFreeHost(go), "cudaFreeHost");
  return {median(alone), median(calls), median(bursts), median(gpu)};
}

void times(Job& job, int rank, size_t largest, const char* algorithm) {
  const Member member(rank, job.gpus, rank % devices_for(job.gpus), &job.store);
  float *input, *output;
  unsigned* wrong;
  cuda(cudaMalloc(&input, largest), "cudaMalloc");
  cuda(cudaMalloc(&output, largest), "cudaMalloc");
  cuda(cudaHostAlloc(&wrong, sizeof *wrong, cudaHostAllocMapped), "cudaHostAlloc");
  *wrong = 0;
  cudaStream_t stream;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  fill<<<64, 256, 0, stream>>>(input, largest / 4, float(rank));
  cuda(cudaStreamSynchronize(stream), "synchronize");
  for (size_t bytes = 8; bytes <= largest; bytes *= bytes < (256 << 10) ? 8 : 2) {
    const int burst = bytes > (4 << 20) ? 10 : kBurst;
    fill<<<64, 256, 0, stream>>>(output, bytes / 4, -1);
    starling_operation op = all_reduce(input, output, bytes / 4, stream);
    op.algorithm = algorithm;
    const Times ours =
        measure(job, stream, burst, [&] { ok(starling_submit(member.comm, &op, nullptr), "submit"); });
    const float sum = float(job.gpus * (job.gpus - 1) / 2);
    unsigned* seen;
    cuda(cudaMalloc(&seen, 4), "cudaMalloc");
    cuda(cudaMemsetAsync(seen, 0, 4, stream), "memset");
    compare<<<64, 256, 0, stream>>>(output, bytes / 4, sum, float(job.gpus), seen);
    cuda(cudaMemcpyAsync(wrong, seen, 4, cudaMemcpyDeviceToHost, stream), "copy");
    cuda(cudaStreamSynchronize(stream), "synchronize");
    if (*wrong != 0) die("all_reduce", "wrong sum");
    Times theirs{};
    if (job.with_nccl)
      theirs = measure(job, stream, burst, [&] {
        if (job.nccl.all_reduce(input, output, bytes / 4, 7, 0, job.comms[size_t(rank)], stream) != 0)
          die("nccl", "all_reduce");
      });
    if (rank == 0)
      std::printf("%10zu | %8.1f %8.1f %8.1f %8.1f | %8.1f %8.1f %8.1f %8.1f\n", bytes, ours.alone_us,
                  ours.call_us, ours.burst_us, ours.gpu_us, theirs.alone_us, theirs.call_us, theirs.burst_us,
                  theirs.gpu_us);
  }
  job.barrier.arrive_and_wait();
  if (rank == 0) print_statistics(member, "rank 0");
}

void disorder(Job& job, int rank, int iterations, int every) {
  constexpr int kLanes = 8;
  const Member member(rank, job.gpus, rank % devices_for(job.gpus), &job.store);
  std::vector<float*> inputs(kLanes), outputs(kLanes);
  std::vector<size_t> counts(kLanes);
  std::vector<cudaStream_t> streams(kLanes);
  unsigned* wrong;
  cuda(cudaMalloc(&wrong, 4), "cudaMalloc");
  cuda(cudaMemset(wrong, 0, 4), "memset");
  for (int l = 0; l < kLanes; ++l) {
    counts[l] = size_t(64) << l;
    cuda(cudaMalloc(&inputs[l], counts[l] * 4), "cudaMalloc");
    cuda(cudaMalloc(&outputs[l], counts[l] * 4), "cudaMalloc");
    cuda(cudaStreamCreateWithFlags(&streams[l], cudaStreamNonBlocking), "stream");
  }
  std::mt19937 random(unsigned(rank) * 7919 + 1);
  const auto start = Clock::now();
  for (int k = 0; k < iterations; ++k) {
    std::vector<int> order(kLanes);
    for (int l = 0; l < kLanes; ++l) order[l] = l;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<starling_request*> requests(kLanes);
    int submitted = 0;
    for (const int l : order) {
      fill<<<8, 256, 0, streams[l]>>>(inputs[l], counts[l], float(rank + k % 100 + l));
      starling_operation op = all_reduce(inputs[l], outputs[l], counts[l], streams[l]);
      const std::string lane = "gradient " + std::to_string(l);
      op.lane = lane.c_str();
      op.start = STARLING_START_ON_STREAM;
      ok(starling_submit(member.comm, &op, &requests[l]), "submit");
      if (every != 0 && ++submitted % every == 0) cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    for (int l = 0; l < kLanes; ++l) {
      ok(starling_stream_wait(requests[l], streams[l]), "stream wait");
      const float value = float(job.gpus * (job.gpus - 1) / 2 + job.gpus * (k % 100 + l));
      compare<<<8, 256, 0, streams[l]>>>(outputs[l], counts[l], value, float(job.gpus), wrong);
    }
    for (int l = 0; l < kLanes; ++l) {
      ok(starling_wait(requests[l], 20'000'000'000), "wait");
      starling_request_free(requests[l]);
    }
  }
  cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  unsigned seen = 0;
  cuda(cudaMemcpy(&seen, wrong, 4, cudaMemcpyDeviceToHost), "copy");
  if (seen != 0) die("disorder", "wrong sums");
  if (rank == 0)
    std::printf("# disorder, synchronization after every %d: %.0f us an iteration, all right\n", every,
                us_since(start) / iterations);
  print_statistics(member, "a rank");
  job.barrier.arrive_and_wait();
}

}  // namespace

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string mode = argc > 1 ? argv[1] : "times";
  int gpus = 0;
  cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  const char* per_gpu = std::getenv("RANKS_PER_GPU");  // as devices_for()
  gpus *= per_gpu != nullptr ? std::max(1, std::atoi(per_gpu)) : 1;
  if (argc > 2) gpus = std::min(gpus, std::atoi(argv[2]));
  Job job(gpus);
  if (mode == "times") {
    job.with_nccl = devices_for(gpus) == gpus && job.nccl.load() &&
                    job.nccl.init_all(job.comms.data(), gpus, nullptr) == 0;
    if (!job.with_nccl) std::printf("# no NCCL: libnccl.so.2 was not found, or ranks share a GPU\n");
    std::printf(
        "# all_reduce of float32 on streams of %d GPUs, us; Starling | NCCL\n%10s | %8s %8s %8s %8s | %8s "
        "%8s %8s %8s\n",
        gpus, "bytes", "alone", "call", "burst", "gpu", "alone", "call", "burst", "gpu");
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < gpus; ++r)
    threads.emplace_back([&, r] {
      if (mode == "times")
        times(job, r, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : size_t(64) << 20,
              argc > 4 ? argv[4] : nullptr);
      else
        disorder(job, r, argc > 3 ? std::atoi(argv[3]) : 200, argc > 4 ? std::atoi(argv[4]) : 1);
    });
  for (std::thread& thread : threads) thread.join();
  return 0;
}
