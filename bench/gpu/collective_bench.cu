// Collectives on the GPUs of one host, Starling and NCCL in turns in the same ranks, which are processes or
// threads. `starling bench gpu` runs it.
//
//   collective_bench gpus=4 as=processes kinds=all_reduce,all_gather sizes=8,4096 type=float32
//                    libraries=starling,nccl repetitions=3 slice_us=3000 in_place=1 check=1 limit_s=60
//
// Prints JSON, a line each: first what was found, then a row for each size, out of place and in place, last
// the counters of rank 0. Of a library's row:
//
//   samples_us  time of a call in a stream where a kernel that reads its result stands behind each one; the
//               mean over ranks of as many as fit the slice; one for each repetition
//   call_us     what such a call takes of the caller's time
//   latency_us  one call alone: from the call to the end of cudaStreamSynchronize; the median
//   cpu_us      Starling: the same without a stream, starling_submit to the end of starling_wait
//   wrong       elements of all ranks that differ from what they should be, after one call on known data
//
// NCCL is the library that the loader finds as libnccl.so.2; NVLink multicast is off (NCCL_NVLS_ENABLE=0).
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include "collectives.h"
#include "gpu_ranks.h"
#include "meeting.h"

namespace {

using namespace gpu_bench;

constexpr size_t kLargeBytes = 4 << 20;

struct Options {
  int gpus = 2;
  bool processes = true;
  std::vector<Kind> kinds;
  std::vector<size_t> sizes;
  Type type = Type::kFloat32;
  bool starling = true, nccl = true;
  int repetitions = 3;
  double slice_us = 3000;
  bool in_place = true, check = true;
  unsigned limit_s = 60;
};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

Kind kind_of(const std::string& name) {
  for (size_t k = 0; k < kKindNames.size(); ++k)
    if (name == kKindNames[k]) return Kind(k);
  die(name.c_str(), "no such collective");
}

Options read_options(int count, char** texts) {
  Options options;
  std::map<std::string, std::string> values = {
      {"kinds", "all_reduce"}, {"sizes", "8"}, {"libraries", "starling,nccl"}};
  for (int k = 1; k < count; ++k) {
    const std::string text = texts[k];
    const size_t equals = text.find('=');
    if (equals == std::string::npos) die(texts[k], "not name=value");
    values[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : values) {
    if (name == "gpus")
      options.gpus = std::stoi(value);
    else if (name == "as")
      options.processes = value == "processes";
    else if (name == "kinds")
      for (const std::string& one : words_of(value)) options.kinds.push_back(kind_of(one));
    else if (name == "sizes")
      for (const std::string& one : words_of(value)) options.sizes.push_back(std::stoull(one));
    else if (name == "type")
      options.type = value == "bfloat16" ? Type::kBFloat16 : Type::kFloat32;
    else if (name == "libraries") {
      options.starling = value.find("starling") != std::string::npos;
      options.nccl = value.find("nccl") != std::string::npos;
    } else if (name == "repetitions")
      options.repetitions = std::stoi(value);
    else if (name == "slice_us")
      options.slice_us = std::stod(value);
    else if (name == "in_place")
      options.in_place = value == "1";
    else if (name == "check")
      options.check = value == "1";
    else if (name == "limit_s")
      options.limit_s = unsigned(std::stoi(value));
    else
      die(name.c_str(), "no such option");
  }
  if (options.gpus > Meeting::kMostRanks) die("gpus", "too many");
  return options;
}

// Stands behind an operation in its stream, as computation would.
__global__ void depend(const volatile unsigned char* output, unsigned* sink) {
  if (*output == 251) *sink = 1;
}

struct Times {
  std::vector<double> samples_us;
  double call_us = 0, latency_us = 0, cpu_us = 0;
  double wrong = -1;  // not checked
  bool measured = false;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

class Rank {
 public:
  Rank(const Options& options, const Nccl& nccl, Meeting& meeting, Store* store, int rank)
      : o_(options),
        meeting_(meeting),
        rank_(rank),
        member_(rank, options.gpus, rank % devices_for(options.gpus), store) {
    const size_t bytes = *std::max_element(o_.sizes.begin(), o_.sizes.end());
    for (std::byte*& buffer : buffers_) cuda(cudaMalloc(&buffer, std::max<size_t>(bytes, 256)), "cudaMalloc");
    cuda(cudaMalloc(&sink_, sizeof *sink_), "cudaMalloc");
    cuda(cudaMalloc(&wrong_, sizeof *wrong_), "cudaMalloc");
    cuda(cudaHostAlloc(&seen_wrong_, sizeof *seen_wrong_, cudaHostAllocDefault), "cudaHostAlloc");
    cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    starling_.emplace(member_, stream_);
    if (o_.nccl) nccl_.emplace(nccl, meeting_.nccl_id, rank, o_.gpus, stream_);
  }

  void run() {
    for (const Kind kind : o_.kinds)
      for (const size_t bytes : o_.sizes)
        for (int in_place = 0; in_place <= (o_.in_place && kind != Kind::kSendRecv); ++in_place)
          measure(make_call(kind, o_.type, in_place != 0, bytes, rank_, o_.gpus, buffers_[0], buffers_[1]));
    meeting_.barrier();
    if (rank_ == 0) print_statistics();
    cuda(cudaStreamSynchronize(stream_), "synchronize");
    meeting_.barrier();
  }

 private:
  void measure(const Call& call) {
    const std::string text = std::string(kKindNames[size_t(call.kind)]) + ", " + std::to_string(call.count) +
                             " elements" + (call.in_place ? ", in place" : "");
    Times ours, theirs;
    int ours_count = 0, theirs_count = 0;
    if (o_.starling) {
      begin_step(("Starling, first calls of " + text).c_str(), o_.limit_s);
      ours_count = rehearse(call, *starling_, ours);
    }
    if (nccl_ && NcclRank::can(call)) {
      begin_step(("NCCL, first calls of " + text).c_str(), o_.limit_s);
      theirs_count = rehearse(call, *nccl_, theirs);
    }
    begin_step(text.c_str(), o_.limit_s);
    for (int k = 0; k < o_.repetitions; ++k) {
      // Every other time in the reverse order: nobody always runs behind the other.
      if (k % 2 == 0 && ours_count != 0) sample(call, *starling_, ours, ours_count);
      if (theirs_count != 0) sample(call, *nccl_, theirs, theirs_count);
      if (k % 2 != 0 && ours_count != 0) sample(call, *starling_, ours, ours_count);
    }
    if (ours_count != 0) {
      ours.latency_us = latency(call, [&] { on_stream_alone(call, *starling_); });
      ours.cpu_us = latency(call, [&] { starling_->on_cpu(call); });
    }
    if (theirs_count != 0) theirs.latency_us = latency(call, [&] { on_stream_alone(call, *nccl_); });
    if (rank_ == 0) print_row(call, ours, theirs);
  }

  // Checks the result, and finds how many calls fill the slice.
  template <class Library>
  int rehearse(const Call& call, Library& library, Times& times) {
    times.measured = true;
    fill_buffers(call, stream_);
    cuda(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_), "memset");
    synchronize();
    meeting_.barrier();  // nobody reads a peer's old data
    library.on_stream(call);
    if (o_.check) compare_output(call, wrong_, stream_);
    cuda(cudaMemcpyAsync(seen_wrong_, wrong_, sizeof *wrong_, cudaMemcpyDeviceToHost, stream_), "copy");
    synchronize();
    const double all = meeting_.sum(rank_, double(*seen_wrong_));
    if (o_.check) times.wrong = all;
    // In place, sums of sums would leave the range of floats.
    cuda(cudaMemsetAsync(buffers_[0], 0, call.input_count() * bytes_of(call.type), stream_), "memset");
    synchronize();
    double us = 0;
    for (const int count : {3, 5}) us = meeting_.mean(rank_, in_a_row(call, library, count).first);
    return int(std::clamp(o_.slice_us / us, 3.0, 200.0));
  }

  template <class Library>
  void sample(const Call& call, Library& library, Times& times, int count) {
    const auto [us, call_us] = in_a_row(call, library, count);
    times.samples_us.push_back(meeting_.mean(rank_, us));
    times.call_us = call_us;
  }

  // Microseconds of a call, and of the caller's time.
  template <class Library>
  std::pair<double, double> in_a_row(const Call& call, Library& library, int count) {
    meeting_.barrier();
    const auto start = Clock::now();
    for (int k = 0; k < count; ++k) {
      library.on_stream(call);
      depend<<<1, 1, 0, stream_>>>(reinterpret_cast<const unsigned char*>(call.output), sink_);
    }
    const double called = us_since(start) / count;
    synchronize();
    return {us_since(start) / count, called};
  }

  template <class Library>
  void on_stream_alone(const Call& call, Library& library) {
    library.on_stream(call);
    synchronize();
  }

  template <class One>
  double latency(const Call& call, One&& one) {
    std::vector<double> times;
    const int count = call.count * bytes_of(call.type) >= kLargeBytes ? 3 : 20;
    for (int k = -2; k < count; ++k) {
      meeting_.barrier();
      const auto start = Clock::now();
      one();
      if (k >= 0) times.push_back(us_since(start));
    }
    return meeting_.mean(rank_, median(times));
  }

  void synchronize() { cuda(cudaStreamSynchronize(stream_), "synchronize"); }

  static std::string json(const Times& t) {
    std::ostringstream text;
    text.precision(6);
    text << "{\"samples_us\": [";
    for (size_t k = 0; k < t.samples_us.size(); ++k) text << (k ? ", " : "") << t.samples_us[k];
    text << "], \"call_us\": " << t.call_us << ", \"latency_us\": " << t.latency_us;
    if (t.cpu_us > 0) text << ", \"cpu_us\": " << t.cpu_us;
    if (t.wrong >= 0) text << ", \"wrong\": " << size_t(t.wrong);
    return text.str() + "}";
  }

  static void print_row(const Call& call, const Times& ours, const Times& theirs) {
    const size_t bytes = std::max(call.input_count(), call.output_count()) * bytes_of(call.type);
    std::ostringstream text;
    text << "{\"collective\": \"" << kKindNames[size_t(call.kind)] << "\", \"size_bytes\": " << bytes
         << ", \"count\": " << call.count << ", \"in_place\": " << (call.in_place ? "true" : "false");
    if (ours.measured) text << ", \"starling\": " << json(ours);
    if (theirs.measured) text << ", \"nccl\": " << json(theirs);
    std::printf("%s}\n", text.str().c_str());
  }

  void print_statistics() const {
    starling_statistics s{};
    s.struct_bytes = sizeof s;
    ok(starling_context_statistics(member_.context, &s), "statistics");
    std::printf("{\"statistics\": {\"submissions\": %llu, \"launches\": %llu, \"parks\": %llu}}\n",
                (unsigned long long)s.submissions, (unsigned long long)s.launches,
                (unsigned long long)s.parks);
  }

  const Options& o_;
  Meeting& meeting_;
  const int rank_;
  const Member member_;
  std::byte* buffers_[2] = {};
  unsigned* sink_ = nullptr;
  unsigned long long* wrong_ = nullptr;
  unsigned long long* seen_wrong_ =
      nullptr;  // pinned: a copy to other memory would wait inside of the driver
  cudaStream_t stream_ = nullptr;
  std::optional<Starling> starling_;
  std::optional<NcclRank> nccl_;
};

void print_head(const Options& options, int version) {
  cudaDeviceProp properties{};
  cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::printf(
      "{\"gpus\": %d, \"device\": \"%s\", \"as\": \"%s\", \"nccl\": %d, \"driver\": %d, \"cuda\": %d}\n",
      options.gpus, properties.name, options.processes ? "processes" : "threads", version, driver, runtime);
}

}  // namespace

int main(int argc, char** argv) {
  Options options = read_options(argc, argv);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("STARLING_JOB", ("gpu-bench-" + std::to_string(getpid())).c_str(), 1);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  Nccl nccl;
  if (options.nccl && !nccl.load()) {
    std::fprintf(stderr, "no NCCL: libnccl.so.2 was not found, or is too old\n");
    options.nccl = false;
  }
  Meeting* meeting = Meeting::make(options.gpus);
  Store store;
  const int status = run_ranks(options.gpus, options.processes, [&](int rank) {
    begin_step("joining", options.limit_s);
    const int devices = devices_for(options.gpus);
    if (devices < options.gpus && options.nccl) die("libraries", "NCCL's ranks do not share a GPU");
    cuda(cudaSetDevice(rank % devices), "cudaSetDevice");
    if (rank == 0) {
      print_head(options, options.nccl ? nccl.version : 0);
      if (options.nccl && nccl.get_unique_id(&meeting->nccl_id) != 0) die("NCCL", "ncclGetUniqueId");
    }
    meeting->barrier();
    Rank(options, nccl, *meeting, options.processes ? nullptr : &store, rank).run();
    begin_step("leaving", options.limit_s);
  });
  std::fflush(stdout);
  if (!options.nccl) return status;
  _exit(status);  // NCCL's threads are still there
}
