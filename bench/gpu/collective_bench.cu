// all_reduce on the GPUs of one host as threads of one process, Starling and NCCL side by side in one run,
// seen from the CPU: from the call to the moment when the caller knows that the result is there.
//
//   collective_bench [gpus] [largest bytes] [iterations] [smallest bytes] [file.json]
//
// Starling: starling_submit + starling_wait. NCCL: ncclAllReduce + cudaStreamSynchronize. `burst` is the time
// of one of 20 that are submitted before the first is waited for. Every size out of place, then in place.
// NCCL is the library that the loader finds as libnccl.so.2; NVLink multicast is left off
// (NCCL_NVLS_ENABLE=0).
#include <barrier>
#include <thread>
#include <vector>

#include "gpu_ranks.h"

namespace {

using namespace gpu_bench;

constexpr int kBurst = 20;

struct Times {
  double median_us, least_us, burst_us;
};

struct Row {
  size_t bytes;
  bool in_place;
  Times starling, nccl;
};

// `one` runs an operation to its end, `burst` kBurst of them; called by all ranks together.
template <class One, class Burst>
Times measure(std::barrier<>& barrier, int iterations, One&& one, Burst&& burst) {
  std::vector<double> times, bursts;
  for (int k = 0; k < iterations + 5; ++k) {
    barrier.arrive_and_wait();
    const auto start = Clock::now();
    one();
    if (k >= 5) times.push_back(us_since(start));
  }
  for (int k = 0; k < std::max(iterations / kBurst, 3); ++k) {
    barrier.arrive_and_wait();
    const auto start = Clock::now();
    burst();
    bursts.push_back(us_since(start) / kBurst);
  }
  std::sort(times.begin(), times.end());
  std::sort(bursts.begin(), bursts.end());
  return {times[times.size() / 2], times[0], bursts[bursts.size() / 2]};
}

struct Rank {
  int rank, gpus;
  Store& store;
  const Nccl* nccl;
  Nccl::Comm comm;
  std::barrier<>& barrier;
  size_t smallest, largest;
  int iterations;
  std::vector<Row>& rows;  // rank 0 writes them

  void run() {
    const Member member(rank, gpus, rank, store);
    float *input, *output;
    cuda(cudaMalloc(&input, largest), "cudaMalloc");
    cuda(cudaMalloc(&output, largest), "cudaMalloc");
    std::vector<float> ones(largest / 4, float(rank + 1));
    cuda(cudaMemcpy(input, ones.data(), largest, cudaMemcpyHostToDevice), "cudaMemcpy");
    cudaStream_t stream;
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    float* const other = output;
    for (size_t step = 0, bytes = smallest; bytes <= largest; ++step) {
      const bool in_place = step % 2 != 0;
      output = in_place ? input : other;
      // In place the sums of sums would leave the range of floats.
      if (in_place) cuda(cudaMemsetAsync(input, 0, bytes, stream), "memset");
      auto submit = [&](starling_request** request) {
        starling_operation op{};
        op.struct_bytes = sizeof op;
        op.kind = STARLING_ALL_REDUCE;
        op.input = input;
        op.output = output;
        op.count = bytes / 4;
        op.data_type = STARLING_FLOAT32;
        ok(starling_submit(member.comm, &op, request), "submit");
      };
      auto wait = [&](starling_request* request) {
        ok(starling_wait(request, 10'000'000'000), "wait");
        starling_request_free(request);
      };
      if (!in_place) cuda(cudaMemsetAsync(output, 0, bytes, stream), "memset");
      cuda(cudaStreamSynchronize(stream), "synchronize");
      const Times ours = measure(
          barrier, bytes > (32 << 20) ? iterations / 10 + 1 : iterations,
          [&] {
            starling_request* request = nullptr;
            submit(&request);
            wait(request);
          },
          [&] {
            starling_request* requests[kBurst];
            for (auto& request : requests) submit(&request);
            for (auto& request : requests) wait(request);
          });
      if (!in_place) check(output, bytes, stream);
      Times theirs{};
      if (nccl != nullptr) {
        auto reduce = [&] {
          if (nccl->all_reduce(input, output, bytes / 4, 7, 0, comm, stream) != 0) die("nccl", "all_reduce");
        };
        theirs = measure(
            barrier, bytes > (32 << 20) ? iterations / 10 + 1 : iterations,
            [&] {
              reduce();
              cuda(cudaStreamSynchronize(stream), "synchronize");
            },
            [&] {
              for (int k = 0; k < kBurst; ++k) reduce();
              cuda(cudaStreamSynchronize(stream), "synchronize");
            });
      }
      if (in_place) cuda(cudaMemcpy(input, ones.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
      barrier.arrive_and_wait();
      const size_t now = bytes;
      if (in_place) bytes *= bytes < 1024 ? 16 : 8;
      if (rank != 0) continue;
      report({now, in_place, ours, theirs});
    }
    barrier.arrive_and_wait();
  }

  void report(const Row& row) {
    rows.push_back(row);
    const double factor = 2.0 * (gpus - 1) / gpus * double(row.bytes) * 1e-3;  // bus bandwidth, GB/s from us
    const Times &ours = row.starling, &theirs = row.nccl;
    std::printf("%10zu %s | %8.1f %8.1f %8.1f %8.1f | %8.1f %8.1f %8.1f %8.1f\n", row.bytes,
                row.in_place ? "in " : "out", ours.median_us, ours.least_us, ours.burst_us,
                factor / ours.burst_us, theirs.median_us, theirs.least_us, theirs.burst_us,
                factor / theirs.burst_us);
  }

  void check(const float* output, size_t bytes, cudaStream_t stream) {
    std::vector<float> host(bytes / 4);
    cuda(cudaMemcpyAsync(host.data(), output, bytes, cudaMemcpyDeviceToHost, stream), "copy");
    cuda(cudaStreamSynchronize(stream), "synchronize");
    for (float value : host)
      if (value != float(gpus * (gpus + 1) / 2)) die("all_reduce", "wrong sum");
  }
};

void write_json(const char* path, int gpus, int iterations, int nccl_version, const std::vector<Row>& rows) {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) die(path, "cannot be written");
  cudaDeviceProp properties{};
  cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::fprintf(
      file,
      "{\"collective\": \"all_reduce\", \"data_type\": \"float32\", \"gpus\": %d, \"device\": \"%s\", "
      "\"nccl\": %d,\n \"iterations\": %d, \"burst\": %d, \"unit\": \"us\", \"rows\": [",
      gpus, properties.name, nccl_version, iterations, kBurst);
  const auto times = [&](const char* name, const Times& t) {
    std::fprintf(file, "\"%s\": {\"median\": %.2f, \"least\": %.2f, \"burst\": %.2f}", name, t.median_us,
                 t.least_us, t.burst_us);
  };
  for (size_t k = 0; k < rows.size(); ++k) {
    std::fprintf(file, "%s\n  {\"bytes\": %zu, \"in_place\": %s, ", k ? "," : "", rows[k].bytes,
                 rows[k].in_place ? "true" : "false");
    times("starling", rows[k].starling);
    std::fprintf(file, ", ");
    times("nccl", rows[k].nccl);
    std::fprintf(file, "}");
  }
  std::fprintf(file, "]}\n");
  std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  int gpus = 0;
  cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
  if (argc > 1) gpus = std::min(gpus, std::atoi(argv[1]));
  const size_t largest = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : size_t(256) << 20;
  const int iterations = argc > 3 ? std::atoi(argv[3]) : 200;
  const size_t smallest = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 8;
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  Nccl nccl{};
  std::vector<Nccl::Comm> comms(size_t(gpus), nullptr);
  const bool with_nccl = nccl.load() && nccl.init_all(comms.data(), gpus, nullptr) == 0;
  if (!with_nccl) std::printf("# no NCCL: libnccl.so.2 was not found\n");
  std::printf("# all_reduce of float32 on %d GPUs, us (busbw GB/s of the burst); Starling | NCCL\n", gpus);
  std::printf("%10s     | %8s %8s %8s %8s | %8s %8s %8s %8s\n", "bytes", "median", "least", "burst", "busbw",
              "median", "least", "burst", "busbw");
  Store store;
  std::vector<Row> rows;
  std::barrier<> barrier(gpus);
  std::vector<std::thread> threads;
  for (int r = 0; r < gpus; ++r)
    threads.emplace_back([&, r] {
      Rank{r,       gpus,       store, with_nccl ? &nccl : nullptr, comms[size_t(r)], barrier, smallest,
           largest, iterations, rows}
          .run();
    });
  for (std::thread& thread : threads) thread.join();
  if (argc > 5) write_json(argv[5], gpus, iterations, nccl.version, rows);
  return 0;
}
