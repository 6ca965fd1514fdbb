// Short programs of pulls, bound by the host: as device/bound.h, where a message is not packets but the
// address of a slice, and whoever receives it copies or reduces out of there (wire/connector.h, slots).
//
//   turn, fault, ends: each a thread's ── vote ── one is missing ──▶ the interpreter, from the beginning
//     │ all there
//   for each tile, for each step:
//     messages and credit awaited, each by its connection's thread ── too long ──▶ ends back ─▶ interpreter
//     slices moved by all threads ── barrier ── slots given back, addresses told, each by its thread
//
// A step is an instruction; but the first ones, which wait for nothing, are one step (heads), and the last
// ones, which only receive, are another (tails): what is awaited, and told, in a step is so at the same time.
//
//   all readers awaited ── too long ──▶ the interpreter, behind the last tile
//   ends back ──▶ done
//
// Messages that are put (device/places.h): whoever receives one lends its place when the tile begins, and
// waits for it in its turn, where nothing is left to move; whoever sends one awaits the place as a message.
//
// An end is one thread's from the look to the end, so between its steps no barrier is needed. It is a copy
// in the block's fast memory: nobody else looks at the part's ends meanwhile.
#pragma once
#include "base/assert.h"
#include "device/bound.h"
#include "device/combine.h"
#include "device/connector.h"
#include "device/ends.h"
#include "device/execution.h"
#include "device/machine.h"
#include "device/opened.h"
#include "device/operands.h"
#include "device/places.h"
#include "device/slices.h"
#include "device/wait.h"
#include "wire/lane.h"
#include "wire/operation.h"

namespace starling::device {

// kOnce: BoundProgram::once, whose code is shorter by all that it has not.
template <class M, bool kOnce>
class BoundPull {
 public:
  static_assert(kBoundEnds <= kNearEnds);

  // `ends` and `operands`: in the block's fast memory.
  STARLING_HOST_DEVICE BoundPull(M& machine, const BoundProgram& program, const Operation& operation,
                                 const Lane& lane, const Budget& budget, NearEnds& ends, Combine& operands)
      : m_(machine),
        p_(program),
        op_(operation),
        lane_(lane),
        budget_(budget),
        ends_(ends),
        c_(operands),
        block_(m_.block_index()) {}

  // As BoundRun::look(). Nothing is waited for here: the first messages may be addresses that we tell.
  template <class Ours>
  STARLING_HOST_DEVICE bool look(Ours&&) {
    const uint32_t thread = m_.thread_index(), threads = m_.thread_count();
    bool ready = true;
    // Relaxed: as Interpreter::is_broken().
    const uint64_t fault = thread + 1 == threads ? m_.load_relaxed(lane_.fault) : 0;
    for (uint32_t k = thread; k < p_.receive_count; k = next_end(m_, k)) {
      ends_.receives[k] = lane_.receives[receive_place(k)];
      ready &= ends_.receives[k].connected != 0;
    }
    for (uint32_t k = last(thread); k < p_.send_count; k = next_end(m_, k)) {
      ends_.sends[k] = lane_.sends[send_place(k)];
      ends_.placed[k] = ends_.sends[k].put;
      ready &= ends_.sends[k].connected != 0;
    }
    if (leads(m_)) describe_reduction();
    return ready && fault == 0;
  }

  // On all threads, after that vote: how many steps are done, the same on all; and whether all peers have
  // read what we told them of, so that nothing is left. A barrier must follow.
  STARLING_HOST_DEVICE uint32_t run(bool& ended) {
    const uint32_t done = advance();
    ended = done == p_.steps() && wait_for_readers();
    return_ends();
    return done;
  }

  STARLING_HOST_DEVICE void ring() {}  // who tells or gives back has rung already

 private:
  // What a program that is run once has none of.
  STARLING_HOST_DEVICE static bool is_put(const BoundInstruction& i) { return !kOnce && device::is_put(i); }
  STARLING_HOST_DEVICE static bool lands(const BoundInstruction& i) { return !kOnce && device::lands(i); }
  STARLING_HOST_DEVICE static bool lands_first(const BoundInstruction& i) {
    return !kOnce && device::lands_first(i);
  }
  STARLING_HOST_DEVICE static bool reduces_into(const BoundInstruction& i) {
    return !kOnce && device::reduces_into(i);
  }
  STARLING_HOST_DEVICE static bool keeps(const BoundInstruction& i) {
    return kOnce ? i.destination != nullptr : device::keeps(i);
  }
  STARLING_HOST_DEVICE static bool lies_in_tile(const BoundInstruction& i, uint8_t which) {
    return !kOnce && (i.received_before & which) != 0;
  }

  // The block's part of an instruction's slices in a tile.
  struct Share {
    uint32_t offset;
    uint32_t bytes;
    uint32_t in_scratch;  // the offset in scratch of tiles
  };

  STARLING_HOST_DEVICE uint32_t advance() {
    const uint32_t tails = p_.count - p_.tails;
    for (uint32_t tile = 0; tile < (kOnce ? 1 : p_.tile_count); ++tile) {
      const uint32_t before = tile * p_.planned;
      if (!kOnce && p_.landings != 0) lend_places_at(tile);
      if (p_.heads != 0 && !tell_heads(tile)) return before;
      for (uint32_t n = p_.heads; n < tails; ++n)
        if (!execute(p_.instructions[n], tile)) return before + planned(n);
      if (p_.tails != 0 && !receive_tails(tile)) return before + planned(tails);
    }
    return p_.steps();
  }

  // Instructions of the plan before the n-th.
  STARLING_HOST_DEVICE uint32_t planned(uint32_t n) const {
    if (kOnce) return n;
    uint32_t count = 0;
    for (uint32_t k = 0; k < n; ++k) count += device::planned(p_.instructions[k]);
    return count;
  }

  // The tails' messages are put, all or none.
  STARLING_HOST_DEVICE bool tails_land() const {
    return !kOnce && p_.tails != 0 && is_put(p_.instructions[p_.count - 1]);
  }
  // Tiles ahead, where they can be: then nobody waits for them. Whoever goes on from here finds all of a
  // tile's lent, or none (Interpreter::has_to_lend()).
  STARLING_HOST_DEVICE void lend_places_at(uint32_t tile) {
    for (uint32_t t = tile == 0 ? 0 : tile + p_.lends_ahead; t <= tile + p_.lends_ahead; ++t)
      if (t < p_.tile_count) lend_places(t);
  }
  // In the order in which they come. Early: what lies there was written, and read, before this operation.
  // Scratch was so in an earlier tile, which a barrier has ended: the first word that lends any releases
  // that, for the thread's others too.
  STARLING_HOST_DEVICE void lend_places(uint32_t tile) {
    bool early = tile <= p_.lends_ahead;
    for (uint32_t k = m_.thread_index(); k < p_.receive_count; k = next_end(m_, k))
      early = lend_places_on(k, tile, early);
  }
  // On one connection, by its thread.
  STARLING_HOST_DEVICE bool lend_places_on(uint32_t k, uint32_t tile, bool early) {
    for (uint32_t n = 0; n < p_.count; ++n) {
      const BoundInstruction& i = p_.instructions[n];
      if (!(lands(i) || lands_first(i)) || i.receive_first != k) continue;
      const Share share = share_of(i, tile);
      const bool in_source = lands_in_source(i);
      const std::byte* place = in_source ? source_of(i, share) : destination_of(i, share);
      const bool of_tile =
          (i.received_before & (in_source ? kBoundSourceOfTile : kBoundDestinationOfTile)) != 0;
      lend(m_, ends_.receives[k], {uint64_t(place), op_.registrations[i.sent_before]}, share.bytes,
           early || !of_tile);
      early |= of_tile;
    }
    return early;
  }

  // The first instructions: addresses, of which each connection has one at most, and then one copy or none.
  STARLING_HOST_DEVICE bool tell_heads(uint32_t tile) {
    bool ready = true;
    for (uint32_t k = last(m_.thread_index()); k < p_.send_count; k = next_end(m_, k))
      if (head_of(k) < p_.heads) ready &= wait([&] { return can_send(m_, lane_, ends_.sends[k]); });
    if (m_.any(!ready)) return false;  // some connection has no slot
    for (uint32_t k = last(m_.thread_index()); k < p_.send_count; k = next_end(m_, k)) {
      const uint32_t n = head_of(k);
      if (n < p_.heads)
        tell_slice(p_.instructions[n], share_of(p_.instructions[n], tile), ends_.sends[k], true);
    }
    if (keeps_own_part() && !own_part_goes_along(tile)) keep_own_part(tile);
    budget_.raise(false);
    return true;
  }
  STARLING_HOST_DEVICE bool keeps_own_part() const {
    return p_.heads != 0 && p_.instructions[p_.heads - 1].destination != nullptr;
  }
  STARLING_HOST_DEVICE void keep_own_part(uint32_t tile) {
    const BoundInstruction& kept = p_.instructions[p_.heads - 1];
    move(kept, share_of(kept, tile));
    m_.barrier();  // who reads it next may be another thread
  }
  // A short part is moved while the peers' words are on their way. A long one would keep the links waiting:
  // where nothing but the tails comes behind, it is one more slice of theirs.
  STARLING_HOST_DEVICE bool own_part_goes_along(uint32_t tile) const {
    if (!keeps_own_part() || p_.tails == 0 || p_.heads + p_.tails != p_.count || tails_land()) return false;
    const BoundInstruction& kept = p_.instructions[p_.heads - 1];
    const Share own = share_of(kept, tile);
    if (own.bytes < kCopiedPacks * 16 * m_.thread_count()) return false;
    // In the program it comes before the tails: of plans that bring something to where it lies, or goes, it
    // stays so.
    for (uint32_t n = p_.heads; n < p_.count; ++n) {
      const Share share = share_of(p_.instructions[n], tile);
      const std::byte* to = destination_of(p_.instructions[n], share);
      if (overlap(to, share.bytes, source_of(kept, own), own.bytes)) return false;
      if (overlap(to, share.bytes, destination_of(kept, own), own.bytes)) return false;
    }
    return true;
  }
  STARLING_HOST_DEVICE static bool overlap(const std::byte* a, uint32_t a_bytes, const std::byte* b,
                                           uint32_t b_bytes) {
    return uint64_t(a) < uint64_t(b) + b_bytes && uint64_t(b) < uint64_t(a) + a_bytes;
  }
  // Which of the heads tells connection k anything.
  STARLING_HOST_DEVICE uint32_t head_of(uint32_t k) const {
    uint32_t n = 0;
    while (n < p_.heads && k - p_.instructions[n].send_first >= p_.instructions[n].send_count) ++n;
    return n;
  }

  // The last instructions: each receives one message, on a connection of its own, and copies what it names.
  STARLING_HOST_DEVICE bool receive_tails(uint32_t tile) {
    const uint32_t first = p_.count - p_.tails;
    bool there = true;
    for (uint32_t k = m_.thread_index(); k < p_.receive_count; k = next_end(m_, k))
      if (const uint32_t t = tail_of(k); t < p_.tails)
        there = there && (tails_land() ? wait([&] { return has_landed(m_, ends_.receives[k]); })
                                       : await(ends_.receives[k], c_.sources[t]));
    const bool own = own_part_goes_along(tile);
    if (m_.any(!there)) {  // a tail's message is missing
      if (own) keep_own_part(tile);  // who goes on begins with the tails
      return false;
    }
    if (tails_land()) {
      for (uint32_t k = m_.thread_index(); k < p_.receive_count; k = next_end(m_, k))
        ends_.receives[k].landed += tail_of(k) < p_.tails;
      budget_.raise(true);
      return true;
    }
    // Long, each block begins with another slice: so all links are in use all the time.
    const uint32_t count = p_.tails + uint32_t(own);
    copy_slices(m_, count, [&](uint32_t k) {
      const uint32_t t = own ? (k + block_) % count : k;
      const BoundInstruction& i = p_.instructions[t < p_.tails ? first + t : p_.heads - 1u];
      const Share share = share_of(i, tile);
      return Slice{destination_of(i, share), t < p_.tails ? c_.sources[t] : source_of(i, share), share.bytes};
    });
    m_.barrier();  // all threads have read all tails' slices
    for (uint32_t k = m_.thread_index(); k < p_.receive_count; k = next_end(m_, k))
      if (tail_of(k) < p_.tails) give_back(ends_.receives[k]);
    budget_.raise(true);
    return true;
  }
  // Which of the tails receives from connection k.
  STARLING_HOST_DEVICE uint32_t tail_of(uint32_t k) const {
    const uint32_t first = p_.count - p_.tails;
    uint32_t t = 0;
    while (t < p_.tails && p_.instructions[first + t].receive_first != k) ++t;
    return t;
  }

  STARLING_HOST_DEVICE bool execute(const BoundInstruction& i, uint32_t tile) {
    if (lands(i)) return await_landing(i);
    const Share share = share_of(i, tile);
    const bool described = i.source_count > 1 || is_put(i);
    if (described && m_.thread_index() == m_.thread_count() / 2) describe(i, share);
    if ((described || i.receive_count + i.send_count != 0) && m_.any(!are_there(i, share))) return false;
    if (i.destination != nullptr || is_put(i)) {
      move(i, share);
      m_.barrier();  // all threads have read the messages' slices and written theirs
    }
    for (uint32_t k = m_.thread_index(); k < p_.receive_count; k = next_end(m_, k))
      if (k - i.receive_first < i.receive_count) give_back(ends_.receives[k]);
    if (lands_first(i) && lands_here(i)) ++ends_.receives[i.receive_first].landed;
    for (uint32_t k = last(m_.thread_index()); k < p_.send_count; k = next_end(m_, k))
      if (k - i.send_first < i.send_count)
        is_put(i) ? was_put(m_, ends_.sends[k]) : tell_slice(i, share, ends_.sends[k], false);
    budget_.raise(i.receive_count != 0 || is_put(i));
    return true;
  }

  // What comes behind may read it: the acquire is before the vote.
  STARLING_HOST_DEVICE bool await_landing(const BoundInstruction& i) {
    if (m_.any(lands_here(i) && !awaits_landing(i))) return false;
    if (lands_here(i)) ++ends_.receives[i.receive_first].landed;
    budget_.raise(true);
    return true;
  }

  STARLING_HOST_DEVICE void give_back(ReceiveEnd& end) {
    SlotPool none{nullptr, 0, 0};  // the grants are of private slots
    was_heard(m_, lane_, end, none);
  }

  // What this thread's connections have for the instruction, and where it is. No effect before the vote.
  STARLING_HOST_DEVICE bool are_there(const BoundInstruction& i, const Share& share) {
    for (uint32_t k = m_.thread_index(); k < p_.receive_count; k = next_end(m_, k)) {
      const uint32_t number = k - i.receive_first;
      if (number >= i.receive_count) continue;
      if (!await(ends_.receives[k], c_.sources[number + uint32_t(number >= i.local_at)])) return false;
    }
    if (lands_first(i) && lands_here(i) && !awaits_landing(i)) return false;
    if (is_put(i)) return find_places(i, share);
    for (uint32_t k = last(m_.thread_index()); k < p_.send_count; k = next_end(m_, k))
      if (k - i.send_first < i.send_count && !wait([&] { return can_send(m_, lane_, ends_.sends[k]); }))
        return false;
    return true;
  }
  // Each by a thread that is none of those which say that a message was put: while their fence takes its time
  // the next one's place is looked up.
  STARLING_HOST_DEVICE bool find_places(const BoundInstruction& i, const Share& share) {
    const uint32_t threads = m_.thread_count(), thread = (m_.thread_index() + threads / 2) % threads;
    for (uint32_t k = last(thread); k < p_.send_count; k = next_end(m_, k)) {
      if (k - i.send_first >= i.send_count) continue;
      std::byte*& where = c_.destinations[uint32_t(keeps(i)) + k - i.send_first];
      uint64_t& number = ends_.placed[k];
      if (!wait([&] { return find_place(m_, ends_.sends[k], number, share.bytes, where); })) return false;
      ++number;
    }
    return true;
  }
  // Is it this thread's connection? Then the message is awaited.
  STARLING_HOST_DEVICE bool lands_here(const BoundInstruction& i) const {
    return m_.thread_index() == i.receive_first % m_.thread_count();
  }
  STARLING_HOST_DEVICE bool awaits_landing(const BoundInstruction& i) {
    return wait([&] { return has_landed(m_, ends_.receives[i.receive_first]); });
  }

  // The next message, and that what it names is open, as Interpreter::is_readable(): its slice.
  STARLING_HOST_DEVICE bool await(ReceiveEnd& end, const std::byte*& slice) {
    return wait([&] {
      Pack message;
      if (!hear(m_, end, message)) return false;
      slice = reinterpret_cast<const std::byte*>(message.low);
      if (end.opened == nullptr) return true;
      const uint64_t place = opened_place(m_, *end.opened, message.high);
      slice = address_at(place, message);
      return place != 0;
    });
  }

  STARLING_HOST_DEVICE Share share_of(const BoundInstruction& i, uint32_t tile) const {
    const uint32_t span = i.span - block_ * i.span_step, begin = tile * p_.tile_bytes;
    const uint32_t left = (span < p_.chunk_bytes ? span : p_.chunk_bytes) - begin;
    const uint32_t in_scratch = kOnce || p_.scratch_tiles == 0 ? 0 : tile % p_.scratch_tiles * p_.tile_bytes;
    return {begin, left < p_.tile_bytes ? left : p_.tile_bytes, in_scratch};
  }
  STARLING_HOST_DEVICE const std::byte* source_of(const BoundInstruction& i, const Share& share) const {
    return i.source + block_ * i.source_step +
           (lies_in_tile(i, kBoundSourceOfTile) ? share.in_scratch : share.offset);
  }
  STARLING_HOST_DEVICE std::byte* destination_of(const BoundInstruction& i, const Share& share) const {
    return i.destination + block_ * i.destination_step +
           (lies_in_tile(i, kBoundDestinationOfTile) ? share.in_scratch : share.offset);
  }

  // A copy needs no description: what it reads is here, or the one message.
  STARLING_HOST_DEVICE void move(const BoundInstruction& i, const Share& share) {
    if (i.source_count > 1 || is_put(i)) return combine_slice(m_, c_);
    const std::byte* from = i.source != nullptr ? source_of(i, share) : c_.sources[0];
    copy_slice(m_, destination_of(i, share), from, share.bytes);
  }

  // By one thread, beside the connections': all that is not a message.
  STARLING_HOST_DEVICE void describe(const BoundInstruction& i, const Share& share) {
    const bool kept = keeps(i);
    if (i.source != nullptr) c_.sources[i.local_at] = source_of(i, share);
    if (reduces_into(i)) c_.sources[0] = destination_of(i, share);
    if (!kOnce &&
        p_.apart == &i - p_.instructions + 1) {  // in the order of the plan: what landed, then the own part
      c_.sources[0] = source_of(i, share);
      c_.sources[1] = p_.added + block_ * p_.added_step + share.offset;
    }
    if (kept) c_.destinations[0] = destination_of(i, share);
    c_.destination_count = kept + (is_put(i) ? i.send_count : 0);
    c_.source_count = i.source_count;
    c_.divisor = i.source_count > 1 && (i.received_before & kBoundFinal) != 0 ? p_.divisor : 1;
    c_.bytes = c_.message_bytes = share.bytes;
  }

  // What lies there was written before this operation (`early`), or before a barrier: the release in tell()
  // covers it.
  STARLING_HOST_DEVICE void tell_slice(const BoundInstruction& i, const Share& share, SendEnd& end,
                                       bool early) {
    const std::byte* slice = i.destination != nullptr ? destination_of(i, share) : source_of(i, share);
    tell(m_, end, {uint64_t(slice), op_.registrations[i.sent_before]}, early);
  }

  // As Interpreter::wait_for_readers().
  STARLING_HOST_DEVICE bool wait_for_readers() {
    if (p_.send_count == 0) return true;
    bool read = true;
    for (uint32_t k = last(m_.thread_index()); k < p_.send_count; k = next_end(m_, k)) {
      SendEnd& end = ends_.sends[k];
      read &= wait([&] { return was_read(m_, lane_, end); });
    }
    return !m_.any(!read);
  }

  STARLING_HOST_DEVICE void return_ends() {
    for (uint32_t k = m_.thread_index(); k < p_.receive_count; k = next_end(m_, k))
      lane_.receives[receive_place(k)] = ends_.receives[k];
    for (uint32_t k = last(m_.thread_index()); k < p_.send_count; k = next_end(m_, k))
      lane_.sends[send_place(k)] = ends_.sends[k];
  }

  template <class Ready>
  STARLING_HOST_DEVICE bool wait(Ready&& ready) {
    return in_time(m_, budget_, lane_.fault, NeverYields{}, ready);
  }

  STARLING_HOST_DEVICE void describe_reduction() {
    describe_bound_reduction(p_, op_, c_);
    c_.past_caches = 0;
    c_.owner = 0;
    c_.packet_sources = c_.packet_destinations = c_.refreshed = c_.packet_bytes = 0;
  }

  STARLING_HOST_DEVICE uint32_t last(uint32_t thread) const { return m_.thread_count() - 1 - thread; }
  STARLING_HOST_DEVICE uint32_t receive_place(uint32_t k) const {
    return p_.receive_peers[k] * lane_.channel_count + block_;
  }
  STARLING_HOST_DEVICE uint32_t send_place(uint32_t k) const {
    return p_.send_peers[k] * lane_.channel_count + block_;
  }

  M& m_;
  const BoundProgram& p_;
  const Operation& op_;
  const Lane& lane_;
  Budget budget_;
  NearEnds& ends_;
  Combine& c_;
  const uint32_t block_;
};

}  // namespace starling::device
