// Calls of the CPU that come one soon after the other, without a launch for each: the kernel that began the
// last one stays for a while, and runs what its host puts into a box in the host's memory. What it runs is a
// start kernel's operation of one block, as ever (device/start.h); only the argument comes another way.
//
//   host (device/call_host.h)                          kernel, one block
//   launches it, with a first operation ────────────▶ runs it
//   writes how the next one differs ─────────────────▶ all of the round is there: runs it
//                                                      none came for `linger`, it was there for `life`, an
//   `left` of this launch: was the round taken? ◀───── operation was stuck and is the daemon's, or it was
//   told no: launches another one with it                   to: says which round it has taken, and leaves
//
// So it takes no call after `life`, and leaves when it has ended or left the one that it has; and no call
// hangs on its being there: docs/design/0024-calls-without-launches.md.
#pragma once
#include <cstddef>
#include <cstring>

#include "device/start.h"

namespace starling::device {

// What a kernel has of the last call it keeps, so mostly a few words say what is other in the next one: they
// are all that is looked at over and over, by one warp, and all that their host writes. A word is 32 bits of
// what is said, and in the upper half the round and, of those few, which of StartArguments' words it is.
inline constexpr uint32_t kStartWords = sizeof(StartArguments) / sizeof(uint32_t);
static_assert(kStartWords % 2 == 0);
inline constexpr uint32_t kCallLookers = 32;
inline constexpr uint32_t kChangedWords = 2 * kCallLookers;  // the first says what the round is
inline constexpr uint32_t kCallIndexBits = 10;
static_assert(kStartWords < 1u << kCallIndexBits);

enum class CallKind : uint32_t {
  kNone,  // it has not come
  kLeave,
  kChanges,  // the others are what has changed
  kAll  // too much has: all of it is in CallBox::all
};

// In the host's memory.
struct alignas(128) CallBox {
  uint64_t changed[kChangedWords];  // by the host, all of them in each round with a call, the first pair last
  alignas(128) uint64_t all[kStartWords / 2];  // likewise, of such a round, before those; two words each
  alignas(128) uint64_t left;  // by the kernel that leaves: its launch, and the last round that it took
  alignas(128) uint64_t put;  // the host's own: the last round of which all words are there
};

// `index`: of a word of StartArguments, from 1 on; 0: none.
STARLING_HOST_DEVICE inline uint64_t call_word(uint32_t round, uint32_t index, uint32_t said) {
  return uint64_t(round << kCallIndexBits | index) << 32 | said;
}
// The round that a word is of, as such words know it.
STARLING_HOST_DEVICE inline bool is_of_round(uint64_t word, uint32_t round) {
  return uint32_t(word >> (32 + kCallIndexBits)) == (round << kCallIndexBits) >> kCallIndexBits;
}
STARLING_HOST_DEVICE inline uint32_t call_index(uint64_t word) {
  return uint32_t(word >> 32) & ((1u << kCallIndexBits) - 1);
}
STARLING_HOST_DEVICE inline uint64_t left_word(uint32_t launch, uint32_t round) {
  return uint64_t(launch) << 32 | round;
}

STARLING_HOST_DEVICE inline uint32_t start_word(const StartArguments& start, uint32_t k) {
  uint32_t word;
  memcpy(&word, reinterpret_cast<const std::byte*>(&start) + k * sizeof word, sizeof word);
  return word;
}
STARLING_HOST_DEVICE inline void set_start_word(std::byte* start, uint32_t k, uint32_t word) {
  memcpy(start + k * sizeof word, &word, sizeof word);
}

// How an operation that the CPU called comes to its kernel.
enum class CallWay : uint8_t { kStart, kStay, kPut };

// The kernel's argument.
struct CallArguments {
  StartArguments first;
  CallBox* box;
  uint32_t launch;  // of the box, from 1 on
  uint32_t round;  // of the first operation
  uint32_t unit_bytes;  // that a block of any of its operations moves at once, at most
  uint64_t linger;  // ticks without a call ...
  uint64_t life;  // ... and since it began, after which it takes no other
};

// The block's fast memory.
struct alignas(16) CallState {
  StartState start;
  alignas(16) std::byte call[sizeof(StartArguments)];  // of the round under way
  CallKind kinds[2];  // of the next one, by the leader, in turns: who is late to read it is not overtaken
};

template <class M>
class CallKernel {
 public:
  STARLING_HOST_DEVICE CallKernel(M& machine, const CallArguments& arguments, CallState& state)
      : m_(machine), a_(arguments), s_(state) {}

  // On all threads.
  STARLING_HOST_DEVICE STARLING_INLINE void run() {
    const uint64_t begin = m_.now();
    for (uint32_t k = m_.thread_index(); k < kStartWords; k += m_.thread_count())
      set_start_word(s_.call, k, start_word(a_.first, k));
    m_.barrier();
    uint32_t round = a_.round;
    for (bool stays = true; stays;) {
      stays = !run_start<StartWay::kPackets>(m_, *reinterpret_cast<const StartArguments*>(s_.call), s_.start);
      // All are through with the last call, and with what they share: the leader's warp may have told the
      // host while others still looked into its argument.
      m_.barrier();
      stays = stays && bring(round + 1, begin);
      round += stays;
    }
    // Release: pairs with the acquire in CallHost::look_for_end(). Nothing of a box is looked at after it.
    if (leads(m_)) m_.store_release(&a_.box->left, left_word(a_.launch, round));
  }

 private:
  // The round's call is near. False: the kernel is to leave.
  STARLING_HOST_DEVICE bool bring(uint32_t round, uint64_t begin) {
    const uint64_t since = m_.now();
    for (uint32_t attempt = 0;; ++attempt) {
      CallKind said = CallKind::kNone;
      const bool missing = m_.thread_index() < kCallLookers && !bring_changes(round, said);
      if (leads(m_)) {
        // A round that has begun to come is waited for: its host is at it.
        if (said == CallKind::kNone && (m_.expired(since, a_.linger) || m_.expired(begin, a_.life)))
          said = CallKind::kLeave;
        s_.kinds[attempt % 2] = said;
      }
      const bool all = !m_.any(missing);
      const CallKind kind = s_.kinds[attempt % 2];
      if (kind == CallKind::kLeave) return false;
      if (all && kind == CallKind::kAll) bring_all();
      if (all) return true;
      // The others wait for it at the next vote.
      if (leads(m_) && said == CallKind::kNone) m_.pause(attempt);
    }
  }

  // A look at this thread's words. `said`: by the leader's first.
  STARLING_HOST_DEVICE bool bring_changes(uint32_t round, CallKind& said) {
    const uint32_t threads = m_.thread_count() < kCallLookers ? m_.thread_count() : kCallLookers;
    bool there = true;
    for (uint32_t pair = m_.thread_index(); pair < kCallLookers; pair += threads) {
      uint64_t words[2];
      // Acquire: pairs with the release in CallHost::write(): what the caller knew, its buffers' bytes among
      // it, is there behind the vote. Of one pair, the last, it would do; but a warp's loads are one trip to
      // the host's memory if they are alike, and two if not.
      m_.acquire_words(&a_.box->changed[2 * pair], words[0], words[1]);
      const bool none = pair == 0 && CallKind(uint32_t(words[0])) == CallKind::kNone;
      if (none || !is_of_round(words[0], round) || !is_of_round(words[1], round)) {
        there = false;
        continue;
      }
      if (pair == 0) said = CallKind(uint32_t(words[0]));
      for (const uint64_t word : words)
        if (call_index(word) != 0) set_start_word(s_.call, call_index(word) - 1, uint32_t(word));
    }
    return there;
  }

  // Relaxed: they were written before the first pair, which the leader has acquired.
  STARLING_HOST_DEVICE void bring_all() {
    for (uint32_t k = m_.thread_index(); k < kStartWords / 2; k += m_.thread_count()) {
      const uint64_t words = m_.load_relaxed(&a_.box->all[k]);
      set_start_word(s_.call, 2 * k, uint32_t(words));
      set_start_word(s_.call, 2 * k + 1, uint32_t(words >> 32));
    }
    m_.barrier();
  }

  M& m_;
  const CallArguments& a_;
  CallState& s_;
};

// The whole kernel, on every thread of its one block.
template <class M>
STARLING_HOST_DEVICE STARLING_INLINE void run_calls(M machine, const CallArguments& arguments,
                                                    CallState& state) {
  CallKernel<M>(machine, arguments, state).run();
}

}  // namespace starling::device
