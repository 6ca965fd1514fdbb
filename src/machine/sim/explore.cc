#include "machine/sim/explore.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace starling::sim {
namespace {

constexpr uint64_t kDepthLimit = 20'000;  // operations of one execution: more is a livelock

constexpr uint32_t kScoutWalks = 64;

// Which fiber alone touches a word or a cell of data, as far as was seen.
class Owners {
 public:
  explicit Owners(World& world) : world_(world) {}

  // Forgets nothing; words that one fiber alone was seen to touch are taken for its own from now on.
  void trust() {
    for (auto& places : places_)
      for (Place& place : places) place.trusted = place.only != kNobody && !place.shared;
  }
  bool owns(uint32_t fiber, const void* address) {
    const Place& place = at(address);
    return place.trusted && place.only == fiber;
  }
  // False: the place was taken for somebody else's own.
  bool touch(uint32_t fiber, const void* address) {
    Place& place = at(address);
    if (place.only == kNobody) place.only = fiber;
    if (place.only == fiber) return true;
    place.shared = true;
    return !std::exchange(place.trusted, false);
  }

  static constexpr uint64_t kCellBytes = 16;

 private:
  static constexpr uint32_t kNobody = ~0u;
  struct Place {
    uint32_t only = kNobody;
    bool shared = false, trusted = false;
  };

  Place& at(const void* address) {
    if (world_.memory.region().contains(address)) return at(0, world_.memory.region().offset(address) / 8);
    const bool slot = world_.shadow.slots().contains(address);
    const Region& region = slot ? world_.shadow.slots() : world_.shadow.buffers();
    return at(slot ? 1 : 2, region.offset(address) / kCellBytes);
  }
  Place& at(uint32_t region, uint64_t index) {
    std::vector<Place>& places = places_[region];
    if (places.size() <= index) places.resize(index + 1);
    return places[index];
  }

  World& world_;
  std::vector<Place> places_[3];
};

class Explorer {
 public:
  Explorer(Simulation& simulation, const Program& program, const Options& options,
           const ExploreLimits& limits)
      : simulation_(simulation),
        scheduler_(simulation.world().scheduler),
        owners_(simulation.world()),
        program_(program),
        options_(options),
        limits_(limits) {}

  // By chance, to learn which words are local, or as all that is wanted.
  void walk(uint64_t count) {
    walking_ = true;
    for (uint64_t k = 0; k < count && execute(); ++k) {}
    walking_ = false;
  }

  Explored run() {
    if (limits_.walks) {
      walk(limits_.walks);
      return result_;
    }
    for (uint32_t k = 0; k < kScoutWalks; ++k) walk(1);
    do {
      // Perhaps somebody touched what was taken for another's own: again, knowing it.
      const uint32_t restarts = result_.restarts + wrong_;
      result_ = Explored{};
      result_.restarts = restarts;
      wrong_ = false;
      visited_.clear();
      path_.clear();
      if (limits_.reduce) owners_.trust();
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
    if (walking_) return random_.below(count);
    if (depth_ == path_.size()) path_.push_back({0, count});
    STARLING_ASSERT(path_[depth_].count == count, "an execution did not repeat itself");
    return path_[depth_++].taken;
  }
  static bool choose_bit(void* explorer) { return static_cast<Explorer*>(explorer)->choose(2) != 0; }

  // All that decides what can happen from here on: counters, data, and each fiber's stack.
  uint64_t key() {
    for (const Rank& rank : simulation_.ranks()) rank.forget_counters();
    World& world = simulation_.world();
    uint64_t key = hash_bytes(world.memory.region().bytes(), world.memory.watchers_hash());
    key = hash_bytes(world.shadow.slots().bytes(), key);
    key = hash_bytes(world.shadow.buffers().bytes(), key);
    for (uint32_t f = 0; f < scheduler_.fiber_count(); ++f) {
      const Fiber& fiber = scheduler_.fiber(f);
      if (fiber.state != FiberState::kEnded) key = hash_bytes(scheduler_.stack_of(f), key);
      key =
          hash_combine(key, uint64_t(fiber.state) | uint64_t(fiber.woken) << 8 |
                                uint64_t(fiber.expiries) << 16 | uint64_t(fiber.deadline != kForever) << 32 |
                                uint64_t(fiber.must_expire) << 33 | uint64_t(fiber.due) << 34);
    }
    for (const Rank& rank : simulation_.ranks()) key = hash_combine(key, rank.host_hash());
    return key;
  }

  // Eight bytes at a time; stacks and regions are aligned to that.
  static uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed) {
    const auto* words = reinterpret_cast<const uint64_t*>(bytes.data());
    const size_t count = bytes.size() / 8;
    uint64_t lanes[4] = {seed, 1, 2, 3};
    for (size_t k = 0; k < count; ++k) {
      uint64_t& lane = lanes[k % 4];
      lane = (lane ^ words[k]) * 0x9e3779b97f4a7c15ull;
      lane ^= lane >> 29;
    }
    return hash_combine(hash_combine(lanes[0], lanes[1]), hash_combine(lanes[2], lanes[3]));
  }

  // False: the exploration is over.
  bool execute() {
    begin();
    for (uint64_t steps = 0;; ++steps) {
      if (wrong_) return false;
      if (!scheduler_.failure().empty()) return failed(scheduler_.failure());
      if (steps > kDepthLimit) return failed("an execution without end");
      if (all_complete()) break;
      const uint32_t next = pick();
      if (next == kPruned) return visited_.size() < limits_.states;
      if (next == kNobody) break;
      note_operation(next);
      ++result_.transitions;
      scheduler_.run_fiber(next);
    }
    if (!all_complete())
      return failed("deadlock: nothing can happen any more, and not all operations are complete");
    ++result_.completed;
    return true;
  }

  void begin() {
    simulation_.prepare(program_, options_, 1);
    simulation_.connect_all();
    scheduler_.explore();
    scheduler_.choose = &choose_bit;
    scheduler_.touched = &touched;
    scheduler_.explorer = this;
    for (uint32_t f = 0; f < scheduler_.fiber_count(); ++f)
      scheduler_.fiber(f).expiries = limits_.expiries_per_fiber;
    after_own_.assign(scheduler_.fiber_count(), false);
    depth_ = 0;
    ++result_.executions;
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
    // Up to its first operation a fiber touches nothing that others see: in their order, so that hosts have
    // submitted before blocks look.
    for (uint32_t f = 0; f < scheduler_.fiber_count(); ++f)
      if (!scheduler_.fiber(f).started) return f;
    for (uint32_t f = 0; f < scheduler_.fiber_count(); ++f) {
      const Fiber& fiber = scheduler_.fiber(f);
      if (fiber.state == FiberState::kReady && is_local(f)) return f;
      if (fiber.state == FiberState::kReady || (fiber.state == FiberState::kSleeping && fiber.woken))
        enabled_.push_back(f);
    }
    const bool time_passes = enabled_.empty();
    if (time_passes && !pass_time()) return kNobody;
    if (!walking_ && depth_ == path_.size() && !visited_.insert(key()).second) return kPruned;
    const uint32_t next = enabled_[enabled_.size() == 1 ? 0 : choose(uint32_t(enabled_.size()))];
    if (time_passes) {
      Fiber& fiber = scheduler_.fiber(next);
      fiber.due = false;
      fiber.must_expire = true;
    }
    return next;
  }

  // Nothing else can happen. Budgets end in any order, but each sleeper's before any other's for the second
  // time.
  bool pass_time() {
    for (const bool fresh_round : {false, true}) {
      for (uint32_t f = 0; f < scheduler_.fiber_count(); ++f) {
        Fiber& fiber = scheduler_.fiber(f);
        if (fiber.state != FiberState::kSleeping || fiber.deadline == kForever) continue;
        fiber.due |= fresh_round;
        if (fiber.due) enabled_.push_back(f);
      }
      if (!enabled_.empty()) return true;
    }
    return false;
  }

  // Nobody but the fiber ever touches what its next operation does.
  bool is_local(uint32_t f) {
    const Fiber& fiber = scheduler_.fiber(f);
    if (fiber.next_word != nullptr) return owners_.owns(f, fiber.next_word);
    if (fiber.next_move == nullptr) return after_own_[f];
    return for_each_cell(*fiber.next_move, [&](const std::byte* cell) { return owners_.owns(f, cell); });
  }

  void note_operation(uint32_t f) {
    const Fiber& fiber = scheduler_.fiber(f);
    // The place after a store that nobody else sees is no place.
    after_own_[f] = fiber.next_word != nullptr && owners_.owns(f, fiber.next_word);
    if (fiber.next_word != nullptr) touch(f, fiber.next_word);
    if (fiber.next_move != nullptr)
      for_each_cell(*fiber.next_move, [&](const std::byte* cell) { return touch(f, cell), true; });
  }
  static void touched(void* explorer, const uint64_t* word) {
    auto* self = static_cast<Explorer*>(explorer);
    self->touch(self->scheduler_.current_id(), word);
  }
  void touch(uint32_t f, const void* address) { wrong_ |= !owners_.touch(f, address); }

  template <class Visit>
  static bool for_each_cell(const Move& move, Visit&& visit) {
    auto range = [&](const std::byte* from) {
      for (uint64_t at = 0; at < move.bytes; at += Owners::kCellBytes)
        if (!visit(from + at)) return false;
      return true;
    };
    for (uint32_t s = 0; s < move.source_count; ++s)
      if (!range(move.sources[s])) return false;
    for (uint32_t d = 0; d < move.destination_count; ++d)
      if (!range(move.destinations[d])) return false;
    return true;
  }

  static constexpr uint32_t kNobody = ~0u;
  static constexpr uint32_t kPruned = ~0u - 1;

  Simulation& simulation_;
  Scheduler& scheduler_;
  Owners owners_;
  const Program& program_;
  const Options& options_;
  const ExploreLimits limits_;
  Explored result_;
  std::vector<Choice> path_;
  size_t depth_ = 0;
  std::vector<uint32_t> enabled_;
  std::vector<uint8_t> after_own_;  // per fiber: its last operation touched nothing but its own
  std::unordered_set<uint64_t> visited_;
  Random random_{1, 11};  // of walks
  bool walking_ = false;
  bool wrong_ = false;
};

}  // namespace

Explored explore(Simulation& simulation, const Program& program, const Options& wished,
                 const ExploreLimits& limits) {
  Options options = wished;
  options.blocks = options.threads = 1;
  options.core_only = 1;
  // Time stands still, and chance has no say.
  options.launch_delay_ns = options.restart_ns = options.connect_delay_ns = 0;
  options.slow_chance = options.stall_chance = options.late_store_chance = options.late_data_chance = 0;
  options.late_rank_chance = options.forced_park_chance = options.forced_quit_chance = options.drain_chance =
      0;
  options.callback_submits = options.fence_chance = 0;
  return Explorer(simulation, program, options, limits).run();
}

}  // namespace starling::sim
