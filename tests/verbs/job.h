// Two ranks as processes in a guest (init.sh), which take each other for ranks of another host; whoever makes
// the job looks on while they do one round after the other.
#pragma once
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "machine/cpu/arena_view.h"
#include "monitor/watch.h"
#include "verbs/rank_programs.h"

namespace starling::guest {

inline constexpr uint32_t kRanks = 2;
inline constexpr uint64_t kBoundNs = 60'000'000'000;

using Round = void (*)(const Rank&, uint32_t round);

struct Progress {
  std::atomic<uint32_t> rounds[kRanks];  // that a rank has finished
  std::atomic<bool> ending{false};
  // A rank stops there. Rank 0 sets it as it begins a round, without which rank 1 cannot finish that round:
  // so both stop behind it.
  std::atomic<uint32_t> limit{~0u};
  // What a rank sent by RDMA, payloads alone (wire/monitor.h).
  std::atomic<uint64_t> straight_bytes[kRanks], copied_bytes[kRanks];
  std::atomic<uint64_t> closed_paths[kRanks];  // that it sent by, so far
  std::atomic<bool> wrong{false};
  char why[512] = {};
};

// Of this process's own rank.
inline void look_at_payloads(uint32_t rank, Progress& progress) {
  uint64_t straight = 0, copied = 0, closed = 0;
  for (const std::string& name : cpu::arena_names()) try {
      monitor::Watch watch(name, {});
      watch.follow();
      const monitor::RankView view = watch.look(cpu::monotonic_ns());
      if (view.pid != uint32_t(getpid())) continue;
      for (const monitor::PathView& path : view.paths) {
        straight += path.straight_bytes;
        copied += path.copied_bytes;
        closed += path.closed;
      }
    } catch (const Error&) {  // no rank's
    }
  progress.straight_bytes[rank] = straight;
  progress.copied_bytes[rank] = copied;
  progress.closed_paths[rank] = closed;
}

// A setting of jobs: the system counts what a user may lock only where it has no right to more. Verbs refuse
// a process that drops a right later.
inline constexpr const char* kNoRightToLock = "GUEST_NO_RIGHT_TO_LOCK";
inline void drop_right_to_lock() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  syscall(SYS_capget, &header, data);
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  if (syscall(SYS_capset, &header, data) != 0) throw Failure{"cannot drop a right"};
}

inline void be_rank(uint32_t number, Round round, Progress& progress) {
  if (getenv(kNoRightToLock) != nullptr) drop_right_to_lock();
  Rank rank{nullptr, nullptr, number, kRanks};
  check(starling_context_create(nullptr, &rank.context));
  starling_comm_options options{};
  options.struct_bytes = sizeof options;
  options.rank = number;
  options.size = kRanks;
  options.name = "world";
  check(starling_comm_create(rank.context, &options, &rank.comm));
  for (uint32_t done = 0; done < progress.limit; ++done) {
    if (number == 0 && progress.ending) progress.limit = done + 1;
    round(rank, done);
    look_at_payloads(number, progress);
    progress.rounds[number] = done + 1;
  }
  check(starling_comm_destroy(rank.comm));
  check(starling_context_destroy(rank.context));
}

// Ranks as processes; this one looks on.
class Job {
 public:
  // settings: of both ranks, beside those that every rank has here; of_first: of the first alone.
  using Settings = std::vector<std::pair<std::string, std::string>>;
  explicit Job(Round round = orderly, Settings settings = {}, Settings of_first = {})
      : settings_(std::move(settings)), of_first_(std::move(of_first)) {
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
  uint64_t straight_bytes(uint32_t rank) const { return progress_->straight_bytes[rank]; }
  uint64_t copied_bytes(uint32_t rank) const { return progress_->copied_bytes[rank]; }
  uint64_t closed_paths() const { return progress_->closed_paths[0] + progress_->closed_paths[1]; }
  // They end in order, after the round that they are in.
  void end() {
    progress_->ending = true;
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
    for (const auto& [name, value] : settings_) setenv(name.c_str(), value.c_str(), 1);
    for (const auto& [name, value] : of_first_)
      if (of_first) setenv(name.c_str(), value.c_str(), 1);
    try {
      be_rank(rank, round, *progress_);
      _exit(0);
    } catch (const Failure& failure) {
      std::snprintf(progress_->why, sizeof progress_->why, "rank %u: %s", rank, failure.why.c_str());
      progress_->wrong = true;
      _exit(1);
    }
  }

  const Settings settings_, of_first_;
  Progress* progress_;
  pid_t processes_[kRanks] = {};
};

}  // namespace starling::guest
