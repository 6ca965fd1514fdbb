// What a plan of the language costs beside a kernel that was written by hand for the same algorithm: a
// one-shot all_reduce in packets, and an all_gather that copies out of peers' buffers. `starling bench
// gpu-handwritten` makes the plans and runs it.
//
//   handwritten_bench gpus=2 plans=FOLDER kind=all_reduce sizes=8,4096 grids=1,8 rounds=9 slice_us=1500
//   limit_s=30
//
// Ranks are threads of one process. FOLDER has all_reduce-GRID and all_gather-GRID, plans' texts, for each
// grid. A call is over when its kernel ends, and behind each stands a kernel that reads the result. The
// variants take turns, round by round. A row a size, grid and variant, with one number a round, the mean over
// ranks:
//
//   samples_us  time of a call of a burst, the caller's time included
//   gpu_us      of kAhead calls that were all put into the stream before the first of them began, by events:
//   a
//               kernel that stands in front lets all ranks go at once
//   wrong       elements of all ranks that differ after two calls
//
// Variants:
//
//   hand        the kernel of handwritten.h
//   hand_early  the same, launched early as the library's start kernel is
//   compiled    the plan, by name
//   library     what the library chooses; grid 0
//   nccl        grid 0
#include <starling/plan.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "collectives.h"
#include "gpu_ranks.h"
#include "handwritten.h"
#include "meeting.h"
#include "nccl_rank.h"

namespace {

using namespace gpu_bench;

struct Options {
  int gpus = 2;
  std::string plans;
  Kind kind = Kind::kAllReduce;
  std::vector<size_t> sizes;
  std::vector<uint32_t> grids;
  int rounds = 9;
  double slice_us = 1500;
  unsigned limit_s = 30;
};

template <class T>
std::vector<T> numbers_of(const std::string& text) {
  std::vector<T> numbers;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) numbers.push_back(T(std::stoull(word)));
  return numbers;
}

Options read_options(int count, char** texts) {
  Options o;
  for (int k = 1; k < count; ++k) {
    const std::string text = texts[k];
    const size_t equals = text.find('=');
    if (equals == std::string::npos) die(texts[k], "not name=value");
    const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
    if (name == "gpus")
      o.gpus = std::stoi(value);
    else if (name == "plans")
      o.plans = value;
    else if (name == "kind")
      o.kind = value == "all_gather" ? Kind::kAllGather : Kind::kAllReduce;
    else if (name == "sizes")
      o.sizes = numbers_of<size_t>(value);
    else if (name == "grids")
      o.grids = numbers_of<uint32_t>(value);
    else if (name == "rounds")
      o.rounds = std::stoi(value);
    else if (name == "slice_us")
      o.slice_us = std::stod(value);
    else if (name == "limit_s")
      o.limit_s = unsigned(std::stoi(value));
    else
      die(name.c_str(), "no such option");
  }
  if (o.sizes.empty() || o.grids.empty() || o.rounds < 1) die("sizes, grids, rounds", "give some");
  if (o.gpus > std::min(kMostPeers, Meeting::kMostRanks)) die("gpus", "too many");
  for (const uint32_t grid : o.grids)
    if (grid < 1 || grid > kMostGrid) die("grids", "1 to 64");
  for (const size_t size : o.sizes)
    if (o.kind == Kind::kAllReduce ? size > kPacketBytes : size % (16 * size_t(o.gpus)) != 0)
      die("sizes", "an all_reduce has up to 64 KB, an all_gather parts of whole 16 bytes");
  return o;
}

// Calls that are in the stream before the first begins: fewer than a lane has places for start kernels.
constexpr int kAhead = 6;

// Stands until all ranks have put their calls behind it; not for ever.
__global__ void stand(const volatile uint32_t* gate, uint32_t number) {
  for (int spins = 0; int32_t(*gate - number) < 0 && spins < 50000; ++spins) __nanosleep(100);
}

__global__ void depend(const volatile unsigned char* output, unsigned* sink) {
  if (*output == 251) *sink = 1;
}

const char* name_of(Kind kind) { return kKindNames[size_t(kind)]; }

// What all ranks' kernels write into each other; each rank makes its own, and reads the others' after a
// barrier.
struct Shared {
  std::vector<HandPeers> own;
  volatile uint32_t* gate = nullptr;  // in host memory: opened by rank 0, seen by all GPUs
  explicit Shared(int ranks) : own(size_t(ranks)) {}
};

struct Variant {
  std::string name;
  uint32_t grid;
  std::function<void(const Call&)> launch;
  std::vector<double> samples_us, gpu_us;
  double wrong = 0;
  int count = 0;
};

class Rank {
 public:
  Rank(const Options& options, const Nccl* nccl, Meeting& meeting, Store& store, Shared& shared, int rank)
      : o_(options),
        meeting_(meeting),
        rank_(rank),
        member_(rank, options.gpus, rank % devices_for(options.gpus), &store) {
    const size_t bytes = std::max<size_t>(*std::max_element(o_.sizes.begin(), o_.sizes.end()), 256);
    for (std::byte*& buffer : buffers_) cuda(cudaMalloc(&buffer, bytes), "cudaMalloc");
    cuda(cudaMalloc(&sink_, sizeof *sink_), "cudaMalloc");
    cuda(cudaMalloc(&wrong_, sizeof *wrong_), "cudaMalloc");
    cuda(cudaHostAlloc(&seen_wrong_, sizeof *seen_wrong_, cudaHostAllocDefault), "cudaHostAlloc");
    cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    introduce(shared);
    for (const uint32_t grid : o_.grids) add_plan(grid);
    starling_.emplace(member_, stream_);
    if (nccl != nullptr) nccl_.emplace(*nccl, meeting_.nccl_ids[0], rank, o_.gpus, stream_);
  }

  void run() {
    for (const size_t bytes : o_.sizes)
      measure(make_call(o_.kind, Type::kFloat32, false, bytes, rank_, o_.gpus, buffers_[0], buffers_[1]));
    meeting_.barrier();
  }

 private:
  void introduce(Shared& shared) {
    HandPeers& own = shared.own[size_t(rank_)];
    const size_t packets = 2 * size_t(o_.gpus) * kPacketUnits;
    cuda(cudaMalloc(&own.packets[rank_], packets * sizeof(uint4)), "cudaMalloc");
    cuda(cudaMemset(own.packets[rank_], 0, packets * sizeof(uint4)), "cudaMemset");
    cuda(cudaMalloc(&own.flags[rank_], sizeof(HandFlags)), "cudaMalloc");
    cuda(cudaMemset(own.flags[rank_], 0, sizeof(HandFlags)), "cudaMemset");
    own.inputs[rank_] = buffers_[0];
    const int devices = devices_for(o_.gpus);
    for (int peer = 0; peer < o_.gpus; ++peer) {
      if (peer % devices == rank_ % devices) continue;
      const cudaError_t status =
          cudaDeviceEnablePeerAccess(peer % devices, 0);  // the library may have done so
      if (status == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
      else
        cuda(status, "peer access");
    }
    if (rank_ == 0) {
      void* gate = nullptr;
      cuda(cudaHostAlloc(&gate, sizeof(uint32_t), cudaHostAllocPortable), "cudaHostAlloc");
      std::memset(gate, 0, sizeof(uint32_t));
      shared.gate = static_cast<volatile uint32_t*>(gate);
    }
    for (cudaEvent_t& event : events_) cuda(cudaEventCreate(&event), "event");
    cuda(cudaDeviceSynchronize(), "synchronize");
    meeting_.barrier();
    gate_ = shared.gate;
    peers_ = own;
    for (int peer = 0; peer < o_.gpus; ++peer) {
      peers_.packets[peer] = shared.own[size_t(peer)].packets[peer];
      peers_.flags[peer] = shared.own[size_t(peer)].flags[peer];
      peers_.inputs[peer] = shared.own[size_t(peer)].inputs[peer];
    }
    peers_.rank = rank_;
    peers_.ranks = o_.gpus;
  }

  std::string plan_name(uint32_t grid) const {
    return std::string(name_of(o_.kind)) + "-" + std::to_string(grid);
  }

  void add_plan(uint32_t grid) {
    std::ifstream file(o_.plans + "/" + plan_name(grid));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.empty()) die(plan_name(grid).c_str(), "no such plan in the folder");
    ok(starling_comm_add_plan(member_.comm, text.c_str(), 1, 0), "add_plan");
  }

  std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (const uint32_t grid : o_.grids) {
      for (const bool early : {false, true})
        all.push_back({early ? "hand_early" : "hand", grid,
                       [this, grid, early](const Call& call) { launch_by_hand(call, grid, early); }});
      all.push_back({"compiled", grid, [this, name = plan_name(grid)](const Call& call) {
                       starling_operation op = operation_of(call, STARLING_START_HOLD_STREAM, stream_);
                       op.algorithm = name.c_str();
                       ok(starling_submit(member_.comm, &op, nullptr), "submit");
                     }});
    }
    all.push_back({"library", 0, [this](const Call& call) { starling_->on_stream(call, nullptr); }});
    if (nccl_) all.push_back({"nccl", 0, [this](const Call& call) { nccl_->on_stream(call); }});
    return all;
  }

  void launch_by_hand(const Call& call, uint32_t grid, bool early) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.stream = stream_;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    const uint32_t number = ++calls_;
    if (call.kind == Kind::kAllReduce) {
      const size_t each = ((call.count + 1) / 2 + grid - 1) / grid;  // units of a block
      config.blockDim = uint32_t(std::clamp<size_t>((each + 31) / 32 * 32, 64, kHandThreads));
      cuda(cudaLaunchKernelEx(&config, hand_all_reduce, peers_, reinterpret_cast<const float*>(call.input),
                              reinterpret_cast<float*>(call.output), call.count, number),
           "launch");
    } else {
      config.blockDim = kHandThreads;
      cuda(cudaLaunchKernelEx(&config, hand_all_gather, peers_, call.output, call.count * bytes_of(call.type),
                              number),
           "launch");
    }
  }

  void measure(const Call& call) {
    std::vector<Variant> all = variants();
    for (Variant& variant : all) {
      const std::string text = variant.name + "-" + std::to_string(variant.grid) + ", first calls of " +
                               std::to_string(call.count) + " elements";
      begin_step(text.c_str(), o_.limit_s);
      rehearse(call, variant);
    }
    for (int round = 0; round < o_.rounds; ++round) {
      begin_step("a round", o_.limit_s);
      // Every other round in the reverse order: nobody always runs behind the same neighbour.
      for (size_t k = 0; k < all.size(); ++k) {
        Variant& variant = all[round % 2 == 0 ? k : all.size() - 1 - k];
        variant.samples_us.push_back(meeting_.mean(rank_, burst_us(call, variant, variant.count)));
        variant.gpu_us.push_back(meeting_.mean(rank_, ahead_us(call, variant)));
      }
    }
    if (rank_ == 0)
      for (const Variant& variant : all) print_row(call, variant);
  }

  // Twice: a buffer that takes turns is seen with both of its halves.
  void rehearse(const Call& call, Variant& variant) {
    cuda(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_), "memset");
    for (int k = 0; k < 2; ++k) {
      fill_buffers(call, stream_);
      synchronize();
      meeting_.barrier();  // nobody reads a peer's old input
      variant.launch(call);
      compare_output(call, wrong_, stream_);
      synchronize();
      meeting_.barrier();
    }
    cuda(cudaMemcpyAsync(seen_wrong_, wrong_, sizeof *wrong_, cudaMemcpyDeviceToHost, stream_), "copy");
    synchronize();
    variant.wrong = meeting_.sum(rank_, double(*seen_wrong_));
    double us = 0;
    ahead_us(call, variant);
    for (const int count : {3, 5}) us = meeting_.mean(rank_, burst_us(call, variant, count));
    variant.count = int(std::clamp(o_.slice_us / us, 5.0, 200.0));
  }

  double burst_us(const Call& call, const Variant& variant, int count) {
    meeting_.barrier();
    const auto start = Clock::now();
    for (int k = 0; k < count; ++k) {
      variant.launch(call);
      depend<<<1, 1, 0, stream_>>>(reinterpret_cast<const unsigned char*>(call.output), sink_);
    }
    synchronize();
    return us_since(start) / count;
  }

  double ahead_us(const Call& call, const Variant& variant) {
    meeting_.barrier();
    stand<<<1, 1, 0, stream_>>>(gate_, ++opened_);
    cuda(cudaEventRecord(events_[0], stream_), "event");
    for (int k = 0; k < kAhead; ++k) {
      variant.launch(call);
      depend<<<1, 1, 0, stream_>>>(reinterpret_cast<const unsigned char*>(call.output), sink_);
    }
    cuda(cudaEventRecord(events_[1], stream_), "event");
    meeting_.barrier();
    if (rank_ == 0) *gate_ = opened_;
    synchronize();
    float ms = 0;
    cuda(cudaEventElapsedTime(&ms, events_[0], events_[1]), "event");
    return double(ms) * 1e3 / kAhead;
  }

  static std::string list_of(const std::vector<double>& values) {
    std::ostringstream text;
    text.precision(6);
    for (size_t k = 0; k < values.size(); ++k) text << (k ? ", " : "[") << values[k];
    return text.str() + "]";
  }

  void print_row(const Call& call, const Variant& variant) const {
    const size_t bytes = std::max(call.input_count(), call.output_count()) * bytes_of(call.type);
    std::ostringstream text;
    text << "{\"collective\": \"" << name_of(o_.kind) << "\", \"size_bytes\": " << bytes
         << ", \"variant\": \"" << variant.name << "\", \"grid\": " << variant.grid
         << ", \"wrong\": " << size_t(variant.wrong) << ", \"calls\": " << variant.count
         << ", \"samples_us\": " << list_of(variant.samples_us)
         << ", \"gpu_us\": " << list_of(variant.gpu_us);
    std::printf("%s}\n", text.str().c_str());
  }

  void synchronize() { cuda(cudaStreamSynchronize(stream_), "synchronize"); }

  const Options& o_;
  Meeting& meeting_;
  const int rank_;
  const Member member_;
  HandPeers peers_{};
  uint32_t calls_ = 0, opened_ = 0;
  volatile uint32_t* gate_ = nullptr;
  cudaEvent_t events_[2] = {};
  std::byte* buffers_[2] = {};
  unsigned* sink_ = nullptr;
  unsigned long long* wrong_ = nullptr;
  unsigned long long* seen_wrong_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::optional<Starling> starling_;
  std::optional<NcclRank> nccl_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  Nccl nccl;
  const bool loaded = nccl.load();
  if (!loaded) std::fprintf(stderr, "no NCCL: libnccl.so.2 was not found, or is too old\n");
  Meeting* meeting = Meeting::make(options.gpus);
  Store store;
  Shared shared(options.gpus);
  run_ranks(options.gpus, false, [&](int rank) {
    begin_step("joining", options.limit_s);
    const int devices = devices_for(options.gpus);
    const bool with_nccl = loaded && devices == options.gpus;  // whose ranks do not share a GPU
    cuda(cudaSetDevice(rank % devices), "cudaSetDevice");
    if (rank == 0) {
      cudaDeviceProp properties{};
      cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
      std::printf("{\"gpus\": %d, \"devices\": %d, \"device\": \"%s\", \"nccl\": %d}\n", options.gpus,
                  devices, properties.name, with_nccl ? nccl.version : 0);
      if (with_nccl && nccl.get_unique_id(&meeting->nccl_ids[0]) != 0) die("NCCL", "ncclGetUniqueId");
    }
    meeting->barrier();
    Rank(options, with_nccl ? &nccl : nullptr, *meeting, store, shared, rank).run();
  });
  std::fflush(stdout);
  _exit(0);  // NCCL's threads are still there
}
