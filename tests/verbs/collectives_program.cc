// Collectives between two hosts over Soft-RoCE, in a guest (init.sh), while a rail fails. Ranks are
// processes, which take those of the other half for ranks of another host; every element of every result is
// checked (rank_programs.h).
//
//   collectives_program [NAME...]     one line for each case: CASE name passed, or CASE name failed: why
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "verbs/rank_programs.h"

namespace starling {
namespace {

using namespace guest;

constexpr uint32_t kRanks = 2;
constexpr uint64_t kBoundNs = 60'000'000'000;

using Round = void (*)(const Rank&, uint32_t round);

struct Progress {
  std::atomic<uint32_t> rounds[kRanks];  // that a rank has finished
  std::atomic<uint32_t> limit{~0u};      // a rank stops there; both agree, since it is set far ahead
  std::atomic<bool> wrong{false};
  char why[512] = {};
};

void be_rank(uint32_t number, Round round, Progress& progress) {
  Rank rank{nullptr, nullptr, number, kRanks};
  check(starling_context_create(nullptr, &rank.context));
  starling_comm_options options{};
  options.struct_bytes = sizeof options;
  options.rank = number;
  options.size = kRanks;
  options.name = "world";
  check(starling_comm_create(rank.context, &options, &rank.comm));
  for (uint32_t done = 0; done < progress.limit; ++done) {
    round(rank, done);
    progress.rounds[number] = done + 1;
  }
  check(starling_comm_destroy(rank.comm));
  check(starling_context_destroy(rank.context));
}

// Ranks as processes; this one looks on.
class Job {
 public:
  explicit Job(Round round = orderly) {
    void* memory = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    progress_ = new (memory) Progress;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      processes_[rank] = fork();
      if (processes_[rank] == 0) run_rank(rank, round);
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

  // All ranks finish so many more rounds.
  void go_on(uint32_t more) {
    const uint32_t target = furthest() + more;
    const uint64_t end = cpu::monotonic_ns() + patiently(kBoundNs);
    while (nearest() < target) {
      if (progress_->wrong) throw Failure{progress_->why};
      if (cpu::monotonic_ns() > end)
        throw Failure{"no progress: " + std::to_string(nearest()) + " to " + std::to_string(furthest()) +
                      " rounds of " + std::to_string(target)};
      usleep(1000);
    }
  }
  // Round by round, until traffic goes by the first rail again, both ways, and by RDMA.
  void return_to_the_first_rail() {
    const uint64_t end = cpu::monotonic_ns() + patiently(kBoundNs);
    for (;;) {
      const uint64_t first[] = {packets_sent(0, 'a'), packets_sent(0, 'b')};
      const uint64_t second[] = {packets_sent(1, 'a'), packets_sent(1, 'b')};
      go_on(4);
      const auto returned = [&](int k, char way) {
        return packets_sent(0, way) - first[k] > 100 + 4 * (packets_sent(1, way) - second[k]);
      };
      if (returned(0, 'a') && returned(1, 'b')) return;
      if (cpu::monotonic_ns() > end) throw Failure{"the first rail is not used again by RDMA"};
    }
  }
  // They end in order.
  void end() {
    progress_->limit = furthest() + 10;
    for (pid_t& process : processes_) {
      int status = 0;
      waitpid(process, &status, 0);
      process = 0;
      if (progress_->wrong || status != 0)
        throw Failure{std::string("a rank ended with an error: ") + progress_->why};
    }
  }

 private:
  uint32_t nearest() const { return *std::min_element(progress_->rounds, progress_->rounds + kRanks); }
  uint32_t furthest() const { return *std::max_element(progress_->rounds, progress_->rounds + kRanks); }

  [[noreturn]] void run_rank(uint32_t rank, Round round) {
    const bool of_first = rank == 0;
    setenv("STARLING_JOB", "guest", 1);
    setenv("STARLING_HOST_ID", of_first ? "a" : "b", 1);
    setenv("STARLING_TCP_INTERFACES", of_first ? "a0,a1" : "b0,b1", 1);
    setenv("STARLING_TCP_GIVE_UP_S", std::to_string(40 * slowness()).c_str(), 1);
    setenv("STARLING_PROBE_S", std::to_string(4 * slowness()).c_str(), 1);  // an emulated host is slow
    setenv("STARLING_VERBS_TIMEOUT", std::to_string(patient_timeout(14)).c_str(), 1);
    setenv("STARLING_LINK", "verbs", 1);
    try {
      be_rank(rank, round, *progress_);
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
  job.return_to_the_first_rail();
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

// The address, and the GID with it, is another one when the port comes up. The end that has moved calls the
// other, which learns from the call where to call.
void port_heals_with_another_address(char end) {
  Job job;
  job.go_on(8);
  port(0, end, false);
  job.go_on(8);
  come_up_elsewhere(0, end);
  job.return_to_the_first_rail();
  job.end();
}
void first_hosts_port_heals_with_another_address() { port_heals_with_another_address('a'); }
void second_hosts_port_heals_with_another_address() { port_heals_with_another_address('b'); }

void program_outlives_failures(Round round) {
  Job job(round);
  job.go_on(1);
  port(0, 'a', false);
  job.go_on(2);
  heal(0);
  job.go_on(1);
  lose(0, 'a', "100%");
  job.go_on(2);
  heal(0);
  job.go_on(1);
  job.end();
}
void dfccl_program_1_outlives_failures() { program_outlives_failures(program_1); }
void dfccl_program_2_outlives_failures() { program_outlives_failures(program_2); }

constexpr Case kCases[] = {
    {"collectives_ride_on_rdma", collectives_ride_on_rdma},
    {"collectives_outlive_a_port", collectives_outlive_a_port},
    {"collectives_outlive_silence", collectives_outlive_silence},
    {"first_hosts_port_heals_with_another_address", first_hosts_port_heals_with_another_address},
    {"second_hosts_port_heals_with_another_address", second_hosts_port_heals_with_another_address},
    {"dfccl_program_1_outlives_failures", dfccl_program_1_outlives_failures},
    {"dfccl_program_2_outlives_failures", dfccl_program_2_outlives_failures},
};

}  // namespace
}  // namespace starling

int main(int argc, char** argv) { return starling::guest::run_those(starling::kCases, argc - 1, argv + 1); }
