// Short programs of packets, bound by the host. What the instructions are to do comes in the start kernel's
// argument, so neither plan nor lane is read, and a block takes one straight way through:
//
//   fence, turn, ends, credit, fault, input: each a thread's ── vote ── one is missing ──▶ the interpreter,
//   from
//     │ all there                                                                   the beginning
//   for each tile, for each instruction:
//     wait for the units (bounded) ── too long ──▶ ends counted ─▶ the interpreter, from that instruction
//     │
//   ends counted ──▶ done
//
// Only what is usual comes this way (device/bind.h says what), and the interpreter does all the rest: also
// what is seldom, as connecting, and messages that fill their slots to the end (refreshes_amid()). A thread
// has one unit of 16 bytes at most in an instruction and tile, number thread_index() of the block's share.
// Each operand is one chunk, so who reads what an earlier instruction wrote is the thread that wrote it.
//
// Most programs are run `once`: of one tile, and few sources (kFewSources). These have code of their own,
// made from the same functions without what several tiles and many sources need.
//
// What counts is how many trips to memory are made one after the other, each 600 to 700 cycles, and how many
// instructions a warp takes in turn, each some five (docs/design/0007-start-as-a-kernel.md).
#pragma once
#include "device/bound_program.h"
#include "device/connector.h"
#include "device/execution.h"
#include "device/machine.h"
#include "device/packets.h"
#include "device/wait.h"
#include "wire/lane.h"
#include "wire/operation.h"

namespace starling::device {

// In the block's fast memory. Each end is written by one thread, before the vote, and read by all after it.
struct BoundState {
  struct Receive {
    const uint64_t* slots;
    uint64_t messages;  // received before this operation
    Credit* credit;  // in the peer's memory
  };
  struct Send {
    uint64_t* slots;
    uint64_t messages;  // sent before this operation
  };
  Receive receives[kBoundEnds];
  Send sends[kBoundEnds];
};

STARLING_HOST_DEVICE inline void describe_bound_reduction(const BoundProgram& program,
                                                          const Operation& operation, Combine& c) {
  c.source_count = program.reduced;
  c.divisor = program.divisor;
  c.scaled_source = kNoSource;
  c.factor = 1;
  c.data_type = operation.data_type;
  c.reduce_op = operation.reduce_op;
}

// A thread's next connection behind k. Where threads are many each has one at most, and no loop.
template <class M>
STARLING_HOST_DEVICE uint32_t next_end(const M& m, uint32_t k) {
  static_assert(2 * kBoundEnds <= 32, "a warp has a thread for each");
  return M::kVectorThreads ? ~0u : k + m.thread_count();
}

template <class M, bool kOnce>
class BoundRun {
 public:
  // `reduction`: in the block's fast memory too.
  STARLING_HOST_DEVICE BoundRun(M& machine, const BoundProgram& program, const Operation& operation,
                                const Lane& lane, const Budget& budget, BoundState& state, Combine& reduction)
      : m_(machine),
        p_(program),
        op_(operation),
        lane_(lane),
        budget_(budget),
        s_(state),
        c_(reduction),
        block_(m_.block_index()) {}

  // Is what this thread looks at there? `ours()`: so is the part. A vote must follow. Nothing is written but
  // this block's fast memory, so it does no harm if the part is not ours. All loads of a thread go out before
  // one of them is used: each use waits for its trip.
  template <class Ours>
  STARLING_HOST_DEVICE bool look(Ours&& ours) {
    const uint32_t thread = m_.thread_index(), threads = m_.thread_count();
    bool ready = p_.tile_bytes <= 16 * threads;
    BoundState::Receive receive{};
    BoundState::Send send{};
    uint32_t connected = 1;
    uint64_t read = 0;
    if (const uint32_t k = thread; k < p_.receive_count) {
      const ReceiveEnd& end = lane_.receives[receive_place(k)];
      receive = {end.packets, end.packets_received, end.credit};
      connected = end.connected;
    }
    uint32_t sends_connected = 1;
    if (const uint32_t k = last(thread); k < p_.send_count) {
      const SendEnd& end = lane_.sends[send_place(k)];
      send = {end.packets, end.packets_sent};
      sends_connected = end.connected;
      read = packets_read(k);
    }
    const BoundInstruction& first = p_.instructions[0];
    const Share share = share_of(first, 0);
    if (share.bytes != 0 && first.source != nullptr)
      early_ = m_.load_early(source_of(first, share), share.bytes);
    else
      early_ = {0, 0};
    // Relaxed: as Interpreter::is_broken(). Looked at last, so that nothing waits for it.
    const uint64_t fault = thread + 1 == threads ? m_.load_relaxed(lane_.fault) : 0;
    if (thread == threads / 2) describe_bound_reduction(p_, op_, c_);
    ready &= connected != 0 && sends_connected != 0;
    if (const uint32_t k = thread; k < p_.receive_count) s_.receives[k] = receive;
    if (const uint32_t k = last(thread); k < p_.send_count) ready &= may_send(k, send, read, ours);
    for (uint32_t k = next_end(m_, thread); k < p_.receive_count; k = next_end(m_, k)) {
      const ReceiveEnd& end = lane_.receives[receive_place(k)];
      s_.receives[k] = {end.packets, end.packets_received, end.credit};
      ready &= end.connected != 0;
    }
    for (uint32_t k = next_end(m_, last(thread)); k < p_.send_count; k = next_end(m_, k)) {
      const SendEnd& end = lane_.sends[send_place(k)];
      ready &= end.connected != 0 && may_send(k, {end.packets, end.packets_sent}, packets_read(k), ours);
    }
    ready &= fault == 0;
    return ready;
  }

  // On all threads, after that vote: how many steps are done, the same on all, and whether these are all. The
  // ends say so too; a barrier must follow, then ring().
  STARLING_HOST_DEVICE uint32_t run(bool& ended) {
    const uint32_t done = kOnce ? advance_once() : advance();
    ended = done == p_.steps();
    if (kOnce)
      count_ends(ended, ended ? 0 : done);
    else
      count_ends(done / p_.count, done % p_.count);
    return done;
  }

  // Wakes the peers' blocks, where they sleep.
  STARLING_HOST_DEVICE void ring() {
    for (uint32_t k = m_.thread_index(); k < p_.receive_count; k = next_end(m_, k))
      m_.notify(lane_.receives[receive_place(k)].doorbell);
    for (uint32_t k = last(m_.thread_index()); k < p_.send_count; k = next_end(m_, k))
      m_.notify(lane_.sends[send_place(k)].doorbell);
  }

 private:
  // Of one tile.
  STARLING_HOST_DEVICE uint32_t advance_once() {
    const uint32_t tails = p_.count - p_.tails;
    uint32_t n = send_heads(0, p_.heads);
    for (; n < tails; ++n)
      if (!exchange<kFewSources>(p_.instructions[n], 0, n == 0)) return n;
    if (n < p_.count && !receive_tails(0)) return n;
    return p_.steps();
  }

  // What a tile sends before it waits, its leading instructions, goes out while the tile before is awaited:
  //
  //   lead 0, lead 1, rest 0, lead 2, rest 1, lead 3, rest 2 ...
  //
  // A lead ahead of the tile before does not count as done: whoever goes on from there sends the same again,
  // into the same slots, under the same numbers; nothing of that tile has been written to meanwhile.
  STARLING_HOST_DEVICE uint32_t advance() {
    uint32_t tile = 0;
    bool leads = p_.leading != 0;
    for (;;) {
      if (leads && tile != 0 && !wait_for_credit(tile)) return (tile - 1) * p_.count + p_.leading;
      // Peers give it when they are through with earlier tiles, which need nothing of this one.
      if (p_.leading == 0 && tile != 0 && p_.send_count != 0 && !wait_for_credit(tile))
        return tile * p_.count;
      const uint32_t end = leads ? p_.leading : p_.count, tails = p_.count - p_.tails;
      uint32_t n = leads ? 0 : p_.leading;
      if (n == 0) n = send_heads(tile, p_.heads < end ? p_.heads : end);
      for (; n < end && n < tails; ++n)
        if (!execute(p_.instructions[n], tile, tile == 0 && n == 0)) return tile * p_.count + n;
      if (n < end && !receive_tails(tile)) return tile * p_.count + n;
      if (leads && tile == 0) {
        tile = 1;
      } else if (leads) {
        leads = false;
        --tile;
      } else if (p_.leading != 0 && tile + 2 < p_.tile_count) {
        leads = true;
        tile += 2;
      } else if (++tile == p_.tile_count) {
        return p_.steps();
      }
    }
  }

  // By the peer, on connection k. Pairs with store_after_loads() in count_read(): it has done with what we
  // overwrite.
  STARLING_HOST_DEVICE uint64_t packets_read(uint32_t k) {
    return m_.load_before_stores(&lane_.credits[send_place(k)].packets_read);
  }
  // For all that the tile sends on connection k, which is this thread's.
  STARLING_HOST_DEVICE bool has_credit(uint32_t k, uint32_t tile) {
    return is_enough(k, s_.sends[k].messages, packets_read(k), tile);
  }
  STARLING_HOST_DEVICE bool is_enough(uint32_t k, uint64_t messages, uint64_t read, uint32_t tile) const {
    return messages + uint64_t(tile + 1) * p_.sent[k] <= read + kPacketSlots;
  }
  // This thread's end, as it was looked at: is it what is usual, and is there credit? If it is our turn, that
  // is waited for.
  template <class Ours>
  STARLING_HOST_DEVICE bool may_send(uint32_t k, const BoundState::Send& send, uint64_t read, Ours&& ours) {
    s_.sends[k] = send;
    if (refreshes_amid(send.messages, uint64_t(p_.tile_count) * p_.sent[k])) return false;
    return is_enough(k, send.messages, read, 0) ||
           (ours() && in_time(m_, budget_, lane_.fault, NeverYields{}, [&] { return has_credit(k, 0); }));
  }

  STARLING_HOST_DEVICE bool wait_for_credit(uint32_t tile) {
    const bool there = in_time(m_, budget_, lane_.fault, NeverYields{}, [&] {
      for (uint32_t k = last(m_.thread_index()); k < p_.send_count; k = next_end(m_, k))
        if (!has_credit(k, tile)) return false;
      return true;
    });
    return !m_.any(!there);
  }

  // What this thread has of an instruction in a tile.
  struct Share {
    uint32_t offset;
    uint32_t bytes;  // 0: nothing
  };
  STARLING_HOST_DEVICE Share share_of(const BoundInstruction& i, uint32_t tile) const {
    const uint32_t span = i.span - block_ * i.span_step, begin = tile * p_.tile_bytes;
    const uint32_t left = (span < p_.chunk_bytes ? span : p_.chunk_bytes) - begin;
    const uint32_t bytes = left < p_.tile_bytes ? left : p_.tile_bytes;
    const uint32_t inside = 16 * m_.thread_index();
    const uint32_t own = inside < bytes ? bytes - inside : 0;
    return {begin + inside, own < 16 ? own : 16};
  }
  STARLING_HOST_DEVICE const std::byte* source_of(const BoundInstruction& i, const Share& share) const {
    return i.source + block_ * i.source_step + share.offset;
  }

  // `early`: the local slice is in early_.
  STARLING_HOST_DEVICE bool execute(const BoundInstruction& i, uint32_t tile, bool early) {
    return i.source_count <= kFewSources ? exchange<kFewSources>(i, tile, early)
                                         : exchange<kBoundSources>(i, tile, early);
  }

  // As Interpreter::exchange_unit(): no effect before the vote has shown that all threads have their units.
  template <uint32_t kMost>
  STARLING_HOST_DEVICE bool exchange(const BoundInstruction& i, uint32_t tile, bool early) {
    const Share share = share_of(i, tile);
    const bool mine = share.bytes != 0;
    Pack local{0, 0};
    if (mine && i.source != nullptr) local = load(source_of(i, share), share.bytes, early);
    Pack in[kMost] = {};
    if (i.receive_count != 0) {
      const Messages<kMost> messages = messages_of<kMost>(i, tile);
      const bool stuck = mine && !in_time(m_, budget_, lane_.fault, NeverYields{},
                                          [&] { return take<kMost>(messages, in); });
      if (m_.any(stuck)) return false;
      count_read(i, tile);  // all threads have loaded the messages: the vote was a barrier
    }
    if (!mine) return true;
    STARLING_UNROLL
    for (uint32_t s = 0; s < kMost; ++s) in[s] = select(s == i.local_at, local, in[s]);
    const Pack out = i.source_count == 1 ? in[0] : reduce<kMost>(in);
    send(i, tile, out);
    keep(i, share, out);
    return true;
  }

  // What is usual needs nothing of the block's memory.
  template <uint32_t kMost>
  STARLING_HOST_DEVICE Pack reduce(const Pack (&in)[kMost]) {
    if constexpr (kMost <= kFewSources) {
      const KeptReduction kept{p_.reduced, p_.divisor, op_.data_type, op_.reduce_op};
      if (Pack out; sum_kept_unit(kept, in, out)) return out;
    }
    return reduce_kept_unit<kMost>(m_, c_, in);
  }

  // To the instruction's peers; and where it keeps it.
  STARLING_HOST_DEVICE void send(const BoundInstruction& i, uint32_t tile, Pack out) {
    STARLING_ROLLED
    for (uint32_t k = i.send_first; k < uint32_t(i.send_first + i.send_count); ++k) {
      const uint64_t message = next_sent(i, tile, k);
      write_packet_unit(m_, packet_slot(lane_, s_.sends[k].slots, message), lane_.packet_bytes,
                        packet_flag(message), m_.thread_index(), out);
    }
  }
  STARLING_HOST_DEVICE void keep(const BoundInstruction& i, const Share& share, Pack out) {
    if (i.destination != nullptr)
      m_.store_few(i.destination + block_ * i.destination_step + share.offset, out, share.bytes);
  }

  // The first instructions, which wait for nothing: all that they read is on its way together. Returns how
  // many.
  STARLING_HOST_DEVICE uint32_t send_heads(uint32_t tile, uint32_t count) {
    constexpr uint32_t kMost = kFewSources;
    if (count > kMost) count = kMost;
    if (count < 2) return 0;
    Pack local[kMost] = {};
    STARLING_UNROLL
    for (uint32_t n = 0; n < kMost; ++n) {
      if (n >= count) continue;
      const BoundInstruction& i = p_.instructions[n];
      const Share share = share_of(i, tile);
      if (share.bytes != 0) local[n] = load(source_of(i, share), share.bytes, tile == 0 && n == 0);
    }
    STARLING_UNROLL
    for (uint32_t n = 0; n < kMost; ++n) {
      if (n >= count) continue;
      const BoundInstruction& i = p_.instructions[n];
      const Share share = share_of(i, tile);
      if (share.bytes == 0) continue;
      send(i, tile, local[n]);
      keep(i, share, local[n]);
    }
    return count;
  }

  // The last instructions, which only receive: one vote for all. What has come is stored at once: if the rest
  // does not come, whoever goes on stores the same again.
  STARLING_HOST_DEVICE bool receive_tails(uint32_t tile) {
    const uint32_t begin = p_.count - p_.tails;
    bool there = true;
    for (uint32_t n = begin; n < p_.count && there; n += kFewSources) there = receive_together(n, tile);
    if (m_.any(!there)) return false;
    for (uint32_t n = begin; n < p_.count; ++n) count_read(p_.instructions[n], tile);
    return true;
  }

  // Of kFewSources tails, this thread's unit of each.
  STARLING_HOST_DEVICE bool receive_together(uint32_t begin, uint32_t tile) {
    constexpr uint32_t kMost = kFewSources;
    Messages<kMost> messages;
    STARLING_UNROLL
    for (uint32_t r = 0; r < kMost; ++r) {
      messages.slots[r] = nullptr;
      messages.flags[r] = 0;
      if (begin + r >= p_.count) continue;
      const BoundInstruction& i = p_.instructions[begin + r];
      if (share_of(i, tile).bytes == 0) continue;
      const uint64_t message = next_received(i, tile, i.receive_first);
      messages.slots[r] = packet_slot(lane_, s_.receives[i.receive_first].slots, message);
      messages.flags[r] = packet_flag(message);
    }
    Pack in[kMost] = {};
    if (!in_time(m_, budget_, lane_.fault, NeverYields{}, [&] { return take<kMost>(messages, in); }))
      return false;
    STARLING_UNROLL
    for (uint32_t r = 0; r < kMost; ++r) {
      if (messages.slots[r] == nullptr) continue;
      const BoundInstruction& i = p_.instructions[begin + r];
      keep(i, share_of(i, tile), in[r]);
    }
    return true;
  }

  STARLING_HOST_DEVICE Pack load(const std::byte* from, uint32_t bytes, bool early) {
    if (!early) return m_.load_few(from, bytes);
    m_.use_early(from, bytes, early_);
    return early_;
  }

  // Where an instruction's messages come, and by which flags they are known.
  template <uint32_t kMost>
  struct Messages {
    const uint64_t* slots[kMost];  // null: none is source s
    uint32_t flags[kMost];
  };
  template <uint32_t kMost>
  STARLING_HOST_DEVICE Messages<kMost> messages_of(const BoundInstruction& i, uint32_t tile) const {
    Messages<kMost> messages;
    STARLING_UNROLL
    for (uint32_t s = 0; s < kMost; ++s) {
      messages.slots[s] = nullptr;
      messages.flags[s] = 0;
      if (s >= i.source_count || s == i.local_at) continue;
      const uint32_t k = i.receive_first + s - uint32_t(s > i.local_at);
      const uint64_t message = next_received(i, tile, k);
      messages.slots[s] = packet_slot(lane_, s_.receives[k].slots, message);
      messages.flags[s] = packet_flag(message);
    }
    return messages;
  }

  // As take_packet_unit().
  template <uint32_t kMost>
  STARLING_HOST_DEVICE bool take(const Messages<kMost>& messages, Pack (&in)[kMost]) {
    bool there = true;
    STARLING_UNROLL
    for (uint32_t first = 0; first < kMost; first += kFewSources) {
      PacketUnit seen[kFewSources] = {};
      STARLING_UNROLL
      for (uint32_t s = 0; s < kFewSources; ++s)
        if (messages.slots[first + s] != nullptr)
          seen[s] = read_packet_unit(m_, messages.slots[first + s], lane_.packet_bytes, m_.thread_index());
      STARLING_UNROLL
      for (uint32_t s = 0; s < kFewSources; ++s) {
        if (messages.slots[first + s] == nullptr) continue;
        there = there && seen[s].has(messages.flags[first + s]);
        in[first + s] = seen[s].data();
      }
    }
    return there;
  }
  // By words: of a conditional assignment the compiler makes an index, and operands would leave the
  // registers.
  STARLING_HOST_DEVICE static Pack select(bool first, Pack a, Pack b) {
    return {first ? a.low : b.low, first ? a.high : b.high};
  }
  // The instruction's message on connection k.
  STARLING_HOST_DEVICE uint64_t next_received(const BoundInstruction& i, uint32_t tile, uint32_t k) const {
    return s_.receives[k].messages + tile * p_.received[k] + i.received_before;
  }
  STARLING_HOST_DEVICE uint64_t next_sent(const BoundInstruction& i, uint32_t tile, uint32_t k) const {
    return s_.sends[k].messages + tile * p_.sent[k] + i.sent_before;
  }

  // The slots go back, each connection's by a thread of its own.
  STARLING_HOST_DEVICE void count_read(const BoundInstruction& i, uint32_t tile) {
    for (uint32_t k = last(m_.thread_index()); k < i.receive_count; k = next_end(m_, k)) {
      const uint32_t connection = i.receive_first + k;
      m_.store_after_loads(&s_.receives[connection].credit->packets_read,
                           next_received(i, tile, connection) + 1);
    }
  }

  // What so many tiles, and of the next one so many instructions, have sent and received. Whoever goes on
  // finds it there.
  STARLING_HOST_DEVICE void count_ends(uint32_t tiles, uint32_t instructions) {
    // By the last threads, which have mostly nothing to move and are here before the others.
    const uint32_t at = last(m_.thread_index());
    for (uint32_t k = at; k < p_.send_count; k = next_end(m_, k))
      lane_.sends[send_place(k)].packets_sent =
          s_.sends[k].messages + tiles * p_.sent[k] + sent(k, instructions);
    for (uint32_t k = M::kVectorThreads ? at - p_.send_count : at; k < p_.receive_count; k = next_end(m_, k))
      lane_.receives[receive_place(k)].packets_received =
          s_.receives[k].messages + tiles * p_.received[k] + received(k, instructions);
  }
  STARLING_HOST_DEVICE uint32_t received(uint32_t k, uint32_t instructions) const {
    uint32_t messages = 0;
    STARLING_ROLLED
    for (uint32_t n = 0; n < instructions; ++n)
      messages += k - p_.instructions[n].receive_first < p_.instructions[n].receive_count;
    return messages;
  }
  STARLING_HOST_DEVICE uint32_t sent(uint32_t k, uint32_t instructions) const {
    uint32_t messages = 0;
    STARLING_ROLLED
    for (uint32_t n = 0; n < instructions; ++n)
      messages += k - p_.instructions[n].send_first < p_.instructions[n].send_count;
    return messages;
  }

  // Sends are looked at by the last threads, so that mostly no thread has two ends.
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
  const Budget& budget_;
  BoundState& s_;
  Combine& c_;
  const uint32_t block_;
  Pack early_;  // the first instruction's local slice in the first tile
};

}  // namespace starling::device
