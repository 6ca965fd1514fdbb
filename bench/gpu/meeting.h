// Where ranks meet, as threads of one process or as processes: a barrier, one number of each rank, NCCL's id.
// It lies in memory that all of them share. Every wait ends: who waits longer than the limit dies with a
// text.
#pragma once
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <new>
#include <thread>
#include <vector>

#include "gpu_ranks.h"

namespace gpu_bench {

// What the process was doing when its time was up: written before each step, told by the alarm.
inline char current_step[256] = "starting";

[[noreturn]] inline void end_hang(int) {
  static const char kText[] = "hung: ";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  (void)!write(STDERR_FILENO, current_step, strnlen(current_step, sizeof current_step));
  (void)!write(STDERR_FILENO, "\n", 1);
  _exit(4);
}

// The process ends, if it does not begin its next step within `limit_s`.
inline void begin_step(const char* text, unsigned limit_s) {
  std::snprintf(current_step, sizeof current_step, "%s", text);
  alarm(limit_s);
}

class Meeting {
 public:
  static constexpr int kMostRanks = 16;

  static Meeting* make(int ranks) {
    void* memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap", "no memory to meet in");
    return new (memory) Meeting(ranks);
  }

  void barrier() {
    const uint32_t round = round_.load(std::memory_order_relaxed);
    // Acquire and release: the last to arrive has what all wrote before, and hands it on by the next store.
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
      arrived_.store(0, std::memory_order_relaxed);
      // Release: pairs with the acquire below.
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins)
      if (spins > 10000) std::this_thread::yield();
  }

  // The same result on all ranks.
  double mean(int rank, double mine) {
    double sum = 0;
    for (const double one : all(rank, mine)) sum += one;
    return sum / ranks_;
  }
  double sum(int rank, double mine) { return mean(rank, mine) * ranks_; }

  Nccl::UniqueId nccl_ids[4] = {};  // one for each communicator

 private:
  explicit Meeting(int ranks) : ranks_(uint32_t(ranks)) {}

  std::vector<double> all(int rank, double mine) {
    numbers_[rank] = mine;
    barrier();
    std::vector<double> found(numbers_, numbers_ + ranks_);
    barrier();
    return found;
  }

  const uint32_t ranks_;
  std::atomic<uint32_t> arrived_{0}, round_{0};
  double numbers_[kMostRanks] = {};  // each written by its rank
};

// Runs `rank_main(rank)` on all ranks; the exit status. Before CUDA is used, if they are to be processes:
// each is a fork. If one fails, the others are ended.
template <class RankMain>
int run_ranks(int ranks, bool processes, RankMain&& rank_main) {
  signal(SIGALRM, end_hang);
  if (!processes) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { rank_main(rank); });
    for (std::thread& thread : threads) thread.join();
    return 0;
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) die("fork", "no process for a rank");
    if (child == 0) {
      rank_main(rank);
      std::fflush(stdout);
      _exit(0);
    }
    children.push_back(child);
  }
  int status = 0, failed = 0;
  for (int ended = 0; ended < ranks && waitpid(-1, &status, 0) > 0; ++ended) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (failed == 0)
      for (const pid_t child : children) kill(child, SIGKILL);
    if (failed == 0) failed = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return failed;
}

}  // namespace gpu_bench
