// Counters shared by fibers: what each fiber sees of them, and what follows from having seen it.
//
// A store may stay in its block's store buffer for a while: others see it late, and relaxed stores overtake
// each other. A release store becomes visible only after all stores and data before it: those of its fiber,
// and those that the block's other fibers made before a barrier. Read-modify-writes and fences empty the
// buffer of these first.
//
// Order is kept as vector clocks (happens-before): a release publishes its fiber's clock with the value, an
// acquire that reads the value joins it. What is not ordered by that is a race, in every schedule, whether
// or not it does harm in this one (shadow.h).
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/assert.h"
#include "machine/sim/region.h"
#include "machine/sim/scheduler.h"

namespace starling::sim {

class Memory {
 public:
  Memory();

  // Called when a release becomes visible: data up to `mark` of the fiber's block must be visible before.
  using Publish = void (*)(void* shadow, uint32_t fiber, uint64_t mark);
  using Mark = uint64_t (*)(void* shadow, uint32_t fiber);

  void reset(Scheduler& scheduler, const Options& options);
  void connect(void* shadow, Mark mark, Publish publish);
  // After all fibers were added.
  void begin();

  Region& region() { return region_; }
  // For messages.
  std::function<std::string(const void*)> describe;

  uint64_t load(const uint64_t* word, bool acquire);
  // The running fiber has looked at the word since it changed last.
  bool seen(const uint64_t* word) const;
  void store(uint64_t* word, uint64_t value, bool release);
  uint64_t fetch_add(uint64_t* word, uint64_t value, bool ordered = true);
  uint64_t compare_exchange(uint64_t* word, uint64_t expected, uint64_t desired, bool ordered = true);
  void fence() { drain(scheduler_->current_id()); }

  // A counter may get another writer, one that is ordered after the last one's last store.
  void allow_handing_over() { handing_over_ = true; }
  // Several fibers or blocks may write the word.
  void allow_many_writers(const uint64_t* word) { at(word).writer_unit = kAnyUnit; }
  // What is read from the word with acquire belongs to one block at a time: each reader is ordered after the
  // last one. Who keeps what it saw does not say for whom.
  void allow_one_reader(const uint64_t* word) { at(word).one_reader = true; }

  // The threads of the fiber's block are at a barrier: each sees what the others stored, and its releases
  // tell of it.
  void meet(uint32_t fiber);

  // ---- clocks ----------------------------------------------------------------------------------------
  uint32_t* clock(uint32_t fiber) { return &clocks_[size_t(fiber) * width_]; }
  uint32_t width() const { return width_; }
  // Joins the clock of `from` into that of `to`.
  void join(uint32_t* to, const uint32_t* from) const {
    for (uint32_t k = 0; k < width_; ++k) to[k] = to[k] > from[k] ? to[k] : from[k];
  }
  void advance(uint32_t fiber) {
    ++clock(fiber)[fiber];
    touched_[fiber] = 1;
  }
  // The fiber's clock may have changed, or been used, since the last barrier of its block.
  void touch(uint32_t fiber) { touched_[fiber] = 1; }
  // All that any of these fibers knows, all of them know.
  void merge(const uint32_t* fibers, uint32_t count);
  bool checks() const { return checks_; }

  // Which fibers count as one writer: those of a block, or a host's.
  void set_unit(uint32_t fiber, uint32_t unit) {
    if (units_.size() <= fiber) units_.resize(fiber + 1);
    units_[fiber] = unit;
  }
  uint32_t unit(uint32_t fiber) const { return units_[fiber]; }

  // Who waits for what; for exploration.
  uint64_t watchers_hash() const;

  static void commit_due(void* memory, uint32_t fiber);

 private:
  static constexpr uint32_t kNoFiber = ~0u;
  static constexpr uint32_t kNoUnit = ~0u;
  static constexpr uint32_t kAnyUnit = ~0u - 1;
  static constexpr uint32_t kWatchers = 4;
  static constexpr uint8_t kMixed = kWatchers + 2;

  struct alignas(64) Location {
    const uint64_t* word;
    uint32_t writer;         // fiber of the value; kNoFiber: as it was made
    uint32_t writer_unit;    // the only unit that writes it
    uint32_t last_fiber;     // handed over: of its last store ...
    uint32_t last_stamp;     // ... and the fiber's own clock then
    uint32_t stamp;          // the writer's own clock when it released
    uint32_t clock;          // index of the published clock; 0: none yet
    bool released;           // the value was stored with release
    bool one_reader;         // allow_one_reader(): ...
    uint32_t reader;         // ... its fiber ...
    uint32_t read_stamp;     // ... and the fiber's own clock when it read last
    uint8_t watcher_count;  // fibers that looked since the last change; over kWatchers: all of their rank,
                            // or kMixed: of all ranks
    uint32_t watchers[kWatchers];
  };
  struct Pending {
    uint64_t* word;
    uint64_t value;
    uint64_t ready;
    uint64_t mark;
    uint32_t clock;  // index in snapshots_; releases only
    uint32_t stamp;
    uint32_t fiber;
    bool release;
    bool met;  // a barrier of its block came after it
    // The fiber sees it before others do, and it comes before the fiber's next release.
    bool is_before(uint32_t other) const { return met || fiber == other; }
  };
  std::vector<Pending>& buffer(uint32_t fiber) { return pending_[buffers_[fiber]]; }

  Location& at(const uint64_t* word) {
    STARLING_ASSERT(region_.contains(word), "a counter outside of the simulation's memory");
    const uint32_t index = location_of_[region_.offset(word) / 8];
    return index != 0 ? locations_[index - 1] : add_location(word);
  }
  Location& add_location(const uint64_t* word);
  void watch(Location& location, uint32_t fiber) {
    const uint32_t count = std::min<uint32_t>(location.watcher_count, kWatchers);
    for (uint32_t k = 0; k < count; ++k)
      if (location.watchers[k] == fiber) return;
    add_watcher(location, fiber);
  }
  void add_watcher(Location& location, uint32_t fiber);
  void changed(Location& location);
  // Every acquire has a release: reading what was stored relaxed orders nothing.
  void acquire(Location& location, uint32_t fiber) {
    if (location.one_reader) take_over(location, fiber);
    if (location.writer == kNoFiber || location.writer == fiber || !checks_) return;
    if (!location.released) not_released(location);
    if (clock(fiber)[location.writer] < location.stamp) learn(location, fiber);
  }
  [[noreturn]] void not_released(const Location& location);
  void learn(const Location& location, uint32_t fiber);
  void own(Location& location, uint32_t fiber);
  void take_over(Location& location, uint32_t fiber);
  bool handed_over(const Location& location, uint32_t fiber);
  void make_visible(Location& location, uint64_t value, uint32_t fiber, bool release, const uint32_t* clock,
                    uint32_t stamp);
  void postpone(uint64_t* word, uint64_t value, bool release, uint32_t fiber);
  void commit(std::vector<Pending>& pending, size_t index);
  void drain(uint32_t fiber);
  void drain_word(uint32_t fiber, const uint64_t* word);
  void publish(Location& location, const uint32_t* clock, bool keep);

  Scheduler* scheduler_ = nullptr;
  Region region_;
  Region index_;  // uint32 per word of region_: its location + 1
  uint32_t* location_of_;
  std::vector<Location> locations_;
  std::vector<uint32_t> units_;
  std::vector<uint8_t> touched_;
  std::vector<uint32_t> clocks_;  // of fibers
  std::vector<uint32_t> published_;  // of locations; the first is unused
  std::vector<uint32_t> snapshots_;  // of pending releases
  std::vector<uint32_t> free_snapshots_;
  std::vector<uint32_t> buffers_;  // by fiber: where in pending_ its block's store buffer is
  std::vector<std::vector<Pending>> pending_;
  uint32_t width_ = 0;
  bool checks_ = true;
  bool handing_over_ = false;
  uint32_t late_chance_ = 0;
  uint64_t late_ns_ = 0;
  void* shadow_ = nullptr;
  Mark mark_ = nullptr;
  Publish publish_ = nullptr;
};

inline bool Memory::seen(const uint64_t* word) const {
  const uint32_t index = location_of_[region_.offset(word) / 8];
  if (index == 0) return false;
  const Location& location = locations_[index - 1];
  const uint32_t* end = location.watchers + std::min<uint32_t>(location.watcher_count, kWatchers);
  return std::find(location.watchers, end, scheduler_->current_id()) != end;
}

inline uint64_t Memory::load(const uint64_t* word, bool acquire_order) {
  const uint32_t fiber = scheduler_->current_id();
  Location& location = at(word);
  watch(location, fiber);
  // Its own store, or its block's before a barrier, that others do not see yet.
  if (late_chance_ != 0) {
    const auto& pending = buffer(fiber);
    for (size_t k = pending.size(); k > 0; --k)
      if (pending[k - 1].word == word && pending[k - 1].is_before(fiber)) return pending[k - 1].value;
  }
  if (acquire_order) acquire(location, fiber);
  return *word;
}

}  // namespace starling::sim
