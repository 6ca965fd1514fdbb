// Who runs when: a heap with one place for each participant, so that changing one's mind leaves nothing
// behind.
#pragma once
#include <cstdint>
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
  }
  void admit(uint32_t who) {
    if (place_.size() <= who) place_.resize(who + 1, kNone);
  }

  bool empty() const { return heap_.empty(); }
  const Event& first() const { return heap_.front(); }
  bool has(uint32_t who) const { return place_[who] != kNone; }
  uint64_t key_of(uint32_t who) const { return heap_[place_[who]].key; }

  // Puts the participant at the key, wherever it was before.
  void set(uint32_t who, uint64_t key) {
    uint32_t at = place_[who];
    if (at == kNone) {
      at = uint32_t(heap_.size());
      heap_.push_back({key, who});
    }
    const uint64_t before = heap_[at].key;
    heap_[at] = {key, who};
    if (key <= before)
      rise(at);
    else
      sink(at);
  }

  void remove(uint32_t who) {
    const uint32_t at = place_[who];
    if (at == kNone) return;
    place_[who] = kNone;
    const Event last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    const uint64_t before = heap_[at].key;
    heap_[at] = last;
    if (last.key <= before)
      rise(at);
    else
      sink(at);
  }

 private:
  static constexpr uint32_t kNone = ~0u;

  void rise(uint32_t at) {
    const Event event = heap_[at];
    for (uint32_t up; at > 0 && heap_[up = (at - 1) / 2].key > event.key; at = up) put(at, heap_[up]);
    put(at, event);
  }
  void sink(uint32_t at) {
    const Event event = heap_[at];
    const uint32_t count = uint32_t(heap_.size());
    for (uint32_t down; (down = 2 * at + 1) < count; at = down) {
      if (down + 1 < count && heap_[down + 1].key < heap_[down].key) ++down;
      if (heap_[down].key >= event.key) break;
      put(at, heap_[down]);
    }
    put(at, event);
  }
  void put(uint32_t at, const Event& event) {
    heap_[at] = event;
    place_[event.who] = at;
  }

  std::vector<Event> heap_;
  std::vector<uint32_t> place_;
};

}  // namespace starling::sim
