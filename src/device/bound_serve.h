// Rings and chains of puts, bound: threads that serve those which move. A step of device/bound_pull.h ends
// with a fence and a word to the next rank, and begins with a vote on what has come; meanwhile its block
// moves nothing. Here a thread looks ahead, and another one fences and tells, so the others never wait for
// either:
//
//   looks:  landing, place, a free description ──▶ describes move k, publishes it ─▶ the next one ... closes
//   moves:  published? ──▶ their part of move k ──▶ counted ─▶ the next one ... until closed
//   tells:  all counted? ──▶ fence, word to the next rank; behind a tile's last move its places are lent anew
//
// No barrier is between: each group of threads moves at its own pace, kOperandSets moves apart at most. What
// is missing for longer than the budget closes the program there: who moves and who tells end what was
// published, and the interpreter goes on behind it.
//
// Order within the block, by the words of Service, at its scope. A description, and what was acquired for it
// (the landing, the place), is before `published`, which the movers acquire. What they moved is before their
// count, which is acquired before the word that tells of it is released, before places are lent anew, and
// before a description is written over.
#pragma once
#include "base/assert.h"
#include "device/bound.h"
#include "device/combine.h"
#include "device/execution.h"
#include "device/machine.h"
#include "device/places.h"
#include "device/slices.h"

namespace starling::device {

// In the block's fast memory.
struct Service {
  uint64_t published;  // moves, twice; odd: these are all
  uint64_t tiles;  // that were looked through to their end
  uint64_t moved[kOperandSets];  // groups that are through with moves k, k + kOperandSets ...
  uint64_t steps;  // of the plan, that are done in the end
};

// Two threads, of warps of their own on a GPU, serve the others.
template <class M>
STARLING_HOST_DEVICE bool is_served(const M& m, const BoundProgram& program) {
  if constexpr (M::kStagesPlans)
    return program.served != 0 && m.thread_count() >= M::kServedThreads;
  else
    return false;
}

template <class Pull>
class BoundServe {
 public:
  using M = typename Pull::Machine;

  // `moves` [kOperandSets]: those that reduce are described so far.
  STARLING_HOST_DEVICE BoundServe(Pull& pull, Combine* moves, Service& service)
      : b_(pull), m_(pull.m_), p_(pull.p_), moves_(moves), s_(service) {}

  // On all threads; the same result on all.
  STARLING_HOST_DEVICE uint32_t run() {
    if constexpr (M::kStagesPlans) {
      const uint32_t movers = m_.thread_count() - 2 * M::kGroup, thread = m_.thread_index();
      groups_ = movers / M::kGroup;
      if (thread == 0) begin();
      m_.barrier();
      if (thread < movers)
        move(m_.first(movers));
      else if (thread == movers)
        look();
      else if (thread == movers + M::kGroup)
        tell();
      m_.barrier();  // what one thread has counted others return
      return uint32_t(m_.load_near(&s_.steps));
    } else {
      return 0;
    }
  }

 private:
  STARLING_HOST_DEVICE void begin() {
    m_.store_near(&s_.published, 0);
    m_.store_near(&s_.tiles, 0);
    for (uint64_t& groups : s_.moved) m_.store_near(&groups, 0);
    lend(0, true);  // who tells lends the next ones
  }
  STARLING_HOST_DEVICE void lend(uint32_t tile, bool early) {
    if (p_.landings != 0) b_.lend_places_on(0, tile, early);
  }
  STARLING_HOST_DEVICE bool moves(uint32_t n) const { return !lands(p_.instructions[n]); }

  template <class Ready>
  STARLING_HOST_DEVICE void wait(Ready&& ready) {
    for (uint32_t attempt = 0; !ready(); ++attempt) m_.pause(attempt);
  }
  // Acquire: pairs with the release in move().
  STARLING_HOST_DEVICE bool has_moved(uint64_t k) {
    return m_.load_near(&s_.moved[k % kOperandSets]) >= (k / kOperandSets + 1) * groups_;
  }

  // ---- who looks ---------------------------------------------------------------------------------------
  STARLING_HOST_DEVICE void look() {
    uint64_t k = 0;
    uint32_t steps = p_.steps();
    bool there = true;
    for (uint32_t tile = 0; tile < p_.tile_count && there; ++tile) {
      for (uint32_t n = 0; n < p_.count && there; ++n) {
        there = prepare(n, tile, k);
        if (!there) steps = tile * p_.planned + b_.planned(n);
      }
      // Release: before it all that landed in the tile was counted.
      if (there) m_.store_near(&s_.tiles, tile + 1);
    }
    m_.store_near(&s_.steps, steps);
    // Release: pairs with the acquire in is_published().
    m_.store_near(&s_.published, 2 * k + 1);
  }
  // Instruction n, which is move k unless it only waits. No effect if something is missing.
  STARLING_HOST_DEVICE bool prepare(uint32_t n, uint32_t tile, uint64_t& k) {
    const BoundInstruction& i = p_.instructions[n];
    const bool landing = lands(i) || lands_first(i);
    if (landing && !wait_long(k, [&] { return has_landed(); })) return false;
    if (moves(n)) {
      const typename Pull::Share share = b_.share_of(i, tile);
      std::byte* place = nullptr;
      if (is_put(i)) {
        SendEnd& end = b_.ends_.sends[0];
        uint64_t& number = b_.ends_.placed[0];
        if (!wait_long(k, [&] { return find_place(m_, end, number, share.bytes, place, place_); }))
          return false;
        ++number;
      }
      // All before it, where it needs that; else the one whose description it gets.
      const uint64_t apart = (p_.behind >> n & 1) != 0 ? 1 : kOperandSets;
      for (uint64_t before = k < kOperandSets ? 0 : k - kOperandSets; before + apart <= k; ++before)
        wait([&] { return has_moved(before); });
      Combine& move = moves_[k % kOperandSets];
      b_.describe(i, share, move);
      if (is_put(i)) move.destinations[keeps(i)] = place;
      // Release: the description, and what was acquired for it; pairs with the acquire in move().
      m_.store_near(&s_.published, 2 * ++k);
    }
    if (landing) ++b_.ends_.receives[0].landed;
    b_.budget_.raise(true);
    return true;
  }
  // One look may show several messages.
  STARLING_HOST_DEVICE bool has_landed() {
    const ReceiveEnd& end = b_.ends_.receives[0];
    if (!looked_ || int64_t(put_ - end.landed) <= 0) put_ = count_put(m_, end);
    looked_ = true;
    return int64_t(put_ - end.landed) > 0;
  }
  // Who looks ahead waits for what nobody needs yet: a budget that ends while something is left to move is
  // followed by another one.
  template <class Ready>
  STARLING_HOST_DEVICE bool wait_long(uint64_t k, Ready&& ready) {
    if (ready()) return true;
    for (;;) {
      bool idle = true;
      for (uint64_t before = k < kOperandSets ? 0 : k - kOperandSets; before < k; ++before)
        idle = idle && has_moved(before);
      if (b_.wait(ready)) return true;
      if (idle) return false;
    }
  }

  // ---- who moves ---------------------------------------------------------------------------------------
  template <class Movers>
  STARLING_HOST_DEVICE void move(Movers movers) {
    for (uint64_t k = 0; is_published(k); ++k) {
      combine_slice(movers, moves_[k % kOperandSets]);
      // Release: what the group has moved, and that it reads the description no more; pairs with the acquire
      // in has_moved().
      m_.count_near(&s_.moved[k % kOperandSets]);
    }
  }
  STARLING_HOST_DEVICE bool is_published(uint64_t k) {
    return is_published(k, [] {});
  }
  // False: there is no move k. `meanwhile`: what is done while that is not known.
  template <class Meanwhile>
  STARLING_HOST_DEVICE bool is_published(uint64_t k, Meanwhile&& meanwhile) {
    uint64_t word = 0;
    wait([&] {
      meanwhile();
      // Acquire: pairs with the releases in look() and prepare().
      word = m_.load_near(&s_.published);
      return word / 2 > k || word % 2 != 0;
    });
    return word / 2 > k;
  }

  // ---- who tells ---------------------------------------------------------------------------------------
  // How far the moves have come, and how many tiles' places are given out again.
  struct Progress {
    uint32_t tile = 0;
    uint32_t instruction = 0;
    uint32_t lent = 0;
    bool early = true;
  };
  STARLING_HOST_DEVICE void tell() {
    Progress progress;
    for (uint32_t n = 0; n < p_.count; ++n) progress.early &= !adds_up(p_.instructions[n]);
    for (uint32_t t = 1; t <= p_.lends_ahead && t < p_.tile_count; ++t) lend(t, true);
    skip(progress);
    uint64_t k = 0;
    while (is_published(k, [&] { lend_anew(progress); })) {
      wait([&] { return has_moved(k); });
      uint32_t puts = 0;
      do {  // one fence for all that is done by now
        puts += is_put(p_.instructions[progress.instruction]);
        pass(progress);
        ++k;
      } while (m_.load_near(&s_.published) / 2 > k && has_moved(k));
      // It releases all that the groups have moved of these messages.
      if (puts != 0) was_put(m_, b_.ends_.sends[0], puts);
      lend_anew(progress);
    }
    lend_anew(progress);
  }
  // Past a move, and past what only waits: of that `tiles` says how far it has come.
  STARLING_HOST_DEVICE void pass(Progress& progress) const {
    ++progress.instruction;
    skip(progress);
  }
  STARLING_HOST_DEVICE void skip(Progress& progress) const {
    for (; progress.tile < p_.tile_count; ++progress.instruction) {
      if (progress.instruction == p_.count) {
        ++progress.tile;
        progress.instruction = 0;
      }
      if (moves(progress.instruction)) return;
    }
  }
  // The places of a tile that is through serve the next one that has none. Early: the groups have loaded what
  // lies there, as what they stored tells, and, if nothing is added up there, only peers write there.
  STARLING_HOST_DEVICE void lend_anew(Progress& progress) {
    // Acquire: pairs with the release in look(); no more is lent than there are words for.
    const uint64_t through = p_.landings != 0 ? m_.load_near(&s_.tiles) : 0;
    for (; progress.lent < progress.tile && progress.lent < through; ++progress.lent) {
      const uint32_t next = progress.lent + 1 + p_.lends_ahead;
      if (next < p_.tile_count) lend(next, progress.early);
    }
  }

  Pull& b_;
  M& m_;
  const BoundProgram& p_;
  Combine* const moves_;
  Service& s_;
  uint32_t groups_ = 0;  // of threads that move
  // Of who looks:
  bool looked_ = false;
  uint64_t put_ = 0;  // messages that have landed, as it saw last
  LastPlace place_;
};

}  // namespace starling::device
