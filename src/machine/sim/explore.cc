#include "machine/sim/explore.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace starling::sim {
namespace {

constexpr uint64_t kDepthLimit = 20'000;  // operations of one execution: more is a livelock

class Explorer {
 public:
  Explorer(Simulation& simulation, const Program& program, const Options& options,
           const ExploreLimits& limits)
      : simulation_(simulation),
        scheduler_(simulation.world().scheduler),
        program_(program),
        options_(options),
        limits_(limits) {}

  Explored run() {
    do {
      if (wrong_) {
        // Somebody else touched a word that was taken for local: again, knowing it.
        wrong_ = false;
        visited_.clear();
        path_.clear();
        const uint32_t restarts = result_.restarts + 1;
        result_ = Explored{};
        result_.restarts = restarts;
      }
      while (execute() && advance()) {}
    } while (wrong_);
    result_.states = visited_.size();
    return result_;
  }

 private:
  struct Choice {
    uint32_t taken, count;
  };

  // The deepest choice that has an alternative left; false: none.
  bool advance() {
    while (!path_.empty() && path_.back().taken + 1 == path_.back().count) path_.pop_back();
    if (path_.empty()) {
      result_.exhausted = true;
      if (result_.completed == 0) failed("livelock: no schedule completes");
      return false;
    }
    ++path_.back().taken;
    return true;
  }

  uint32_t choose(uint32_t count) {
    if (depth_ == path_.size()) path_.push_back({0, count});
    return path_[depth_++].taken;
  }
  static bool choose_bit(void* explorer) { return static_cast<Explorer*>(explorer)->choose(2) != 0; }

  // All that decides what can happen from here on: shared memory, and each fiber's stack.
  uint64_t key() {
    for (const Rank& rank : simulation_.ranks()) rank.forget_counters();
    const Memory& memory = simulation_.world().memory;
    uint64_t key = hash_bytes(simulation_.world().memory.region().bytes(), memory.watchers_hash());
    for (uint32_t f = 0; f < scheduler_.fiber_count(); ++f) {
      const Fiber& fiber = scheduler_.fiber(f);
      if (fiber.state != FiberState::kEnded) key = hash_bytes(scheduler_.stack_of(f), key);
      key = hash_combine(key,
                         uint64_t(fiber.state) | uint64_t(fiber.woken) << 8 | uint64_t(fiber.expiries) << 16 |
                             uint64_t(fiber.deadline != kForever) << 32 | uint64_t(fiber.must_expire) << 33);
    }
    for (const Rank& rank : simulation_.ranks()) key = hash_combine(key, rank.host_hash());
    return key;
  }

  // Eight bytes at a time; stacks and regions are aligned to that.
  static uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash) {
    const auto* words = reinterpret_cast<const uint64_t*>(bytes.data());
    for (size_t k = 0; k < bytes.size() / 8; ++k) {
      hash = (hash ^ words[k]) * 0x9e3779b97f4a7c15ull;
      hash ^= hash >> 29;
    }
    return hash;
  }

  // False: the exploration is over.
  bool execute() {
    simulation_.prepare(program_, options_, 1);
    simulation_.connect_all();
    scheduler_.explore();
    scheduler_.choose = &choose_bit;
    scheduler_.explorer = this;
    for (uint32_t f = 0; f < scheduler_.fiber_count(); ++f)
      scheduler_.fiber(f).expiries = limits_.expiries_per_fiber;
    depth_ = 0;
    ++result_.executions;
    for (uint64_t steps = 0;; ++steps) {
      if (wrong_) return false;
      if (!scheduler_.failure().empty()) return failed(scheduler_.failure());
      if (steps > kDepthLimit) return failed("an execution without end");
      if (all_complete()) break;
      const uint32_t next = pick();
      if (next == kPruned) return visited_.size() < limits_.states;
      if (next == kNobody) break;
      note_access(next);
      ++result_.transitions;
      scheduler_.run_fiber(next);
    }
    if (!all_complete())
      return failed("deadlock: nothing can happen any more, and not all operations are complete");
    ++result_.completed;
    return true;
  }

  // How the daemons leave after that is not part of the case.
  bool all_complete() const {
    const auto& ranks = simulation_.ranks();
    return std::all_of(ranks.begin(), ranks.end(), [](const Rank& rank) { return rank.application_ended(); });
  }

  bool failed(const std::string& why) {
    result_.failure = why;
    return false;
  }

  uint32_t pick() {
    enabled_.clear();
    for (uint32_t f = 0; f < scheduler_.fiber_count(); ++f) {
      const Fiber& fiber = scheduler_.fiber(f);
      const bool able =
          fiber.state == FiberState::kReady || (fiber.state == FiberState::kSleeping && fiber.woken);
      if (!able) continue;
      if (!fiber.started) return f;  // up to its first operation it touches nothing that others see
      if (fiber.state == FiberState::kReady && is_local(fiber.next_word, f)) return f;
      enabled_.push_back(f);
    }
    if (enabled_.empty() && !pass_time()) return kNobody;
    if (depth_ == path_.size() && !visited_.insert(key()).second) return kPruned;
    return enabled_[enabled_.size() == 1 ? 0 : choose(uint32_t(enabled_.size()))];
  }

  // Nothing else can happen: time passes, and every budget that somebody waits for ends.
  bool pass_time() {
    for (uint32_t f = 0; f < scheduler_.fiber_count(); ++f) {
      Fiber& fiber = scheduler_.fiber(f);
      if (fiber.state != FiberState::kSleeping || fiber.deadline == kForever) continue;
      fiber.must_expire = fiber.woken = true;
      enabled_.push_back(f);
    }
    return !enabled_.empty();
  }

  bool is_local(const uint64_t* word, uint32_t fiber) {
    if (word == nullptr) return false;
    const auto known = accessors_.find(simulation_.world().memory.region().offset(word));
    return known != accessors_.end() && known->second.only == fiber && !known->second.shared;
  }

  // A word that one fiber alone has touched is taken for its own, once that was seen in a whole execution.
  void note_access(uint32_t f) {
    const uint64_t* word = scheduler_.fiber(f).next_word;
    if (word == nullptr) return;
    const uint64_t offset = simulation_.world().memory.region().offset(word);
    const auto [entry, fresh] = accessors_.try_emplace(offset, Accessor{f, false});
    if (fresh || entry->second.only == f || entry->second.shared) return;
    entry->second.shared = true;
    wrong_ = true;
  }

  static constexpr uint32_t kNobody = ~0u;
  static constexpr uint32_t kPruned = ~0u - 1;
  struct Accessor {
    uint32_t only;
    bool shared;
  };

  Simulation& simulation_;
  Scheduler& scheduler_;
  const Program& program_;
  const Options& options_;
  const ExploreLimits limits_;
  Explored result_;
  std::vector<Choice> path_;
  size_t depth_ = 0;
  std::vector<uint32_t> enabled_;
  std::unordered_set<uint64_t> visited_;
  std::unordered_map<uint64_t, Accessor> accessors_;
  bool wrong_ = false;
};

}  // namespace

Explored explore(Simulation& simulation, const Program& program, const Options& wished,
                 const ExploreLimits& limits) {
  Options options = wished;
  options.blocks = options.threads = 1;
  options.core_only = 1;
  options.ordering_checks = 0;  // executions that meet go on as one, whatever their clocks
  // Time stands still, and chance has no say.
  options.launch_delay_ns = options.restart_ns = options.connect_delay_ns = 0;
  options.slow_chance = options.stall_chance = options.late_store_chance = options.late_data_chance = 0;
  options.late_rank_chance = options.forced_park_chance = options.forced_quit_chance = options.drain_chance =
      0;
  options.callback_submits = options.fence_chance = 0;
  return Explorer(simulation, program, options, limits).run();
}

}  // namespace starling::sim
