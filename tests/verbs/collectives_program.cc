// Collectives between two hosts over Soft-RoCE, in a guest (init.sh), while a rail fails. Two processes,
// which take each other for ranks of different hosts; every element of every result is checked.
//
//   collectives_program [NAME...]     one line for each case: CASE name passed, or CASE name failed: why
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <vector>

#include "starling/starling.h"
#include "verbs/faults.h"

namespace starling {
namespace {

using namespace guest;

constexpr uint32_t kRanks = 2;
constexpr uint64_t kBoundNs = 60'000'000'000;
constexpr size_t kCounts[] = {1, 700, 20'000, 3};

struct Progress {
  std::atomic<uint32_t> rounds[kRanks];  // that a rank has finished
  std::atomic<uint32_t> limit{~0u};      // a rank stops there; both agree, since it is set far ahead
  std::atomic<bool> wrong{false};
  char why[512] = {};
};

void check(starling_status status) {
  if (status != STARLING_SUCCESS) throw Failure{starling_last_error()};
}

starling_operation operation(starling_collective kind, std::vector<float>& input, std::vector<float>& output,
                             size_t count) {
  starling_operation operation{};
  operation.struct_bytes = sizeof operation;
  operation.kind = kind;
  operation.input = input.data();
  operation.output = output.data();
  operation.count = count;
  operation.data_type = STARLING_FLOAT32;
  operation.reduce_op = STARLING_SUM;
  return operation;
}

void finish(starling_comm* comm, const starling_operation& operation) {
  starling_request* request = nullptr;
  check(starling_submit(comm, &operation, &request));
  const starling_status status = starling_wait(request, -1);
  starling_request_free(request);
  check(status);
}

float value(uint32_t rank, uint32_t round, size_t at) { return float((rank * 7 + round * 3 + at) % 1000); }

void round(starling_comm* comm, uint32_t rank, uint32_t number) {
  const size_t count = kCounts[number % std::size(kCounts)];
  std::vector<float> input(count), sums(count), all(count * kRanks);
  for (size_t at = 0; at < count; ++at) input[at] = value(rank, number, at);
  finish(comm, operation(STARLING_ALL_REDUCE, input, sums, count));
  finish(comm, operation(STARLING_ALL_GATHER, input, all, count));
  for (size_t at = 0; at < count; ++at) {
    if (sums[at] != value(0, number, at) + value(1, number, at)) throw Failure{"a sum is wrong"};
    for (uint32_t of = 0; of < kRanks; ++of)
      if (all[of * count + at] != value(of, number, at)) throw Failure{"a gathered element is wrong"};
  }
}

void be_rank(uint32_t rank, Progress& progress) {
  starling_context* context = nullptr;
  check(starling_context_create(nullptr, &context));
  starling_comm_options options{};
  options.struct_bytes = sizeof options;
  options.rank = rank;
  options.size = kRanks;
  options.name = "world";
  starling_comm* comm = nullptr;
  check(starling_comm_create(context, &options, &comm));
  for (uint32_t number = 0; number < progress.limit; ++number) {
    round(comm, rank, number);
    progress.rounds[rank] = number + 1;
  }
  check(starling_comm_destroy(comm));
  check(starling_context_destroy(context));
}

// Ranks as processes; this one looks on.
class Job {
 public:
  Job() {
    void* memory = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    progress_ = new (memory) Progress;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      processes_[rank] = fork();
      if (processes_[rank] == 0) run_rank(rank);
    }
  }
  ~Job() {
    for (const pid_t process : processes_) {
      if (process <= 0) continue;
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
    munmap(progress_, sizeof(Progress));
  }

  // Both ranks finish so many more rounds.
  void go_on(uint32_t more) {
    const uint32_t target = progress_->rounds[0] + more;
    const uint64_t end = cpu::monotonic_ns() + kBoundNs;
    while (progress_->rounds[0] < target || progress_->rounds[1] < target) {
      if (progress_->wrong) throw Failure{progress_->why};
      if (cpu::monotonic_ns() > end)
        throw Failure{"no progress: " + std::to_string(progress_->rounds[0]) + " and " +
                      std::to_string(progress_->rounds[1]) + " rounds of " + std::to_string(target)};
      usleep(1000);
    }
  }
  // They end in order.
  void end() {
    progress_->limit = std::max(progress_->rounds[0].load(), progress_->rounds[1].load()) + 10;
    for (pid_t& process : processes_) {
      int status = 0;
      waitpid(process, &status, 0);
      process = 0;
      if (progress_->wrong || status != 0)
        throw Failure{std::string("a rank ended with an error: ") + progress_->why};
    }
  }

 private:
  [[noreturn]] void run_rank(uint32_t rank) {
    setenv("STARLING_JOB", "guest", 1);
    setenv("STARLING_HOST_ID", rank == 0 ? "a" : "b", 1);
    setenv("STARLING_TCP_INTERFACES", rank == 0 ? "a0,a1" : "b0,b1", 1);
    setenv("STARLING_TCP_GIVE_UP_S", "40", 1);
    setenv("STARLING_PROBE_S", "4", 1);  // an emulated host is slow
    setenv("STARLING_LINK", "verbs", 1);
    try {
      be_rank(rank, *progress_);
      _exit(0);
    } catch (const Failure& failure) {
      std::snprintf(progress_->why, sizeof progress_->why, "rank %u: %s", rank, failure.why.c_str());
      progress_->wrong = true;
      _exit(1);
    }
  }

  Progress* progress_;
  pid_t processes_[kRanks] = {};
};

void collectives_ride_on_rdma() {
  const uint64_t before = packets_sent(0);
  Job job;
  job.go_on(8);
  const uint64_t sent = packets_sent(0) - before;
  if (sent < 100) throw Failure{"the device has sent next to nothing: " + std::to_string(sent) + " packets"};
  job.end();
}

void collectives_outlive_a_port() {
  Job job;
  job.go_on(8);
  const uint64_t before = packets_sent(1);
  port(0, 'a', false);
  job.go_on(8);
  if (packets_sent(1) < before + 50) throw Failure{"the backup was not used by RDMA"};
  heal(0);
  job.go_on(8);
  job.end();
}

void collectives_outlive_silence() {
  Job job;
  job.go_on(4);
  lose(0, 'b', "100%");
  job.go_on(8);
  heal(0);
  job.go_on(4);
  job.end();
}

constexpr Case kCases[] = {
    {"collectives_ride_on_rdma", collectives_ride_on_rdma},
    {"collectives_outlive_a_port", collectives_outlive_a_port},
    {"collectives_outlive_silence", collectives_outlive_silence},
};

}  // namespace
}  // namespace starling

int main(int argc, char** argv) { return starling::guest::run_those(starling::kCases, argc - 1, argv + 1); }
