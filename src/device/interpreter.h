// Runs one operation of a lane on one block, from where it stopped, until it is done or has to wait too long.
//
// For each tile, for each instruction:   wait (bounded) -> bind -> combine -> barrier -> signal
// An instruction has no effect before all it waits for is there (contract, point 7), so stopping in a wait
// leaves nothing half done: the dynamic context (tile, instruction) and the connectors' counters say it all.
// long: one class; what it is made of beside itself is in the files that it includes.
#pragma once
#include "base/assert.h"
#include "device/combine.h"
#include "device/connector.h"
#include "device/execution.h"
#include "device/machine.h"
#include "device/near_plan.h"
#include "device/opened.h"
#include "device/operands.h"
#include "device/packets.h"
#include "device/places.h"
#include "device/wait.h"
#include "wire/lane.h"
#include "wire/operation.h"

namespace starling::device {

// `Yields`, on machines that take turns: the leader asks it whether another task could have the block, where
// this one waits, and between two tiles of a pull.
template <class M, class Yields = NeverYields>
class Interpreter {
 public:
  STARLING_HOST_DEVICE Interpreter(M& machine, const Execution& execution, Budget& budget, Yields yields = {})
      : m_(machine), x_(execution), op_(*execution.operation), budget_(budget), yields_(yields) {
    const PlanView plan{op_.plan};
    block_ = own_block(plan, m_.block_index());
    instructions_ = plan.instructions();
    ends_ = {x_.lane,
             plan.connections() + block_.receive_first,
             plan.connections() + block_.send_first,
             block_.receive_count,
             block_.send_count,
             x_.ends};
    dependencies_ = plan.dependencies();
    protocol_ = op_.plan->protocol;
  }

  // Advances `c`, the same on all threads. kDone, kStuck, or kFault: it has not begun, and its lane is
  // broken. A barrier must follow.
  STARLING_HOST_DEVICE Outcome run(DynamicContext& c) {
    const bool begins = !c.started;
    if (begins && !pass_fence()) return Outcome::kStuck;
    const bool broken = begins && is_broken();
    if constexpr (M::kStagesPlans) {
      ends_.brought = ends_.fit();
      if (ends_.brought) bring_ends(m_, ends_);
    }
    if ((begins || ends_.brought) && m_.any(broken)) return Outcome::kFault;
    if (begins) {
      if (leads(m_) && protocol_ != Protocol::kPackets) prepare_receives();
      c.started = 1;
    }
    if constexpr (M::kStagesPlans) ahead_ = bind_ahead(c);
    const Outcome outcome = advance(c);
    if constexpr (M::kStagesPlans) {
      if (ends_.brought) {
        m_.barrier();  // the last counting is done
        return_ends(m_, ends_);
        ends_.brought = false;
      }
    }
    return outcome;
  }

  // What a stuck operation waits for: the first counter that is not where it has to be. An end that is not
  // connected yet has none: its introduction is what it waits for. An operation that waits at its fence has
  // no word of one writer to wait for, and its ends may still be other blocks': they are not even looked at,
  // because who looks keeps what was seen.
  STARLING_HOST_DEVICE Awaited awaits(const DynamicContext& c) {
    if (!c.started) return {};
    if (c.tile >= op_.tile_count) return awaits_readers();
    if (c.instruction >= block_.instruction_count) return {};
    if (c.instruction == 0 && has_to_lend(c.tile)) return awaits_lending(c.tile);
    const Instruction& i = instructions_[block_.instruction_first + c.instruction];
    // Who left the block between two tiles waits for nothing yet, and where the next tile has no bytes for
    // it, it never will: nobody sends, and nobody grants.
    if (moves_nothing(i, c.tile)) return {};
    for (uint32_t k = 0; k < i.dependency_count; ++k) {
      const Dependency& d = dependencies_[i.dependency_first + k];
      if (!dependency_done(d, c.tile))
        return {&x_.lane->blocks[d.block].progress, dependency_value(d, c.tile), ~0u};
    }
    if (protocol_ == Protocol::kPackets) return awaits_packets(i);
    if (lands(i)) {
      const ReceiveEnd& end = receive_end(i, 0);
      if (has_landed(m_, end)) return {};
      return {&end.inbox->put, end.landed + 1, end.peer};
    }
    for (uint32_t k = 0; receives(i.opcode) && k < i.receive_count; ++k) {
      ReceiveEnd& end = receive_end(i, k);
      if (!is_connected(m_, *x_.lane, end)) return awaits_introduction(end);
      if (protocol_ == Protocol::kPull) {
        if (const Awaited message = awaits_message(end); message.word != nullptr) return message;
      } else if (!can_receive(m_, *x_.lane, end)) {
        return {&end.inbox->posted, end.received + 1, end.peer};
      }
    }
    for (uint32_t k = 0; puts(i) && k < i.send_count; ++k)
      if (const Awaited place = awaits_place(i, send_end(i, k), c.tile); place.word != nullptr) return place;
    for (uint32_t k = 0; sends(i.opcode) && !is_put(i) && k < i.send_count; ++k) {
      SendEnd& end = send_end(i, k);
      if (can_send(m_, *x_.lane, end)) continue;
      if (!is_connected(m_, *x_.lane, end)) return awaits_introduction(end);
      return {&end.credit->granted, end.sent + 1, end.peer};
    }
    return {};
  }

 private:
  STARLING_HOST_DEVICE Outcome advance(DynamicContext& c) {
    for (; c.tile < op_.tile_count; ++c.tile) {
      if (protocol_ == Protocol::kPull && c.instruction == 0 && !lend_places(c.tile)) return Outcome::kStuck;
      for (; c.instruction < block_.instruction_count; ++c.instruction) {
        // A copy: near, or even in registers.
        const Instruction i = instructions_[block_.instruction_first + c.instruction];
        if (!execute(i, c)) return Outcome::kStuck;
        ++c.steps;
      }
      c.instruction = 0;
      if constexpr (M::kTakesTurns) {
        // By the leader for all. Slots keep both sides of a message busy; a pull's sender only names
        // addresses. A block without instructions has nothing to take turns with: no step of its own would
        // show that it went on, and the tile would not be saved.
        if (protocol_ == Protocol::kPull && block_.instruction_count > 0 && c.tile + 1 < op_.tile_count &&
            m_.any(leads(m_) && yields_())) {
          ++c.tile;
          return Outcome::kStuck;
        }
      }
    }
    if (protocol_ == Protocol::kPull && !wait_for_readers()) return Outcome::kStuck;
    if constexpr (M::kReadsOwned)
      if (names_sources() && !wait([&] { return first_untaken() == block_.send_count; }))
        return Outcome::kStuck;
    return Outcome::kDone;
  }

  template <class End>
  STARLING_HOST_DEVICE Awaited awaits_introduction(const End& end) const {
    return {&introduction_of(*x_.lane, end).made, 1, end.peer};
  }

  // What is to be lent waits for its connection.
  STARLING_HOST_DEVICE Awaited awaits_lending(uint64_t tile) {
    Awaited awaited;
    each_landing(tile, [&](const Instruction&, const Piece&, ReceiveEnd& end) {
      if (awaited.word == nullptr && !is_connected(m_, *x_.lane, end)) awaited = awaits_introduction(end);
    });
    return awaited;
  }

  STARLING_HOST_DEVICE Awaited awaits_message(const ReceiveEnd& end) {
    const uint64_t flag = word_flag(end.heard, kMaxCredits);
    Pack message;
    if (!hear(m_, end, message))
      return {&end.inbox->told[end.heard % kMaxCredits][missing_word(message, flag)], flag, end.peer};
    if (!is_readable(end, message)) return {&end.opened->told[message.high].made, 1, end.peer};
    return {};
  }

  STARLING_HOST_DEVICE Awaited awaits_place(const Instruction& i, SendEnd& end, uint64_t tile) {
    if (!is_connected(m_, *x_.lane, end)) return awaits_introduction(end);
    const uint64_t flag = word_flag(end.put, kMaxLent);
    Pack place;
    if (!next_place(m_, *x_.lane, end, place))
      return {&end.credit->lent[end.put % kMaxLent][missing_word(place, flag)], flag, end.peer};
    // A place of another length stays one.
    if (place_bytes(place) != piece_from(i, 0, tile).range.bytes)
      return {&end.credit->lent[end.put % kMaxLent][1], word_flag(end.put + kMaxLent, kMaxLent), end.peer};
    if (std::byte* where; !find_next_place(m_, *x_.lane, end, place_bytes(place), where))
      return {&end.opened->told[place_number(place)].made, 1, end.peer};
    return {};
  }
  // Of several units of a message one is looked at: the first. If that is there, it has to be tried.
  STARLING_HOST_DEVICE Awaited awaits_packets(const Instruction& i) {
    for (uint32_t k = 0; receives(i.opcode) && k < i.receive_count; ++k) {
      ReceiveEnd& end = receive_end(i, k);
      if (!is_connected(m_, *x_.lane, end)) return awaits_introduction(end);
      // A word with its flag above is a counter: it has come as soon as it is at the flag or past it.
      const uint64_t* word = packet_slot(*x_.lane, end.packets, end.packets_received);
      const uint64_t target = uint64_t(packet_flag(end.packets_received)) << 32;
      if ((m_.load_relaxed(word) ^ target) >> 32) return {word, target, end.peer};
    }
    for (uint32_t k = 0; sends(i.opcode) && k < i.send_count; ++k) {
      SendEnd& end = send_end(i, k);
      if (can_send_packets(m_, *x_.lane, end)) continue;
      if (!is_connected(m_, *x_.lane, end)) return awaits_introduction(end);
      return {&end.credit->packets_read, end.packets_sent + 1 - kPacketSlots, end.peer};
    }
    return {};
  }

  // By one thread, beside others that bring the ends. Only now: the lane's operations before have handed on
  // to this one, by a turn or at the fence, and if one of them was dropped, its messages are still in the
  // connectors. Relaxed: who dropped it saw the fault before it handed on, so we see it too.
  STARLING_HOST_DEVICE bool is_broken() {
    return m_.thread_index() + 1 == m_.thread_count() && m_.load_relaxed(x_.lane->fault) != 0;
  }

  // The lane's earlier operation may have used our connectors from other blocks: wait until all are out.
  STARLING_HOST_DEVICE bool pass_fence() {
    if (!op_.fence_previous || op_.sequence == 0) return true;
    const uint32_t previous = (op_.sequence - 1) % M::kLaneDepth;
    return wait([&] {
      // Acquire: pairs with the fetch_add in count_finished(): others are through with the connectors.
      // Cyclic, and perhaps past it: other blocks may have gone on to the operation that has its place now.
      return !leads(m_) || int64_t(m_.load_acquire(&x_.lane->finished[previous]) - op_.previous_target) >= 0;
    });
  }

  // Tells the connectors how many messages to expect, which lets them borrow from the pool.
  STARLING_HOST_DEVICE void prepare_receives() {
    for (uint32_t k = 0; k < block_.receive_count; ++k) {
      ReceiveEnd& end = receive_end(k);
      end.expected = end.received;
    }
    if (protocol_ == Protocol::kPull) return;  // slots hold addresses: the private ones do
    for (uint32_t n = 0; n < block_.instruction_count; ++n) {
      const Instruction& i = instructions_[block_.instruction_first + n];
      if (!receives(i.opcode)) continue;
      const uint64_t messages = message_count(op_, i);
      for (uint32_t k = 0; k < i.receive_count; ++k) receive_end(i, k).expected += messages;
    }
    for (uint32_t k = 0; k < block_.receive_count; ++k) {
      ReceiveEnd& end = receive_end(k);
      // An end that is not connected yet has nowhere to write grants; consume() deepens it later.
      if (is_connected(m_, *x_.lane, end)) deepen(m_, *x_.lane, end, *x_.pool);
    }
  }

  // Where the tile's messages that are put go: all are told before its first instruction, so none waits for
  // another. False: some connection is not made.
  STARLING_HOST_DEVICE bool lend_places(uint64_t tile) {
    if (!lands_any()) return true;
    m_.barrier();  // the ends count the tile before
    if (!has_to_lend(tile)) return true;
    const bool made = wait([&] {
      bool all = true;
      if (leads(m_))
        each_landing(tile, [&](const Instruction&, const Piece&, ReceiveEnd& end) {
          all = is_connected(m_, *x_.lane, end) && all;
        });
      return all;
    });
    if (made && leads(m_))
      each_landing(tile, [&](const Instruction& i, const Piece& piece, ReceiveEnd& end) {
        lend(m_, end, place_of(i, piece), piece.range.bytes, false);
      });
    return made;
  }
  STARLING_HOST_DEVICE bool lands_any() const {
    bool any = false;
    for (uint32_t n = 0; protocol_ == Protocol::kPull && n < block_.instruction_count; ++n)
      any |= lands(instructions_[block_.instruction_first + n]);
    return any;
  }
  // All are lent together, so who stopped at the first instruction and comes back finds all lent, or none.
  STARLING_HOST_DEVICE bool has_to_lend(uint64_t tile) {
    bool some = false, lent = false;
    each_landing(tile, [&](const Instruction&, const Piece&, const ReceiveEnd& end) {
      some = true;
      lent |= end.lent != end.landed;
    });
    return some && !lent;
  }
  template <class Act>
  STARLING_HOST_DEVICE void each_landing(uint64_t tile, Act&& act) {
    for (uint32_t n = 0; protocol_ == Protocol::kPull && n < block_.instruction_count; ++n) {
      const Instruction& i = instructions_[block_.instruction_first + n];
      if (!lands(i)) continue;
      if (const Piece piece = piece_from(i, 0, tile); piece.range.bytes != 0)
        act(i, piece, receive_end(i, 0));
    }
  }
  // Where `i` wants what it receives, and by which name others know it.
  STARLING_HOST_DEVICE Pack place_of(const Instruction& i, const Piece& piece) {
    const BufferKind kind = i.destination_buffer;
    const BufferBinding& buffer = op_.buffers[uint32_t(kind)];
    std::byte* slice = buffer.base + chunk_begin(op_, buffer, kind, i.destination_chunk + piece.k) +
                       tile_begin(op_, kind, piece.range.offset_bytes);
    if constexpr (M::kOpensPeers)
      return {uint64_t(slice + bounce_of(op_, kind)), op_.registrations[uint32_t(kind)]};
    else
      return {uint64_t(slice), 0};
  }

  // What is left of a short program of packets: all credit is looked for and all operands are bound at once,
  // an instruction by each 32 threads. False: something is not there, or it is no such program; then each
  // instruction waits for its own.
  STARLING_HOST_DEVICE bool bind_ahead(const DynamicContext& c) {
    constexpr uint32_t kTogether = 32;
    const Earlier all{&instructions_[block_.instruction_first + c.instruction],
                      block_.instruction_count - c.instruction};
    if (protocol_ != Protocol::kPackets || op_.tile_count != 1 || c.tile != 0) return false;
    if (m_.thread_count() == 1) return false;  // alone it would be no faster
    if (all.count == 0 || all.count > x_.operand_sets) return false;
    const uint32_t thread = m_.thread_index(), threads = m_.thread_count();
    for (uint32_t k = thread; k < block_.receive_count; k += threads)
      is_connected(m_, *x_.lane, receive_end(k));
    for (uint32_t k = thread; k < block_.send_count; k += threads)
      look_for_credit(m_, *x_.lane, send_end(k), all.sent(k));
    m_.barrier();
    const uint32_t groups = threads < kTogether ? 1 : threads / kTogether;
    const uint32_t members = threads < kTogether ? threads : kTogether;
    bool ready = true;
    for (uint32_t n = thread / members; n < all.count; n += groups) {
      const Instruction i = all.instructions[n];
      const Piece piece = piece_from(i, 0, 0);
      ready &= i.opcode != Opcode::nop && i.dependency_count == 0 && piece.range.bytes != 0;
      if (!ready) break;
      Binding<M> binding(m_, x_, ends_, i, piece, x_.operands[n], {all.instructions, n});
      ready &= binding.ready(thread % members, members);
      binding.bind(thread % members, members);
    }
    if (m_.any(!ready)) return false;
    first_ahead_ = c.instruction;
    return true;
  }

  // True when done on all threads; false when the budget ended first.
  STARLING_HOST_DEVICE bool execute(const Instruction& i, const DynamicContext& c) {
    Piece piece{0, {0, 1}};
    if (i.opcode != Opcode::nop && !ahead_) piece = piece_from(i, 0, c.tile);
    if (piece.range.bytes != 0) {
      if (!ahead_) {
        if (!wait_for_inputs(i, piece, c.tile)) return false;
        if (i.opcode != Opcode::nop) {
          bind_operands(m_, x_, ends_, i, piece);
          m_.barrier();  // all see them
        }
      }
      if (protocol_ == Protocol::kPackets) {
        const uint32_t set = ahead_ ? c.instruction - first_ahead_ : 0;
        if (i.opcode != Opcode::nop && !exchange_packets(i, x_.operands[set])) return false;
      } else if (stays(i)) {
        // Nothing moves here. What the slice holds was written before this operation, or by instructions that
        // ended with a barrier; or by a peer.
        if (leads(m_)) signal(i);
      } else if (i.opcode != Opcode::nop) {
        if (!move(i)) return false;
        if (i.chunks > 1) combine_others(i, piece.k + 1, c.tile);
        m_.barrier();  // all threads have read the messages and written theirs
        if (leads(m_)) signal(i);
      }
    }
    if ((i.flags & kHasDependents) && leads(m_)) {
      // Release: what this instruction wrote before the counter; pairs with the acquire in wait_for_inputs.
      m_.store_release(&x_.block->progress, progress_value(c.tile, block_.instruction_count, c.instruction));
      m_.notify(x_.lane->doorbell);
    }
    budget_.raise(receives(i.opcode) || (i.flags & kPut) != 0);
    return true;
  }

  // Is its message where it is wanted? A peer reads it where it lies, or has put it there.
  STARLING_HOST_DEVICE bool stays(const Instruction& i) const {
    if (protocol_ != Protocol::kPull || is_bounced<M>(op_, i)) return false;
    return is_put(i) ? lands(i) : i.opcode == Opcode::send;
  }

  // False: what a message names is not there any more, since its owner is gone or has given up. Our host will
  // hear of that and break the lane; until then the instruction has not been executed.
  STARLING_HOST_DEVICE bool move(const Instruction& i) {
    Combine& c = *x_.operands;
    if constexpr (M::kReadsOwned) {
      // First: addresses of two processes may be the same number.
      if (c.owner != 0) return m_.read_owned(c.owner, c.destinations[0], c.sources[0], c.bytes);
      if (names_sources() && is_named(i)) {
        if (!writes_destination(i.opcode)) return true;
        c.destination_count = 1;  // and no slot
      }
      if (is_in_place(c)) return true;
    }
    combine(m_, c);
    return true;
  }

  // The first chunk from number `k` on that has bytes in the tile; range.bytes is 0 if none has.
  STARLING_HOST_DEVICE Piece piece_from(const Instruction& i, uint32_t k, uint64_t tile) const {
    for (;; ++k) {
      const TileRange range = tile_range(op_, i, k, tile);
      if (range.bytes != 0 || k + 1 >= i.chunks) return {k, range};
    }
  }

  STARLING_HOST_DEVICE bool moves_nothing(const Instruction& i, uint64_t tile) const {
    return i.opcode != Opcode::nop && piece_from(i, 0, tile).range.bytes == 0;
  }

  STARLING_HOST_DEVICE void combine_others(const Instruction& i, uint32_t k, uint64_t tile) {
    while (k < i.chunks) {
      const Piece piece = piece_from(i, k, tile);
      if (piece.range.bytes == 0) return;
      m_.barrier();  // nobody reads the operands of the chunk before
      bind_operands(m_, x_, ends_, i, piece);
      m_.barrier();  // all see them
      combine(m_, *x_.operands);
      k = piece.k + 1;
    }
  }

  // Every thread looks for its own units. None has an effect before the vote has shown that all are there.
  STARLING_HOST_DEVICE bool exchange_packets(const Instruction& i, const Combine& c) {
    if (packet_units(c) <= m_.thread_count())
      return c.source_count <= kFewSources ? exchange_unit<kFewSources>(i, c)
                                           : exchange_unit<kMaxFan + 1>(i, c);
    if (receives(i.opcode)) {
      bool stuck = false;
      for (uint64_t u = m_.thread_index(); u < packet_units(c) && !stuck; u += m_.thread_count())
        stuck = !in_time([&] { return packet_unit_there(m_, c, u); });
      if (m_.any(stuck)) return false;
    }
    combine_packets(m_, c);
    m_.barrier();  // all threads have loaded the messages and stored theirs
    count_read(i);
    count_sent(i);
    return true;
  }

  // A unit a thread. What has come stays in its registers: nothing is loaded twice, and the slots are given
  // back before the result is stored. The operands that are no packets are on their way while it waits.
  template <uint32_t kMost>
  STARLING_HOST_DEVICE bool exchange_unit(const Instruction& i, const Combine& c) {
    Pack in[kMost] = {};
    const uint64_t unit = m_.thread_index();
    const bool mine = unit < packet_units(c);
    if (mine) load_plain_units<kMost>(m_, c, unit, in);
    if (receives(i.opcode)) {
      const bool stuck = mine && !in_time([&] { return take_packet_unit<kMost>(m_, c, unit, in); });
      if (m_.any(stuck)) return false;
      count_read(i);  // all threads have loaded the messages: the vote was a barrier
    }
    if (mine) combine_unit<kMost>(m_, c, unit, in);
    refresh(m_, c);
    m_.barrier();  // all threads have stored theirs, and need the operands no more
    count_sent(i);
    return true;
  }

  // Each connection by a thread of its own.
  STARLING_HOST_DEVICE void count_read(const Instruction& i) {
    if (!receives(i.opcode)) return;
    for (uint32_t k = m_.thread_index(); k < i.receive_count; k += m_.thread_count())
      packets_were_read(m_, receive_end(i, k));
  }
  STARLING_HOST_DEVICE void count_sent(const Instruction& i) {
    if (!sends(i.opcode)) return;
    for (uint32_t k = m_.thread_index(); k < i.send_count; k += m_.thread_count())
      packets_were_sent(m_, send_end(i, k));
  }

  STARLING_HOST_DEVICE uint64_t progress_value(uint64_t tile, uint32_t count, uint32_t instruction) const {
    return (op_.sequence << 40) + tile * count + instruction + 1;
  }

  STARLING_HOST_DEVICE uint64_t dependency_value(const Dependency& d, uint64_t tile) const {
    return progress_value(tile, PlanView{op_.plan}.blocks()[d.block].instruction_count, d.instruction);
  }

  STARLING_HOST_DEVICE bool dependency_done(const Dependency& d, uint64_t tile) {
    // Acquire: pairs with the release of `progress` in execute(); after it what that block wrote is readable.
    const uint64_t seen = m_.load_acquire(&x_.lane->blocks[d.block].progress);
    // Cyclic: sequences wrap after 2^24 operations.
    return int64_t(seen - dependency_value(d, tile)) >= 0;
  }

  // Each thread waits for dependencies and connections of its own.
  STARLING_HOST_DEVICE bool wait_for_inputs(const Instruction& i, const Piece& piece, uint64_t tile) {
    const uint32_t received = receives(i.opcode) ? i.receive_count : 0;
    const uint32_t before_sends = i.dependency_count + received;
    const uint32_t count = before_sends + (sends(i.opcode) ? i.send_count : 0);
    m_.barrier();  // the ends count the instruction before
    return wait([&] {
      for (uint32_t k = m_.thread_index(); k < count; k += m_.thread_count()) {
        const bool there = k < i.dependency_count
                               ? dependency_done(dependencies_[i.dependency_first + k], tile)
                           : k < before_sends ? is_there(i, receive_end(i, k - i.dependency_count))
                                              : may_send(i, piece, send_end(i, k - before_sends));
        if (!there) return false;
      }
      return true;
    });
  }

  // Of packets every thread looks for its own, later.
  STARLING_HOST_DEVICE bool is_there(const Instruction& i, ReceiveEnd& end) {
    if (protocol_ == Protocol::kPackets) return is_connected(m_, *x_.lane, end);
    if (lands(i)) return has_landed(m_, end);
    if (protocol_ != Protocol::kPull) return can_receive(m_, *x_.lane, end);
    Pack message;
    return is_connected(m_, *x_.lane, end) && hear(m_, end, message) && is_readable(end, message);
  }
  STARLING_HOST_DEVICE bool may_send(const Instruction& i, const Piece& piece, SendEnd& end) {
    if (std::byte* where; is_put(i)) return find_next_place(m_, *x_.lane, end, piece.range.bytes, where);
    return protocol_ == Protocol::kPackets ? can_send_packets(m_, *x_.lane, end)
                                           : can_send(m_, *x_.lane, end);
  }

  // Of a message that is there: can we address the slice that it names? Not before our host has opened it.
  STARLING_HOST_DEVICE bool is_readable(const ReceiveEnd& end, const Pack& message) {
    if constexpr (M::kOpensPeers)
      if (end.opened != nullptr) return is_opened(m_, *end.opened, message.high);
    return true;
  }

  template <class Ready>
  STARLING_HOST_DEVICE bool in_time(Ready&& ready) {
    return device::in_time(m_, budget_, x_.lane->fault, yields_, ready);
  }

  // Each thread for itself, until all are ready, or one of them waited too long.
  template <class Ready>
  STARLING_HOST_DEVICE bool wait(Ready&& ready) {
    return !m_.any(!in_time(ready));
  }

  STARLING_HOST_DEVICE void signal(const Instruction& i) {
    if (lands(i)) {
      ++receive_end(i, 0).landed;
      return;
    }
    if (receives(i.opcode))
      for (uint32_t k = 0; k < i.receive_count; ++k)
        protocol_ == Protocol::kPull ? was_heard(m_, *x_.lane, receive_end(i, k), *x_.pool)
                                     : consume(m_, *x_.lane, receive_end(i, k), *x_.pool);
    if (sends(i.opcode))
      for (uint32_t k = 0; k < i.send_count; ++k) {
        if (is_put(i)) {
          was_put(m_, send_end(i, k));
          continue;
        }
        if (protocol_ == Protocol::kPull) {
          offer(i, send_end(i, k));
          continue;
        }
        if constexpr (M::kReadsOwned)
          describe(i, send_end(i, k));
        else
          measure(send_end(i, k), x_.operands->message_bytes);
        post(m_, send_end(i, k));
      }
  }

  // The release in tell() covers what lies there as well: peers read it after their acquire.
  STARLING_HOST_DEVICE void offer(const Instruction& i, SendEnd& end) {
    Pack message{uint64_t(x_.operands->offered), 0};
    if constexpr (M::kReadsOwned) message.high = m_.owner();
    if constexpr (M::kOpensPeers) message.high = op_.registrations[uint32_t(offered_buffer(i))];
    tell(m_, end, message, false);
  }

  // Protocol pull: the operation's buffers are its caller's again when every message was read, which gave its
  // private slot back.
  STARLING_HOST_DEVICE bool wait_for_readers() {
    m_.barrier();  // the ends count the last instruction
    return wait([&] {
      for (uint32_t k = m_.thread_index(); k < block_.send_count; k += m_.thread_count())
        if (!was_read(m_, *x_.lane, send_end(k))) return false;
      return true;
    });
  }

  // A proxy reads the operation's buffers. Of blocks of one thread.
  STARLING_HOST_DEVICE bool names_sources() const {
    return (op_.hints & (kByReference | kOutputByReference)) != 0;
  }
  // What this one sends, among others? Its connections are there.
  STARLING_HOST_DEVICE bool is_named(const Instruction& i) {
    bool named = is_by_reference(op_.hints, i);
    for (uint32_t k = 0; named && k < i.send_count; ++k) named = send_end(i, k).carried != 0;
    return named;
  }
  // For a proxy, the message that is posted next: it is where its source is, or where it was written.
  STARLING_HOST_DEVICE void describe(const Instruction& i, SendEnd& end) {
    const Combine& c = *x_.operands;
    if (!names_sources() || !is_named(i)) return measure(end, c.message_bytes);
    name_source(*x_.lane, end, writes_destination(i.opcode) ? c.destinations[0] : c.sources[0],
                c.message_bytes);
  }
  // Of the block's connections; as many as there are: none.
  STARLING_HOST_DEVICE uint32_t first_untaken() {
    uint32_t k = 0;
    while (k < block_.send_count && untaken(m_, send_end(k)) == 0) ++k;
    return k;
  }

  STARLING_HOST_DEVICE Awaited awaits_readers() {
    if constexpr (M::kReadsOwned)
      if (const uint32_t k = names_sources() ? first_untaken() : block_.send_count; k < block_.send_count)
        return {&send_end(k).credit->taken, untaken(m_, send_end(k)), send_end(k).peer};
    for (uint32_t k = 0; protocol_ == Protocol::kPull && k < block_.send_count; ++k) {
      SendEnd& end = send_end(k);
      if (!was_read(m_, *x_.lane, end))
        return {&end.credit->granted, end.sent + x_.lane->private_slots, end.peer};
    }
    return {};
  }

  // Of the block's connection k, or of an instruction's.
  STARLING_HOST_DEVICE ReceiveEnd& receive_end(uint32_t k) { return ends_.receive(k); }
  STARLING_HOST_DEVICE ReceiveEnd& receive_end(const Instruction& i, uint32_t k) {
    return ends_.receive(i.receive_first + k);
  }
  STARLING_HOST_DEVICE SendEnd& send_end(uint32_t k) { return ends_.send(k); }
  STARLING_HOST_DEVICE SendEnd& send_end(const Instruction& i, uint32_t k) {
    return ends_.send(i.send_first + k);
  }

  M& m_;
  const Execution& x_;
  const Operation& op_;
  Budget& budget_;
  Yields yields_;
  BlockPlan block_;
  const Instruction* instructions_;
  BlockEnds ends_;
  const Dependency* dependencies_;
  Protocol protocol_;
  bool ahead_ = false;  // operands of instruction first_ahead_ + n are in set n
  uint32_t first_ahead_ = 0;
};

}  // namespace starling::device
