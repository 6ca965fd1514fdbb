// The host's side of calls without launches (device/call.h): whether a kernel is there that takes the next
// one, and what was put where one had just left. Under the host's lock, where nothing else is said.
//
//   enter ── a kernel is there ──▶ kPut ──── put: the box ──────▶ taken, or ── it had left ──▶ launched again
//        ├── calls come in a row ─▶ kStay ── put: a kernel that stays for more
//        └── else, or more blocks ▶ kStart ─ a start kernel as ever
#pragma once
#include <memory>

#include "device/stream_call.h"

namespace starling::device {

// Calls that may be under way beside one another.
inline constexpr uint32_t kCallBoxes = 4;

template <class M, StreamDevice D>
class CallHost {
 public:
  // `boxes`: facts.call_boxes of them, zero, in the host's memory.
  CallHost(M& machine, D& device, const StreamFacts& facts)
      : m_(machine), d_(device), facts_(facts), slots_(std::make_unique<Slot[]>(facts.call_boxes)) {}

  // An operation that begins as a kernel is going to be put into its stream: says how, if that is a box's.
  void enter(const StreamCall& call, StreamEntry& entry) {
    if (call.box == 0) return;
    entry.box = call.box;
    entry.call = enter(call.box - 1, call.stream, call.unit_bytes);
  }

  // Without the lock, by who has entered, once.
  void put(const StreamEntry& entry, StartArguments& start) {
    const uint32_t box = entry.box - 1;
    Slot& slot = slots_[box];
    if (entry.call == CallWay::kPut) write(box, start);
    slot.last = start;
    if (entry.call == CallWay::kStay) d_.launch_call(slot.stream, arguments_of(box));
    note_put(box);
  }

  // In the place of put(), under the same hold of the lock as enter(): the operation has failed at once.
  void abandon(const StreamEntry& entry) {
    if (entry.call == CallWay::kStart) return;
    Slot& slot = slots_[entry.box - 1];
    if (entry.call == CallWay::kPut) {
      --slot.round;  // that the kernel waits for
      return;
    }
    slot.there = false;
    note_put(entry.box - 1);
  }

  // Its operation's completion was read.
  void completed(const StreamEntry& entry) {
    if (entry.box == 0) return;
    slots_[entry.box - 1].busy = false;
    ended_at_ = d_.now();
  }

  // A kernel may have left just before a call was put into its box: then there is another one for it.
  void look() {
    for (uint32_t box = 0; box < facts_.call_boxes; ++box) {
      Slot& slot = slots_[box];
      // Acquire: pairs with the release in put().
      if (!slot.there || !slot.busy || m_.load_acquire(&facts_.calls[box].put) != slot.round) continue;
      look_for_end(box);
      if (slot.there || slot.taken == slot.round) continue;
      ++slot.launch;
      slot.there = true;
      d_.launch_call_later(slot.stream, arguments_of(box));
    }
  }

  // An operation under way may be one that has to be launched again.
  bool any_busy() const {
    for (uint32_t box = 0; box < facts_.call_boxes; ++box)
      if (slots_[box].busy && slots_[box].there) return true;
    return false;
  }

  // Those that are there leave at once.
  void end() {
    for (uint32_t box = 0; box < facts_.call_boxes; ++box)
      if (slots_[box].there) dismiss(box);
  }

 private:
  struct Slot {
    Stream stream = nullptr;
    uint32_t launch = 0;
    uint32_t round = 0;  // the last one
    uint32_t unit_bytes = 0;  // of its kernel
    uint32_t taken = 0;  // once no kernel is there: the last one that was taken
    bool there = false;  // a kernel was launched, and is not known to have left
    bool busy = false;  // the last round's operation is not complete
    StartArguments last{};  // by who has entered, until it says so in CallBox::put
  };

  CallWay enter(uint32_t box, Stream stream, uint32_t unit_bytes) {
    Slot& slot = slots_[box];
    // Acquire: pairs with the release in put(). Who has entered before has failed meanwhile, and is still at
    // it.
    if (m_.load_acquire(&facts_.calls[box].put) != slot.round) return CallWay::kStart;
    slot.stream = stream;
    look_for_end(box);
    const bool in_a_row = d_.now() - ended_at_ < facts_.call_row_ns;
    if (slot.there && unit_bytes != 0 && unit_bytes <= slot.unit_bytes) {
      slot.busy = true;
      ++slot.round;
      return CallWay::kPut;
    }
    // What comes behind it in its stream would stand there until it leaves.
    if (slot.there) dismiss(box);
    if (unit_bytes == 0 || !in_a_row || facts_.call_linger_ns == 0) return CallWay::kStart;
    slot.unit_bytes = unit_bytes;
    ++slot.launch;
    ++slot.round;
    slot.there = slot.busy = true;
    say(box, CallKind::kNone);
    return CallWay::kStay;
  }

  void look_for_end(uint32_t box) {
    Slot& slot = slots_[box];
    if (!slot.there) return;
    // Acquire: pairs with the release of the kernel that leaves.
    const uint64_t left = m_.load_acquire(&facts_.calls[box].left);
    if (uint32_t(left >> 32) != slot.launch) return;
    slot.there = false;
    slot.taken = uint32_t(left);
  }

  void dismiss(uint32_t box) {
    Slot& slot = slots_[box];
    slot.there = false;
    ++slot.round;
    say(box, CallKind::kLeave);
    note_put(box);
  }

  // Nobody is at the round any more. Release: pairs with the acquires in look() and enter(): what it is is
  // known.
  void note_put(uint32_t box) { m_.store_release(&facts_.calls[box].put, slots_[box].round); }

  // Of a round without a call. Its first words are those of no other round either: what a kernel waits for is
  // never what was left there when rounds, which words know modulo 2^22, had the same number.
  void say(uint32_t box, CallKind kind) {
    const uint32_t round = slots_[box].round;
    // Release: nothing hangs on it.
    m_.release_words(&facts_.calls[box].changed[0], call_word(round, 0, uint32_t(kind)),
                     call_word(round, 0, 0));
  }

  CallArguments arguments_of(uint32_t box) const {
    const Slot& slot = slots_[box];
    return {slot.last,       &facts_.calls[box],    slot.launch,        slot.round,
            slot.unit_bytes, facts_.call_linger_ns, facts_.call_life_ns};
  }

  // What is other than in the last round; its kernel has that.
  void write(uint32_t box, const StartArguments& start) {
    const Slot& slot = slots_[box];
    CallBox& to = facts_.calls[box];
    CallKind kind = CallKind::kChanges;
    uint64_t words[kChangedWords];
    uint32_t count = 1;
    for (uint32_t k = 0; k < kStartWords; ++k) {
      const uint32_t word = start_word(start, k);
      if (word == start_word(slot.last, k)) continue;
      if (count == kChangedWords) {
        kind = CallKind::kAll;
        break;
      }
      words[count++] = call_word(slot.round, k + 1, word);
    }
    if (kind == CallKind::kAll)
      for (uint32_t k = 0; k < kStartWords / 2; ++k)
        m_.store_relaxed(&to.all[k], uint64_t(start_word(start, 2 * k + 1)) << 32 | start_word(start, 2 * k));
    while (count < kChangedWords) words[count++] = call_word(slot.round, 0, 0);
    words[0] = call_word(slot.round, 0, uint32_t(kind));
    // Release: pairs with the acquire in CallKernel::bring_changes(): all that the caller knew.
    for (uint32_t k = kChangedWords; k > 0; k -= 2)
      m_.release_words(&to.changed[k - 2], words[k - 2], words[k - 1]);
  }

  M& m_;
  D& d_;
  const StreamFacts& facts_;
  std::unique_ptr<Slot[]> slots_;
  uint64_t ended_at_ = 0;  // the last such operation
};

}  // namespace starling::device
