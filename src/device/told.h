// Words that say by themselves whose they are: what messages of protocol pull name, and the places of
// messages that are put (wire/connector.h). Of an end only one thread of its block calls these.
//
// Order. Each word is stored whole, and released, with its flag: who acquires both flags has both words, and
// what was before them. So a message takes one trip, where a message and a counter behind it take two.
#pragma once
#include "device/connector.h"
#include "device/machine.h"
#include "wire/connector.h"
#include "wire/pack.h"

namespace starling::device {

inline constexpr uint32_t kFlagBit = 63;  // neither addresses nor numbers have it

// Of message k in a ring. Changes with every round; memory that is zero is of the round before the first.
STARLING_HOST_DEVICE constexpr uint64_t word_flag(uint64_t message, uint64_t ring) {
  return (message / ring + 1) % 2 << kFlagBit;
}

// As a counter, such a word is at its target, the flag, as soon as this is true (Awaited).
STARLING_HOST_DEVICE constexpr bool has_flag(uint64_t word, uint64_t flag) {
  return ((word ^ flag) >> kFlagBit) == 0;
}

// `early`: what the words name was written, or read, by nothing in this operation.
template <class M>
STARLING_HOST_DEVICE void store_flagged(M& m, uint64_t* words, const Pack& pack, uint64_t flag, bool early) {
  // Release: pairs with the acquire in load_flagged().
  if (early)
    m.release_words_early(words, pack.low | flag, pack.high | flag);
  else
    m.release_words(words, pack.low | flag, pack.high | flag);
}

// False: `pack` has what was seen.
template <class M>
STARLING_HOST_DEVICE bool load_flagged(M& m, const uint64_t* words, uint64_t flag, Pack& pack) {
  // Acquire: pairs with the release in store_flagged().
  m.acquire_words(words, pack.low, pack.high);
  if (!has_flag(pack.low, flag) || !has_flag(pack.high, flag)) return false;
  pack.low ^= flag;
  pack.high ^= flag;
  return true;
}

// Which of the two words, as they were seen, is to be waited for.
STARLING_HOST_DEVICE constexpr uint32_t missing_word(const Pack& seen, uint64_t flag) {
  return has_flag(seen.low, flag);
}

// ---- messages of protocol pull: {address, and where it is not one for all, whose, or by which name others
// know it}

// Uses up a grant.
template <class M>
STARLING_HOST_DEVICE void tell(M& m, SendEnd& end, const Pack& message, bool early) {
  store_flagged(m, end.inbox->told[end.told % kMaxCredits], message, word_flag(end.told, kMaxCredits), early);
  ++end.told;
  ++end.sent;
  m.notify(end.doorbell);
}

// The next one, if it is there. Of an end that is connected.
template <class M>
STARLING_HOST_DEVICE bool hear(M& m, const ReceiveEnd& end, Pack& message) {
  return load_flagged(m, end.inbox->told[end.heard % kMaxCredits], word_flag(end.heard, kMaxCredits),
                      message);
}

// What it named was read by all threads (a barrier came before).
template <class M>
STARLING_HOST_DEVICE void was_heard(M& m, const Lane& lane, ReceiveEnd& end, SlotPool& pool) {
  ++end.heard;
  consume(m, lane, end, pool);
}

}  // namespace starling::device
