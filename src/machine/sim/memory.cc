#include "machine/sim/memory.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

namespace starling::sim {
namespace {

constexpr size_t kRegionBytes = size_t(8) << 30;

}  // namespace

Memory::Memory() : region_(kRegionBytes), index_(kRegionBytes / 2) {
  location_of_ = reinterpret_cast<uint32_t*>(index_.allocate(64));
}

void Memory::reset(Scheduler& scheduler, const Options& options) {
  scheduler_ = &scheduler;
  index_.allocate(region_.used() / 2);
  index_.reset(true);
  index_.allocate(64);
  region_.reset(true);
  locations_.clear();
  units_.clear();
  published_.clear();
  snapshots_.clear();
  free_snapshots_.clear();
  for (auto& pending : pending_) pending.clear();
  checks_ = options.ordering_checks != 0;
  handing_over_ = false;
  late_chance_ = options.late_store_chance;
  late_ns_ = options.late_store_ns;
  shadow_ = nullptr;
}

void Memory::connect(void* shadow, Mark mark, Publish publish) {
  shadow_ = shadow;
  mark_ = mark;
  publish_ = publish;
}

void Memory::begin() {
  const uint32_t fibers = scheduler_->fiber_count();
  units_.resize(fibers);
  if (pending_.size() < fibers) pending_.resize(fibers);
  std::unordered_map<uint32_t, uint32_t> first;  // of a unit's fibers
  buffers_.resize(fibers);
  for (uint32_t f = 0; f < fibers; ++f) buffers_[f] = first.emplace(units_[f], f).first->second;
  width_ = checks_ ? (fibers + 7) & ~7u : 0;
  clocks_.assign(size_t(fibers) * width_, 0);
  touched_.assign(fibers, 1);
  published_.resize(width_);
  if (checks_)
    for (uint32_t f = 0; f < fibers; ++f) clock(f)[f] = 1;
}

Memory::Location& Memory::add_location(const uint64_t* word) {
  locations_.push_back({word, kNoFiber, kNoUnit, 0, 0, 0, 0, true, false, kNoFiber, 0, 0, {}});
  location_of_[region_.offset(word) / 8] = uint32_t(locations_.size());
  return locations_.back();
}

void Memory::add_watcher(Location& location, uint32_t fiber) {
  if (location.watcher_count < kWatchers) location.watchers[location.watcher_count] = fiber;
  if (location.watcher_count <= kWatchers) ++location.watcher_count;
  if (location.watcher_count <= kWatchers) return;
  const uint32_t rank = scheduler_->fiber(fiber).rank;
  for (const uint32_t watcher : location.watchers)
    if (scheduler_->fiber(watcher).rank != rank) location.watcher_count = kMixed;
}

void Memory::changed(Location& location) {
  if (location.watcher_count == 0) return;
  if (location.watcher_count > kWatchers) {
    const uint32_t rank = scheduler_->fiber(location.watchers[0]).rank;
    for (uint32_t f = 0; f < scheduler_->fiber_count(); ++f)
      if (location.watcher_count == kMixed || scheduler_->fiber(f).rank == rank) scheduler_->notice(f);
  } else {
    for (uint32_t k = 0; k < location.watcher_count; ++k) scheduler_->notice(location.watchers[k]);
  }
  location.watcher_count = 0;
}

void Memory::not_released(const Location& location) {
  scheduler_->fail("acquire of a value that was stored without release: " + describe(location.word));
}

void Memory::learn(const Location& location, uint32_t fiber) {
  join(clock(fiber), &published_[location.clock]);
  touch(fiber);
}

void Memory::meet(uint32_t fiber) {
  for (Pending& p : buffer(fiber)) p.met = true;
}

// Who did nothing since the last time has nothing to tell.
void Memory::merge(const uint32_t* fibers, uint32_t count) {
  uint32_t* all = nullptr;
  for (uint32_t k = 0; k < count; ++k) {
    if (!touched_[fibers[k]]) continue;
    if (all == nullptr)
      all = clock(fibers[k]);
    else
      join(all, clock(fibers[k]));
  }
  if (all == nullptr) return;
  for (uint32_t k = 0; k < count; ++k) {
    uint32_t* mine = clock(fibers[k]);
    const uint32_t own = mine[fibers[k]];
    if (mine != all) std::memcpy(mine, all, width_ * sizeof(uint32_t));
    mine[fibers[k]] = own;
  }
  for (uint32_t k = 0; k < count; ++k)
    if (std::exchange(touched_[fibers[k]], 0)) ++clock(fibers[k])[fibers[k]];
}

void Memory::own(Location& location, uint32_t fiber) {
  const uint32_t unit = units_[fiber];
  if (location.writer_unit == kAnyUnit || (location.writer_unit == unit && !handing_over_)) return;
  if (location.writer_unit != unit && location.writer_unit != kNoUnit && !handed_over(location, fiber))
    scheduler_->fail("a second writer of a counter that has one: " + describe(location.word));
  location.writer_unit = unit;
  location.last_fiber = fiber;
  location.last_stamp = checks_ ? clock(fiber)[fiber] : 0;
  if (handing_over_) touch(fiber);  // the next barrier tells the others of this store, relaxed or not
}

void Memory::take_over(Location& location, uint32_t fiber) {
  if (!checks_) return;
  if (location.reader != kNoFiber && clock(fiber)[location.reader] < location.read_stamp)
    scheduler_->fail("a second reader of a counter that has one: " + describe(location.word));
  location.reader = fiber;
  location.read_stamp = clock(fiber)[fiber];
  touch(fiber);  // the next barrier tells the others of this look
}

bool Memory::handed_over(const Location& location, uint32_t fiber) {
  return handing_over_ && (!checks_ || clock(fiber)[location.last_fiber] >= location.last_stamp);
}

uint64_t Memory::watchers_hash() const {
  uint64_t hash = 0;
  for (const Location& location : locations_)
    for (uint32_t k = 0; k < std::min<uint32_t>(location.watcher_count, kWatchers); ++k)
      hash += hash_combine(region_.offset(location.word), location.watchers[k]);
  return hash;
}

void Memory::publish(Location& location, const uint32_t* from, bool keep) {
  if (location.clock == 0) {
    location.clock = uint32_t(published_.size());
    published_.resize(published_.size() + width_);
    keep = false;
  }
  uint32_t* to = &published_[location.clock];
  if (keep)
    join(to, from);
  else
    std::memcpy(to, from, width_ * sizeof(uint32_t));
}

void Memory::make_visible(Location& location, uint64_t value, uint32_t fiber, bool release,
                          const uint32_t* from, uint32_t stamp) {
  auto* word = const_cast<uint64_t*>(location.word);
  const bool news = *word != value;
  *word = value;
  location.writer = fiber;
  location.released = release;
  if (release && checks_) {
    publish(location, from, false);
    location.stamp = stamp;
  }
  if (news) changed(location);
}

void Memory::store(uint64_t* word, uint64_t value, bool release) {
  const uint32_t fiber = scheduler_->current_id();
  Location& location = at(word);
  own(location, fiber);
  const auto& pending = buffer(fiber);
  bool late = scheduler_->random().chance(late_chance_);
  if (!pending.empty() && !late)
    late = std::any_of(pending.begin(), pending.end(),
                       [&](const Pending& p) { return p.word == word || (release && p.is_before(fiber)); });
  if (late) {
    postpone(word, value, release, fiber);
  } else {
    if (release && publish_ && shadow_) publish_(shadow_, fiber, mark_(shadow_, fiber));
    make_visible(location, value, fiber, release, checks_ ? clock(fiber) : nullptr,
                 checks_ ? clock(fiber)[fiber] : 0);
  }
  if (release && checks_) advance(fiber);
}

void Memory::postpone(uint64_t* word, uint64_t value, bool release, uint32_t fiber) {
  auto& pending = buffer(fiber);
  const uint64_t ready = scheduler_->now() + scheduler_->random().skewed(late_ns_);
  Pending entry{word, value, ready, 0, 0, 0, fiber, release, false};
  for (const Pending& before : pending)
    if (before.word == word || (release && before.is_before(fiber)))
      entry.ready = std::max(entry.ready, before.ready);
  if (release && checks_) {
    if (free_snapshots_.empty()) {
      free_snapshots_.push_back(uint32_t(snapshots_.size()));
      snapshots_.resize(snapshots_.size() + width_);
    }
    entry.clock = free_snapshots_.back();
    free_snapshots_.pop_back();
    std::memcpy(&snapshots_[entry.clock], clock(fiber), width_ * sizeof(uint32_t));
    entry.stamp = clock(fiber)[fiber];
  }
  if (release && shadow_) entry.mark = mark_(shadow_, fiber);
  pending.push_back(entry);
  scheduler_->commit_at(entry.ready, fiber);
}

void Memory::commit(std::vector<Pending>& pending, size_t index) {
  const Pending entry = pending[index];
  pending.erase(pending.begin() + std::ptrdiff_t(index));
  if (entry.release && shadow_) publish_(shadow_, entry.fiber, entry.mark);
  make_visible(at(entry.word), entry.value, entry.fiber, entry.release,
               entry.release && checks_ ? &snapshots_[entry.clock] : nullptr, entry.stamp);
  if (entry.release && checks_) free_snapshots_.push_back(entry.clock);
}

// Stores whose time has come, in program order: their times keep the order that must be kept.
void Memory::commit_due(void* memory, uint32_t fiber) {
  auto* self = static_cast<Memory*>(memory);
  auto& pending = self->buffer(fiber);
  for (size_t k = 0; k < pending.size();) {
    if (pending[k].ready <= self->scheduler_->now()) {
      self->commit(pending, k);
      continue;
    }
    self->scheduler_->commit_at(pending[k].ready, fiber);
    ++k;
  }
}

void Memory::drain(uint32_t fiber) {
  auto& pending = buffer(fiber);
  for (size_t k = 0; k < pending.size();)
    if (pending[k].is_before(fiber))
      commit(pending, k);
    else
      ++k;
}

// What the fiber has stored there itself comes before what it does there next, in any order of memory.
void Memory::drain_word(uint32_t fiber, const uint64_t* word) {
  auto& pending = buffer(fiber);
  for (size_t k = 0; k < pending.size();)
    if (pending[k].word == word && pending[k].is_before(fiber))
      commit(pending, k);
    else
      ++k;
}

uint64_t Memory::fetch_add(uint64_t* word, uint64_t value, bool ordered) {
  const uint32_t fiber = scheduler_->current_id();
  if (ordered)
    drain(fiber);
  else
    drain_word(fiber, word);
  if (ordered && shadow_) publish_(shadow_, fiber, mark_(shadow_, fiber));
  Location& location = at(word);
  watch(location, fiber);
  own(location, fiber);
  if (ordered) acquire(location, fiber);
  const uint64_t before = *word;
  // Acquire and release: what the last writer published goes on with ours.
  make_visible(location, before + value, fiber, ordered, checks_ ? clock(fiber) : nullptr,
               checks_ ? clock(fiber)[fiber] : 0);
  if (checks_) advance(fiber);
  return before;
}

uint64_t Memory::compare_exchange(uint64_t* word, uint64_t expected, uint64_t desired, bool ordered) {
  const uint32_t fiber = scheduler_->current_id();
  Location& location = at(word);
  watch(location, fiber);
  if (ordered)
    drain(fiber);
  else
    drain_word(fiber, word);
  if (*word != expected) {
    if (ordered) acquire(location, fiber);
    return *word;
  }
  fetch_add(word, desired - expected, ordered);
  return expected;
}

}  // namespace starling::sim
