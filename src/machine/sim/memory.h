// Counters shared by fibers: what each fiber sees of them, and what follows from having seen it.
//
// A store may stay in its fiber's store buffer for a while: others see it late, and relaxed stores overtake
// each other. A release store becomes visible only after all stores and data before it. Read-modify-writes
// and fences empty the buffer first.
//
// Order is kept as vector clocks (happens-before): a release publishes its fiber's clock with the value, an
// acquire that reads the value joins it. What is not ordered by that is a race, in every schedule, whether
// or not it does harm in this one (shadow.h).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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
  void store(uint64_t* word, uint64_t value, bool release);
  uint64_t fetch_add(uint64_t* word, uint64_t value, bool ordered = true);
  uint64_t compare_exchange(uint64_t* word, uint64_t expected, uint64_t desired);
  void fence() { drain(scheduler_->current_id()); }

  // A counter may get another writer, one that is ordered after the last one's last store.
  void allow_handing_over() { handing_over_ = true; }
  // Several fibers or blocks may write the word.
  void allow_many_writers(const uint64_t* word) { at(word).writer_unit = kAnyUnit; }

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

  struct Location {
    const uint64_t* word;
    uint32_t writer;         // fiber of the value; kNoFiber: as it was made
    uint32_t writer_unit;    // the only unit that writes it
    uint32_t last_fiber;     // handed over: of its last store ...
    uint32_t last_stamp;     // ... and the fiber's own clock then
    uint32_t stamp;          // the writer's own clock when it released
    uint32_t clock;          // index of the published clock; 0: none yet
    bool released;           // the value was stored with release
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
    bool release;
  };

  Location& at(const uint64_t* word);
  void watch(Location& location, uint32_t fiber);
  void changed(Location& location);
  void acquire(Location& location, uint32_t fiber);
  void own(Location& location, uint32_t fiber);
  bool handed_over(const Location& location, uint32_t fiber);
  void make_visible(Location& location, uint64_t value, uint32_t fiber, bool release, const uint32_t* clock,
                    uint32_t stamp);
  void postpone(uint64_t* word, uint64_t value, bool release, uint32_t fiber);
  void commit(uint32_t fiber, size_t index);
  void drain(uint32_t fiber);
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

}  // namespace starling::sim
