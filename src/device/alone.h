// Start kernels that do without a daemon: all that is under way is of one stream, so the one that has begun
// may keep its place on the GPU and wait (docs/design/0007-start-as-a-kernel.md, "Alone").
//
//   kNobody ── it holds its stream since birth ─────────────────▶ kStays: who is stuck stays
//     ▲  └──── one lane's, which hold nothing ──▶ kMayStay        ▲   │
//     │            who is stuck leaves after      │  └ a stream   ┘   │ no stream stands
//     │            a while, and says so           │    stands for     │ for any of them
//     │                                           │    one of them    │ any more
//     │                                           └───────────────────┼──▶ kMayStay
//     └──── others come, a daemon is there, or nothing is under way ──┘
//
// A period begins where nothing is under way, or nothing but what holds the very stream, before it.
// To keep a place for an operation that nobody waits for would make a device synchronization wait for it. So
// what holds nothing stays only while a stream stands that waits for it, or for one that comes behind it in
// its lane: such a synchronization waits for that stream anyway. Another lane's operation ends it, and
// nothing but operations may come behind them in their stream (StreamCall::lane).
#pragma once
#include <cstdint>

#include "device/machine.h"
#include "wire/handover.h"

namespace starling::device {

// Operations under way that hold one stream since their birth, alone or not: one begins when the one before
// it has ended. So behind them one that comes now is alone, as if they had ended: what those leave to a
// daemon is what called it, and a daemon that comes ends all of it. Without that, a program that is always
// ahead of its GPU would be alone never again, once a single operation was not. By the host, under its lock.
class StreamRow {
 public:
  // Is all that is under way, `count` operations, before it in its stream?
  bool takes(const void* stream, bool held, uint32_t count) const {
    return held && count == count_ && stream == stream_;
  }
  // Are all that is under way, `count` operations, of it?
  bool is_all(uint32_t count) const { return count != 0 && count == count_; }
  // One enters; held: its stream since its birth, and it begins as a kernel. True: it is of the row.
  bool enter(const void* stream, bool held) {
    if (count_ == 0) stream_ = stream;
    if (!held || stream != stream_) return false;
    ++count_;
    return true;
  }
  void completed() { --count_; }

 private:
  const void* stream_ = nullptr;
  uint32_t count_ = 0;
};

// The host's side, under its lock.
template <class M>
class Alone {
 public:
  Alone(M& machine, AloneWords* words) : m_(machine), words_(words) {}

  bool any() const { return state_ != State::kNobody; }
  bool stay() const { return state_ == State::kStays; }
  // All of them hold their stream since birth.
  bool are_held() const { return stay() && lane_ == nullptr; }
  // StartArguments::patience of those that enter now.
  uint64_t patience() const { return 2 * period_; }

  // May an operation enter with those that are there? `lane`: null: it may not be waited for later.
  bool takes(const void* stream, bool held, const void* lane) const {
    if (!any() || stream_ != stream) return false;
    if (lane_ == nullptr) return held;
    return lane_ == lane && (stay() || !held);
  }

  // An operation enters, and nothing else is under way but operations before it that hold its stream, as it
  // does (StreamRow): none of those knows of this period.
  void begin(const void* stream, bool held, const void* lane) {
    stream_ = stream;
    lane_ = held ? nullptr : lane;
    ++period_;
    say(held ? State::kStays : State::kMayStay);
  }

  // A stream is going to stand for an operation that has entered with `patience`. False: a daemon has to be
  // there first.
  bool grant(uint64_t patience) {
    if (!any() || patience != this->patience()) return false;
    if (stay()) return true;
    say(State::kStays);
    // Store, fence, look: as blocks do in keeps_place(). One of the two sees the other.
    m_.fence();
    if (m_.load_relaxed(&words_->leaving) != patience) return true;
    end();
    return false;
  }

  // No stream stands for any of them now. Who holds its stream stands for itself: there what is left under
  // way was before this period, and the next one that enters is of it.
  void revoke() {
    if (stay() && lane_ != nullptr) say(State::kMayStay);
  }

  // Something else comes: start kernels that wait leave their operations to the daemon, which is there.
  void end() {
    if (!any()) return;
    ++period_;
    say(State::kMayStay);  // in a period of nobody's
    state_ = State::kNobody;
  }

  // Nobody is left who would have to be told.
  void forget() { state_ = State::kNobody; }

 private:
  enum class State : uint8_t { kNobody, kMayStay, kStays };

  void say(State state) {
    state_ = state;
    // Release: nothing hangs on it; pairs with the look in keeps_place().
    m_.store_release(&words_->stay, patience() + (state == State::kStays));
  }

  M& m_;
  AloneWords* words_;
  State state_ = State::kNobody;
  const void* stream_ = nullptr;
  const void* lane_ = nullptr;  // null: are_held()
  uint64_t period_ = 0;  // never used twice
};

// How often a stuck block looks again for what it waits for, before it leaves its place. PyTorch asks for a
// future some microseconds after it has launched the operation.
inline constexpr uint32_t kUngrantedRounds = 4;

// The block's side, by its leader: does it keep its place? `round`: of those that it was stuck in.
template <class M>
STARLING_HOST_DEVICE bool keeps_place(M& m, AloneWords* words, uint64_t patience, uint32_t round) {
  // Acquire: pairs with Alone::say(); nothing hangs on it.
  uint64_t stay = m.load_acquire(&words->stay);
  if (stay == patience) {
    if (round < kUngrantedRounds) return true;
    // Who leaves says so, and looks once more: a stream that stands from now on would stand without a daemon.
    // Relaxed: the fence orders them. All blocks of a period store the same; those of the last have ended,
    // and their host knows that since before it began this one, unless it holds its stream: then nobody
    // leaves in it as long as it lasts, and the host does not ask.
    m.store_relaxed(&words->leaving, patience);
    m.fence();
    stay = m.load_relaxed(&words->stay);
  }
  return stay == patience + 1;
}

}  // namespace starling::device
