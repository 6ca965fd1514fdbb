// Collectives on the GPUs of one host, Starling and NCCL in turns in the same ranks, which are processes or
// threads. `starling bench gpu` runs it.
//
//   collective_bench gpus=4 as=processes kinds=all_reduce,all_gather sizes=8,4096 type=float32
//                    libraries=starling,nccl,nccl:symmetric repetitions=3 slice_us=3000 in_place=1|0|only
//                    check=1 limit_s=60
//
// Libraries: "starling", "starling:ALGORITHM", "nccl", "nccl:MODE" (nccl_rank.h); "starling:graph",
// "nccl:graph", "nccl:MODE_graph": the same calls inside of CUDA graphs of 20, of 3 from 4 MB on.
//
// Prints JSON, a line each: first what was found, and which modes this NCCL lacks; then a row for each size,
// out of place and in place, last the counters of rank 0. Of a library's row:
//
//   samples_us  time of a call in a stream where a kernel that reads its result stands behind each one; the
//               mean over ranks of as many as fit the slice; one for each repetition
//   daemon_blocks  Starling, where it was any: how many blocks of daemons and watches began in each sample,
//   of
//               all ranks together
//   parks       likewise, how often such blocks left an operation to look at others
//   call_us     what such a call takes of the caller's time
//   latency_us  one call (in a graph: a graph of one) alone, from the call to the end of
//   cudaStreamSynchronize;
//               the median
//   cpu_us      Starling: the same without a stream, starling_submit to the end of starling_wait
//   wrong       elements of all ranks that differ from what they should be, after one call on known data
//
// NCCL is the library that the loader finds as libnccl.so.2; NVLink multicast is off (NCCL_NVLS_ENABLE=0).
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "collectives.h"
#include "gpu_ranks.h"
#include "graph_of.h"
#include "meeting.h"
#include "nccl_rank.h"

namespace {

using namespace gpu_bench;

constexpr size_t kLargeBytes = 4 << 20;
constexpr int kGraphCalls = 20, kLargeGraphCalls = 3;  // of a graph that is measured

struct Options {
  int gpus = 2;
  bool processes = true;
  std::vector<Kind> kinds;
  std::vector<size_t> sizes;
  Type type = Type::kFloat32;
  std::vector<std::string> libraries;
  int repetitions = 3;
  double slice_us = 3000;
  bool in_place = true, out_of_place = true, check = true;
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

// "nccl", "nccl:registered", "nccl:graph", "nccl:symmetric_graph": the mode, and whether it is captured.
std::pair<NcclMode, bool> nccl_mode_of(const std::string& library) {
  const std::string prefix = "nccl:", suffix = "graph";
  std::string mode = library == "nccl" ? "default" : library.substr(std::min(prefix.size(), library.size()));
  const bool graph = mode.size() >= suffix.size() && mode.ends_with(suffix);
  if (graph) mode.resize(mode.size() - suffix.size());
  if (graph && !mode.empty()) mode.pop_back();  // the _
  if (mode.empty()) mode = "default";
  for (size_t k = 0; k < kNcclModeNames.size(); ++k)
    if (mode == kNcclModeNames[k]) return {NcclMode(k), graph};
  die(library.c_str(), "no such library");
}
bool is_nccl(const std::string& library) { return library.starts_with("nccl"); }

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
    else if (name == "libraries")
      options.libraries = words_of(value);
    else if (name == "repetitions")
      options.repetitions = std::stoi(value);
    else if (name == "slice_us")
      options.slice_us = std::stod(value);
    else if (name == "in_place")
      options.in_place = value != "0", options.out_of_place = value != "only";
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
  std::vector<uint64_t> daemon_blocks, parks;
  double call_us = 0, latency_us = 0, cpu_us = 0;
  double wrong = -1;  // not checked
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

class Rank {
 public:
  Rank(const Options& options, const Nccl& nccl, Meeting& meeting, Store* store, int rank)
      : o_(options),
        nccl_(nccl),
        meeting_(meeting),
        rank_(rank),
        member_(rank, options.gpus, rank % devices_for(options.gpus), store) {
    cuda(cudaMalloc(&sink_, sizeof *sink_), "cudaMalloc");
    cuda(cudaMalloc(&wrong_, sizeof *wrong_), "cudaMalloc");
    cuda(cudaHostAlloc(&seen_wrong_, sizeof *seen_wrong_, cudaHostAllocDefault), "cudaHostAlloc");
    cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    starling_.emplace(member_, stream_);
    std::byte* buffers[2];
    for (std::byte*& buffer : buffers) cuda(cudaMalloc(&buffer, buffer_bytes()), "cudaMalloc");
    for (const std::string& name : o_.libraries) {
      const std::string prefix = "starling";
      if (name.starts_with(prefix)) {
        const bool graph = name == "starling:graph";
        const std::string way = graph || name == prefix ? "" : name.substr(prefix.size() + 1);
        Library ours{name, graph, {buffers[0], buffers[1]}};
        ours.on_stream = [this, way](const Call& call) {
          starling_->on_stream(call, way.empty() ? nullptr : way.c_str());
        };
        ours.can = [](const Call&) { return true; };
        libraries_.push_back(std::move(ours));
      } else {
        add_nccl(name);
      }
    }
  }

  void run() {
    for (const Kind kind : o_.kinds)
      for (const size_t bytes : o_.sizes)
        for (const bool in_place : {false, true})
          if (in_place ? o_.in_place && kind != Kind::kSendRecv : o_.out_of_place)
            measure(kind, bytes, in_place);
    meeting_.barrier();
    if (rank_ == 0) print_statistics();
    cuda(cudaStreamSynchronize(stream_), "synchronize");
    meeting_.barrier();
  }

 private:
  // What is measured: one way of calling one library.
  struct Library {
    std::string name;
    bool graph;
    std::byte* buffers[2];
    std::function<void(const Call&)> on_stream;
    std::function<bool(const Call&)> can;
  };
  // One library at one point.
  struct Measured {
    Measured(const Library& library, const Call& call) : library(&library), call(call) {}

    const Library* library;
    Call call;
    int count = 0;           // calls of a sample; of graphs a multiple of their calls
    GraphOf single, row;     // of those that run in graphs: one call, and `row_calls`
    int row_calls = 1;
    Times times;
  };

  size_t buffer_bytes() const {
    return std::max<size_t>(*std::max_element(o_.sizes.begin(), o_.sizes.end()), 256);
  }

  // "nccl", "nccl:MODE", "nccl:graph" or "nccl:MODE_graph". A mode has one communicator and one pair of
  // buffers, which its graphs use too.
  void add_nccl(const std::string& name) {
    const auto [mode, graph] = nccl_mode_of(name);
    if (NcclRank::missing(nccl_, mode) != nullptr) return;  // the head says it
    Buffered& b = buffered_[size_t(mode)];
    if (b.nccl == nullptr) {
      begin_step((name + ", communicator and buffers").c_str(), o_.limit_s);
      b.nccl =
          std::make_unique<NcclRank>(nccl_, meeting_.nccl_ids[size_t(mode)], rank_, o_.gpus, stream_, mode);
      for (std::byte*& buffer : b.buffers) buffer = b.nccl->allocate(buffer_bytes(), b.missing);
      if (meeting_.sum(rank_, b.missing.empty() ? 0 : 1) > 0 && b.missing.empty())
        b.missing = "not on all ranks";
    }
    if (!b.missing.empty()) {
      std::printf("{\"missing\": {\"%s\": \"%s\"}}\n", name.c_str(), b.missing.c_str());
      return;
    }
    Library theirs{name, graph, {b.buffers[0], b.buffers[1]}};
    theirs.on_stream = [nccl = b.nccl.get()](const Call& call) { nccl->on_stream(call); };
    theirs.can = [mode = mode](const Call& call) { return NcclRank::can(call, mode); };
    libraries_.push_back(std::move(theirs));
  }

  void measure(Kind kind, size_t bytes, bool in_place) {
    std::deque<Measured> all;
    std::string text;
    for (const Library& library : libraries_) {
      const Call call =
          make_call(kind, o_.type, in_place, bytes, rank_, o_.gpus, library.buffers[0], library.buffers[1]);
      if (!library.can(call)) continue;
      text = std::string(kKindNames[size_t(kind)]) + ", " + std::to_string(call.count) + " elements" +
             (in_place ? ", in place" : "");
      begin_step((library.name + ", first calls of " + text).c_str(), o_.limit_s);
      rehearse(all.emplace_back(library, call));
    }
    begin_step(text.c_str(), o_.limit_s);
    for (int k = 0; k < o_.repetitions; ++k)
      // Every other time in the reverse order: nobody always runs behind the other.
      for (size_t at = 0; at < all.size(); ++at) sample(all[k % 2 == 0 ? at : all.size() - 1 - at]);
    for (Measured& m : all) {
      m.times.latency_us = latency(m.call, [&] {
        once(m);
        synchronize();
      });
      if (m.library->name == "starling") m.times.cpu_us = latency(m.call, [&] { starling_->on_cpu(m.call); });
    }
    if (rank_ == 0) print_row(all);
  }

  // Connects, checks the result, and finds how many calls fill the slice.
  void rehearse(Measured& m) {
    if (m.library->graph) {
      m.library->on_stream(m.call);  // whoever connects at its first call does it outside of the capture
      synchronize();
      m.row_calls = m.call.count * bytes_of(m.call.type) >= kLargeBytes ? kLargeGraphCalls : kGraphCalls;
      m.single.capture(stream_, [&] { m.library->on_stream(m.call); });
      m.row.capture(stream_, [&] {
        for (int k = 0; k < m.row_calls; ++k) one_of_many(m);
      });
    }
    fill_buffers(m.call, stream_);
    cuda(cudaMemsetAsync(wrong_, 0, sizeof *wrong_, stream_), "memset");
    synchronize();
    meeting_.barrier();  // nobody reads a peer's old data
    once(m);
    if (o_.check) compare_output(m.call, wrong_, stream_);
    cuda(cudaMemcpyAsync(seen_wrong_, wrong_, sizeof *wrong_, cudaMemcpyDeviceToHost, stream_), "copy");
    synchronize();
    const double all = meeting_.sum(rank_, double(*seen_wrong_));
    if (o_.check) m.times.wrong = all;
    // In place, sums of sums would leave the range of floats.
    cuda(cudaMemsetAsync(m.library->buffers[0], 0, m.call.input_count() * bytes_of(m.call.type), stream_),
         "memset");
    synchronize();
    double us = 0;
    for (const int count : {3, 5}) us = meeting_.mean(rank_, in_a_row(m, count).first);
    m.count = int(std::clamp(o_.slice_us / us, 3.0, 200.0));
  }

  void sample(Measured& m) {
    const starling_statistics before = statistics();
    const auto [us, call_us] = in_a_row(m, m.count);
    const starling_statistics after = statistics();
    m.times.samples_us.push_back(meeting_.mean(rank_, us));
    m.times.call_us = call_us;
    if (m.library->name != "starling") return;
    m.times.daemon_blocks.push_back(uint64_t(meeting_.sum(rank_, double(after.launches - before.launches))));
    m.times.parks.push_back(uint64_t(meeting_.sum(rank_, double(after.parks - before.parks))));
  }

  // Microseconds of a call, and of the caller's time. Graphs are replayed whole.
  std::pair<double, double> in_a_row(Measured& m, int count) {
    const int replays = (count + m.row_calls - 1) / m.row_calls;
    meeting_.barrier();
    const auto start = Clock::now();
    for (int k = 0; k < replays; ++k)
      if (m.library->graph)
        m.row.launch(stream_);
      else
        one_of_many(m);
    const double called = us_since(start) / (replays * m.row_calls);
    synchronize();
    return {us_since(start) / (replays * m.row_calls), called};
  }

  void once(Measured& m) {
    if (m.library->graph)
      m.single.launch(stream_);
    else
      m.library->on_stream(m.call);
  }

  void one_of_many(Measured& m) {
    m.library->on_stream(m.call);
    depend<<<1, 1, 0, stream_>>>(reinterpret_cast<const unsigned char*>(m.call.output), sink_);
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

  template <class T>
  static std::string list(const std::vector<T>& values) {
    std::ostringstream text;
    text.precision(6);
    for (size_t k = 0; k < values.size(); ++k) text << (k ? ", " : "[") << values[k];
    return text.str() + (values.empty() ? "[]" : "]");
  }

  static std::string json(const Times& t) {
    std::ostringstream text;
    text.precision(6);
    text << "{\"samples_us\": " << list(t.samples_us);
    for (const auto& [name, counts] :
         {std::pair("daemon_blocks", t.daemon_blocks), std::pair("parks", t.parks)})
      if (std::any_of(counts.begin(), counts.end(), [](uint64_t n) { return n > 0; }))
        text << ", \"" << name << "\": " << list(counts);
    text << ", \"call_us\": " << t.call_us << ", \"latency_us\": " << t.latency_us;
    if (t.cpu_us > 0) text << ", \"cpu_us\": " << t.cpu_us;
    if (t.wrong >= 0) text << ", \"wrong\": " << size_t(t.wrong);
    return text.str() + "}";
  }

  static void print_row(const std::deque<Measured>& all) {
    if (all.empty()) return;
    const Call& call = all.front().call;
    const size_t bytes = std::max(call.input_count(), call.output_count()) * bytes_of(call.type);
    std::ostringstream text;
    text << "{\"collective\": \"" << kKindNames[size_t(call.kind)] << "\", \"size_bytes\": " << bytes
         << ", \"count\": " << call.count << ", \"in_place\": " << (call.in_place ? "true" : "false");
    for (const Measured& m : all) text << ", \"" << m.library->name << "\": " << json(m.times);
    std::printf("%s}\n", text.str().c_str());
  }

  starling_statistics statistics() const {
    starling_statistics s{};
    s.struct_bytes = sizeof s;
    ok(starling_context_statistics(member_.context, &s), "statistics");
    return s;
  }

  void print_statistics() const {
    const starling_statistics s = statistics();
    std::printf("{\"statistics\": {\"submissions\": %llu, \"launches\": %llu, \"parks\": %llu}}\n",
                (unsigned long long)s.submissions, (unsigned long long)s.launches,
                (unsigned long long)s.parks);
  }

  // A mode of NCCL: its communicator, and the buffers that it knows.
  struct Buffered {
    std::unique_ptr<NcclRank> nccl;
    std::byte* buffers[2] = {};
    std::string missing;
  };

  const Options& o_;
  const Nccl& nccl_;
  Meeting& meeting_;
  const int rank_;
  const Member member_;
  unsigned* sink_ = nullptr;
  unsigned long long* wrong_ = nullptr;
  unsigned long long* seen_wrong_ =
      nullptr;  // pinned: a copy to other memory would wait inside of the driver
  cudaStream_t stream_ = nullptr;
  std::optional<Starling> starling_;
  std::array<Buffered, kNcclModeNames.size()> buffered_;
  std::vector<Library> libraries_;
};

void print_head(const Options& options, const Nccl& nccl) {
  cudaDeviceProp properties{};
  cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::printf(
      "{\"gpus\": %d, \"device\": \"%s\", \"as\": \"%s\", \"nccl\": %d, \"driver\": %d, \"cuda\": %d}\n",
      options.gpus, properties.name, options.processes ? "processes" : "threads", nccl.version, driver,
      runtime);
  for (const std::string& name : options.libraries) {
    if (!is_nccl(name)) continue;
    if (const char* what = NcclRank::missing(nccl, nccl_mode_of(name).first))
      std::printf("{\"missing\": {\"%s\": \"this NCCL has no %s\"}}\n", name.c_str(), what);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options = read_options(argc, argv);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("STARLING_JOB", ("gpu-bench-" + std::to_string(getpid())).c_str(), 1);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  Nccl nccl;
  const auto uses_nccl = [&] { return std::ranges::any_of(options.libraries, is_nccl); };
  if (uses_nccl() && !nccl.load()) {
    std::fprintf(stderr, "no NCCL: libnccl.so.2 was not found, or is too old\n");
    std::erase_if(options.libraries, is_nccl);
  }
  Meeting* meeting = Meeting::make(options.gpus);
  Store store;
  const int status = run_ranks(options.gpus, options.processes, [&](int rank) {
    begin_step("joining", options.limit_s);
    const int devices = devices_for(options.gpus);
    if (devices < options.gpus && uses_nccl()) die("libraries", "NCCL's ranks do not share a GPU");
    cuda(cudaSetDevice(rank % devices), "cudaSetDevice");
    if (rank == 0) {
      print_head(options, nccl);
      for (Nccl::UniqueId& id : meeting->nccl_ids)
        if (uses_nccl() && nccl.get_unique_id(&id) != 0) die("NCCL", "ncclGetUniqueId");
    }
    meeting->barrier();
    Rank(options, nccl, *meeting, options.processes ? nullptr : &store, rank).run();
    begin_step("leaving", options.limit_s);
  });
  std::fflush(stdout);
  if (!uses_nccl()) return status;
  _exit(status);  // NCCL's threads are still there
}
