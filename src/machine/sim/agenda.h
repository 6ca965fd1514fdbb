// Who runs when: a heap with one place for each participant, so that changing one's mind leaves nothing
// behind.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace starling::sim {

class Agenda {
 public:
  struct Event {
    uint64_t key;
    uint32_t who;
  };

  void reset(uint32_t participants) {
    heap_.clear();
    place_.assign(participants, kNone);
    waiting_.who = kNone;
  }
  void admit(uint32_t who) {
    if (place_.size() <= who) place_.resize(who + 1, kNone);
  }

  bool empty() const { return heap_.empty() && waiting_.who == kNone; }
  uint64_t first_key() const {
    const uint64_t key = heap_.empty() ? ~uint64_t(0) : heap_[0].key;
    return waiting_.who != kNone && waiting_.key < key ? waiting_.key : key;
  }
  bool has(uint32_t who) const { return place_[who] != kNone; }
  uint64_t key_of(uint32_t who) const {
    return place_[who] == kWaiting ? waiting_.key : heap_[place_[who]].key;
  }

  // Puts the participant at the key, wherever it was before.
  void set(uint32_t who, uint64_t key) {
    const uint32_t at = place_[who];
    if (at == kWaiting) {
      waiting_.key = key;
    } else if (at == kNone) {
      settle();
      waiting_ = {key, who};
      place_[who] = kWaiting;
    } else {
      const uint64_t before = heap_[at].key;
      if (key <= before)
        rise(at, {key, who});
      else
        sink(at, {key, who});
    }
  }

  // Takes the first one out.
  Event take_first() {
    const Event waiting = std::exchange(waiting_, Event{0, kNone});
    if (waiting.who != kNone && (heap_.empty() || waiting.key < heap_[0].key)) {
      place_[waiting.who] = kNone;
      return waiting;
    }
    const Event first = heap_[0];
    place_[first.who] = kNone;
    if (waiting.who != kNone) {
      sink(0, waiting);
    } else {
      const Event last = heap_.back();
      heap_.pop_back();
      if (!heap_.empty()) sink(0, last);
    }
    return first;
  }

 private:
  static constexpr uint32_t kNone = ~0u, kWaiting = ~0u - 1;

  void settle() {
    if (waiting_.who == kNone) return;
    heap_.push_back(waiting_);
    rise(uint32_t(heap_.size()) - 1, waiting_);
    waiting_.who = kNone;
  }
  void rise(uint32_t at, const Event event) {
    for (uint32_t up; at > 0 && heap_[up = (at - 1) / 2].key > event.key; at = up) put(at, heap_[up]);
    put(at, event);
  }
  void sink(uint32_t at, const Event event) {
    const uint32_t count = uint32_t(heap_.size());
    for (uint32_t down; (down = 2 * at + 1) < count; at = down) {
      down += down + 1 < count && heap_[down + 1].key < heap_[down].key;
      if (heap_[down].key >= event.key) break;
      put(at, heap_[down]);
    }
    put(at, event);
  }
  void put(uint32_t at, const Event& event) {
    heap_[at] = event;
    place_[event.who] = at;
  }

  // The one that came last stands beside the heap: most often the next step takes the first one, whose place
  // it gets. One way down instead of a way up and a way down.
  Event waiting_{0, kNone};
  std::vector<Event> heap_;
  std::vector<uint32_t> place_;
};

}  // namespace starling::sim
