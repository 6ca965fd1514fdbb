// The host's side of device/bound.h: which operations come to their kernels bound, and what is said of them.
//
// The plan must be one of packets or of pulls, whose blocks all do the same: instruction n of block b is that
// of block 0, a fixed number of chunks further, on channel b. Such are all of the library's own; whatever
// else a plan does, the interpreter does.
#pragma once
#include <cstdint>

#include "device/bound.h"
#include "device/operands.h"
#include "wire/operation.h"
#include "wire/plan.h"

namespace starling::device {

class ProgramBinder {
 public:
  // `plan`: what operation.plan points to, or a copy that the host can read.
  ProgramBinder(const PlanHeader& plan, const Operation& operation) : plan_{&plan}, op_(operation) {}

  BoundProgram bind() {
    BoundProgram program{};
    bind(program);
    return program;
  }

  // Where it is to lie, all zero. A program of no instructions: it cannot be bound, and the rest says
  // nothing.
  void bind(BoundProgram& program) {
    if (!bind_all(program)) program.count = 0;
  }

 private:
  // Of an operation; offsets fit in 32 bits.
  static constexpr uint64_t kMostBytes = uint64_t(1) << 30, kMostPulledBytes = uint64_t(1) << 31;

  bool bind_all(BoundProgram& program) {
    if (!is_usual() || !bind_connections(program)) return false;
    const uint32_t planned = plan_.blocks()[0].instruction_count;
    for (uint32_t n = 0; n < planned; ++n)
      if (!bind_instruction(program, n)) return false;
    for (uint32_t k = 0; !pulls() && k < program.receive_count; ++k)
      if (program.received[k] > kPacketSlots) return false;
    for (uint32_t k = 0; !pulls() && k < program.send_count; ++k)
      if (program.sent[k] > kPacketSlots) return false;
    program.chunk_bytes = uint32_t(op_.chunk_bytes);
    program.tile_bytes = uint32_t(op_.tile_bytes < op_.chunk_bytes ? op_.tile_bytes : op_.chunk_bytes);
    program.tile_count = uint32_t(op_.tile_count);
    program.planned = uint8_t(planned);
    program.pulls = pulls();
    if (pulls()) find_passed_on(program);
    program.leading = pulls() ? 0 : leading(program);
    program.heads = pulls() ? told_heads(program) : heads(program);
    program.tails = tails(program);
    program.landings = pulls() ? landings(program) : 0;
    program.scratch_tiles = plan_.header->tile_scratch;
    program.lends_ahead = lends_ahead(program);
    program.once = program.tile_count == 1 && (pulls() ? only_pulls(program) : has_few_sources(program));
    return true;
  }

  bool pulls() const { return plan_.header->protocol == Protocol::kPull; }

  static bool has_few_sources(const BoundProgram& program) {
    for (uint32_t n = 0; n < program.count; ++n)
      if (program.instructions[n].source_count > kFewSources) return false;
    return true;
  }

  static bool only_pulls(const BoundProgram& program) {
    for (uint32_t n = 0; n < program.count; ++n) {
      const BoundInstruction& i = program.instructions[n];
      if ((i.received_before & ~kBoundFinal) != 0 || reduces_into(i)) return false;
    }
    return true;
  }

  // Two tiles' messages must have slots together, else credit for the next tile could wait for this one.
  static uint32_t leading(const BoundProgram& program) {
    if (program.tile_count == 1 || program.send_count == 0) return 0;
    for (uint32_t k = 0; k < program.send_count; ++k)
      if (2 * program.sent[k] > kPacketSlots) return 0;
    uint32_t count = 0;
    while (count < program.count && program.instructions[count].receive_count == 0) ++count;
    return count;
  }

  // The first that keeps anything is the last of them: who comes behind it may read that.
  static uint8_t heads(const BoundProgram& program) {
    uint8_t count = 0;
    while (count < program.count && program.instructions[count].receive_count == 0)
      if (program.instructions[count++].destination != nullptr) break;
    return count;
  }
  // Of pulls: that only tell addresses, each connection one at most, and the copy behind them, if there is
  // one.
  static uint8_t told_heads(const BoundProgram& program) {
    uint8_t count = 0;
    uint32_t told = 0;
    for (; count < program.count; ++count) {
      const BoundInstruction& i = program.instructions[count];
      if (i.receive_count != 0 || is_put(i) || reduces_into(i)) break;
      if (i.destination != nullptr) return i.send_count == 0 ? count + 1 : count;
      const uint32_t connections = ((1u << i.send_count) - 1) << i.send_first;
      if ((told & connections) != 0) break;
      told |= connections;
    }
    return count;
  }
  uint8_t tails(const BoundProgram& program) const {
    uint8_t count = 0;
    while (count < program.count) {
      const BoundInstruction* const i = &program.instructions[program.count - 1 - count];
      if (!only_receives(*i) || (pulls() && !may_go_with(program, *i, i + 1, count))) break;
      ++count;
    }
    return count;
  }
  // Pulls that are copied together: each on a connection of its own, and none overwrites another.
  static bool may_go_with(const BoundProgram& program, const BoundInstruction& i,
                          const BoundInstruction* others, uint32_t count) {
    for (uint32_t k = 0; k < count; ++k) {
      if (others[k].receive_first == i.receive_first || others[k].destination_step != i.destination_step ||
          is_put(others[k]) != is_put(i))
        return false;
      const int64_t apart = others[k].destination - i.destination;
      if (apart < int64_t(program.chunk_bytes) && -apart < int64_t(program.chunk_bytes)) return false;
    }
    return true;
  }
  static uint8_t landings(const BoundProgram& program) {
    uint8_t count = 0;
    for (uint32_t n = 0; n < program.count; ++n)
      count += lands(program.instructions[n]) || lands_first(program.instructions[n]);
    return count;
  }
  // Places of two tiles, where there are words for so many. Scratch is in use until its tile's end.
  static uint8_t lends_ahead(const BoundProgram& program) {
    uint32_t places[kBoundEnds] = {}, most = 1;
    uint32_t tiles = 2;
    for (uint32_t n = 0; n < program.count; ++n) {
      const BoundInstruction& i = program.instructions[n];
      if (!(lands(i) || lands_first(i))) continue;
      if (lands_in_tile(i) && program.scratch_tiles < tiles) tiles = program.scratch_tiles;
      if (++places[i.receive_first] > most) most = places[i.receive_first];
    }
    if (program.landings == 0 || program.tile_count == 1) return 0;
    if (kMaxLent / most < tiles) tiles = kMaxLent / most;
    return uint8_t(tiles - 1);
  }
  // What lands and is added to, or sent on, or both, is one instruction; so is what is kept and sent.
  static bool joins(BoundProgram& program, BoundInstruction& i) {
    if (program.count == 0 || i.receive_count != 0) return false;
    if (!(is_put(i) && i.send_count != 0) && !reduces_into(i)) return false;
    BoundInstruction& before = program.instructions[program.count - 1];
    return joins_landing(before, i) || joins_copy(before, i);
  }
  static bool joins_copy(BoundInstruction& copy, BoundInstruction& i) {
    if (copy.receive_count != 0 || copy.send_count != 0 || is_put(copy) || copy.source_count != 1)
      return false;
    if (copy.source != i.source || copy.source_step != i.source_step || i.destination != nullptr ||
        copy.span != i.span || copy.span_step != i.span_step)
      return false;
    i.destination = copy.destination;
    i.destination_step = copy.destination_step;
    i.received_before |= kBoundCopies | (copy.received_before & kBoundDestinationOfTile);
    copy = i;
    return true;
  }
  static bool joins_landing(BoundInstruction& landing, BoundInstruction& i) {
    if (!lands(landing) || landing.span != i.span || landing.span_step != i.span_step) return false;
    const bool in_source = landing.destination == i.source && landing.destination_step == i.source_step;
    if (!in_source &&
        !(landing.destination == i.destination && landing.destination_step == i.destination_step))
      return false;
    // Of what is put the names are those of its place; else they are of what is told.
    if (i.send_count != 0 && !is_put(i) && i.sent_before != landing.sent_before) return false;
    i.receive_first = landing.receive_first;
    i.received_before |= kBoundLandsFirst | (in_source ? kBoundLandsInSource : 0);
    i.sent_before = landing.sent_before;
    landing = i;
    return true;
  }
  // Sums that something else overwrites before anybody reads them: they are where they were sent. And sums
  // that are only copied to where one operand lies, as in place: they are made there.
  static void find_passed_on(BoundProgram& program) {
    for (uint32_t n = 0; n < program.count; ++n)
      if (program.instructions[n].send_count != 0 && !is_put(program.instructions[n])) return;
    for (uint32_t n = 0; n < program.count; ++n) {
      BoundInstruction& i = program.instructions[n];
      if (!reduces_into(i)) continue;
      if (is_put(i) && is_lost(program, i, n + 1))
        i.received_before |= kBoundPassesOn;
      else if (n + 1 < program.count && copies_back(i, program.instructions[n + 1]) &&
               is_lost(program, i, n + 2))
        make_there(program, n);
      else if (n + 1 < program.count && copies_on(program, i, program.instructions[n + 1]) &&
               is_lost(program, i, n + 2))
        make_apart(program, n);
    }
  }
  // A sum in scratch is copied to a buffer that it reads nothing of.
  static bool copies_on(const BoundProgram& program, const BoundInstruction& i,
                        const BoundInstruction& copy) {
    return program.apart == 0 && lands_first(i) && !lands_in_source(i) && !is_put(i) &&
           (i.received_before & (kBoundDestinationOfTile | kBoundSourceOfTile)) == kBoundDestinationOfTile &&
           copy.send_count == 0 && copy.receive_count == 0 && copy.source == i.destination &&
           (copy.received_before & (kBoundSourceOfTile | kBoundDestinationOfTile)) == kBoundSourceOfTile &&
           copy.source_step == i.destination_step && copy.span == i.span && copy.span_step == i.span_step &&
           is_apart(program, copy, i.source, i.source_step, false);
  }
  // It is made in that buffer.
  static void make_apart(BoundProgram& program, uint32_t n) {
    BoundInstruction& i = program.instructions[n];
    program.apart = uint8_t(n + 1);
    program.added = i.source;
    program.added_step = i.source_step;
    i.source = i.destination;
    i.source_step = i.destination_step;
    i.destination = program.instructions[n + 1].destination;
    i.destination_step = program.instructions[n + 1].destination_step;
    i.received_before &= uint8_t(~kBoundDestinationOfTile);
    i.received_before |= kBoundCopies | kBoundSourceOfTile | kBoundLandsInSource;
    remove(program, n + 1);
  }
  static void remove(BoundProgram& program, uint32_t n) {
    --program.count;
    for (uint32_t k = n; k < program.count; ++k) program.instructions[k] = program.instructions[k + 1];
  }
  static bool copies_back(const BoundInstruction& i, const BoundInstruction& copy) {
    return copy.send_count == 0 && copy.receive_count == 0 && copy.source == i.destination &&
           copy.source_step == i.destination_step && copy.destination == i.source &&
           copy.destination_step == i.source_step && copy.span == i.span && copy.span_step == i.span_step &&
           (i.received_before & kBoundSourceOfTile) == 0;
  }
  // Of two operands the order says nothing.
  static void make_there(BoundProgram& program, uint32_t n) {
    BoundInstruction& i = program.instructions[n];
    const BoundInstruction& copy = program.instructions[n + 1];
    const bool of_tile = (i.received_before & kBoundDestinationOfTile) != 0;
    i.source = copy.source;
    i.source_step = copy.source_step;
    i.destination = copy.destination;
    i.destination_step = copy.destination_step;
    i.received_before &= uint8_t(~kBoundDestinationOfTile);
    i.received_before |= kBoundCopies | (of_tile ? kBoundSourceOfTile : 0);
    if (lands_first(i)) i.received_before ^= kBoundLandsInSource;  // where it landed before
    remove(program, n + 1);
  }
  // From instruction n on.
  static bool is_lost(const BoundProgram& program, const BoundInstruction& i, uint32_t n) {
    const bool of_tile = (i.received_before & kBoundDestinationOfTile) != 0;
    for (uint32_t k = n; k < program.count; ++k) {
      const BoundInstruction& later = program.instructions[k];
      const bool in_source = lands_in_source(later);
      const std::byte* const place = in_source ? later.source : later.destination;
      if ((lands(later) || lands_first(later)) && place == i.destination &&
          (in_source ? later.source_step : later.destination_step) == i.destination_step)
        return true;
      if (later.source != nullptr &&
          !is_apart(program, i, later.source, later.source_step, later.received_before & kBoundSourceOfTile))
        return false;
      if (reduces_into(later) && !is_apart(program, i, later.destination, later.destination_step,
                                           later.received_before & kBoundDestinationOfTile))
        return false;
    }
    return of_tile;
  }
  // Not where `i` writes, on any block.
  static bool is_apart(const BoundProgram& program, const BoundInstruction& i, const std::byte* other,
                       uint32_t step, bool other_of_tile) {
    const bool of_tile = (i.received_before & kBoundDestinationOfTile) != 0;
    if (of_tile != other_of_tile) return true;  // scratch is no caller's buffer
    const int64_t length = of_tile ? program.tile_bytes : program.chunk_bytes, apart = other - i.destination;
    return step == i.destination_step && (apart >= length || -apart >= length);
  }
  static bool lands_in_tile(const BoundInstruction& i) {
    return (i.received_before & (lands_in_source(i) ? kBoundSourceOfTile : kBoundDestinationOfTile)) != 0;
  }
  static bool only_receives(const BoundInstruction& i) {
    return i.receive_count == 1 && i.source_count == 1 && i.send_count == 0;
  }

  bool is_usual() const {
    const PlanHeader& plan = *plan_.header;
    if ((plan.protocol != Protocol::kPackets && !pulls()) || plan.canonical == 0) return false;
    if (pulls() && (op_.bounces[0] != 0 || op_.bounces[1] != 0)) return false;
    // BoundStart::end() fences for the GPU alone, and release_words_early() not at all.
    if (op_.hints & kElsewhereInMemory) return false;
    if (op_.tile_count == 0 || op_.group_bytes > kMostPulledBytes) return false;
    const uint64_t groups = plan.input_groups > plan.output_groups ? plan.input_groups : plan.output_groups;
    if (op_.group_bytes * groups > (pulls() ? kMostPulledBytes : kMostBytes)) return false;
    if (op_.reduce_op == ReduceOp::kPremulSum) return false;
    for (const BufferBinding& buffer : op_.buffers)
      if (buffer.groups != nullptr) return false;
    const uint32_t count = plan_.blocks()[0].instruction_count;
    if (count == 0 || count > 0xff) return false;
    for (uint32_t b = 1; b < plan.block_count; ++b)
      if (plan_.blocks()[b].instruction_count != count) return false;
    return true;
  }

  bool bind_connections(BoundProgram& program) const {
    const BlockPlan& first = plan_.blocks()[0];
    if (first.receive_count > kBoundEnds || first.send_count > kBoundEnds) return false;
    for (uint32_t b = 0; b < plan_.header->block_count; ++b) {
      const BlockPlan& block = plan_.blocks()[b];
      if (block.receive_count != first.receive_count || block.send_count != first.send_count) return false;
      if (!same_peers(block.receive_first, first.receive_first, first.receive_count, b)) return false;
      if (!same_peers(block.send_first, first.send_first, first.send_count, b)) return false;
    }
    program.receive_count = uint8_t(first.receive_count);
    program.send_count = uint8_t(first.send_count);
    program.divisor = 1;
    for (uint32_t k = 0; k < first.receive_count; ++k)
      program.receive_peers[k] = plan_.connections()[first.receive_first + k].peer;
    for (uint32_t k = 0; k < first.send_count; ++k)
      program.send_peers[k] = plan_.connections()[first.send_first + k].peer;
    return true;
  }

  bool same_peers(uint32_t at, uint32_t first, uint32_t count, uint32_t channel) const {
    const Connection* connections = plan_.connections();
    for (uint32_t k = 0; k < count; ++k)
      if (connections[at + k].peer != connections[first + k].peer || connections[at + k].channel != channel)
        return false;
    return true;
  }

  bool bind_instruction(BoundProgram& program, uint32_t n) const {
    const Instruction& i = instruction(0, n);
    if (i.opcode == Opcode::nop || (reduces_into(i.opcode) && !pulls())) return false;
    if (i.chunks != 1 || i.dependency_count != 0) return false;
    uint32_t source_step = 0, destination_step = 0, size_step = 0;
    if (!follow(n, source_step, destination_step, size_step)) return false;
    BoundInstruction bound{};
    const Slice size = slice(i.size_buffer, i.size_chunk, size_step);
    if (!size.is_whole) return false;
    bound.span = uint32_t(size.left);
    bound.span_step = uint32_t(size.step);
    if (reads_source(i.opcode)) {
      const Slice source = slice(i.source_buffer, i.source_chunk, source_step);
      if (!source.is_whole) return false;
      bound.source = op_.buffers[uint32_t(i.source_buffer)].base + source.offset;
      bound.source_step = uint32_t(source.step);
    }
    if (writes_destination(i.opcode)) {
      const Slice destination = slice(i.destination_buffer, i.destination_chunk, destination_step);
      if (!destination.is_whole) return false;
      bound.destination = op_.buffers[uint32_t(i.destination_buffer)].base + destination.offset;
      bound.destination_step = uint32_t(destination.step);
    }
    if (!bind_messages(program, bound, i)) return false;
    if (joins(program, bound)) return true;
    if (program.count == kBoundInstructions) return false;
    program.instructions[program.count++] = bound;
    return true;
  }

  bool bind_messages(BoundProgram& program, BoundInstruction& bound, const Instruction& i) const {
    const bool local = reads_source(i.opcode), into = reduces_into(i.opcode);
    bound.receive_count = receives(i.opcode) ? i.receive_count : 0;
    bound.send_count = sends(i.opcode) ? i.send_count : 0;
    bound.receive_first = bound.receive_count != 0 ? uint8_t(i.receive_first) : 0;
    bound.send_first = bound.send_count != 0 ? uint8_t(i.send_first) : 0;
    bound.source_count = uint8_t(into + bound.receive_count + local);
    bound.local_at = local ? uint8_t(into + i.local_position) : kNoLocal;
    // Of what is received and passed on without being kept here there is no address to tell.
    if (pulls() && bound.send_count != 0 && !writes_destination(i.opcode) && bound.source_count != local &&
        !is_put(i))
      return false;
    if (bound.source_count > 1 || (i.flags & kFinal && op_.reduce_op == ReduceOp::kAvg)) {
      // All reductions are described once.
      if (bound.source_count < 2 || (program.reduced != 0 && program.reduced != bound.source_count))
        return false;
      if (op_.reduce_op == ReduceOp::kAvg && !(i.flags & kFinal) && !pulls()) return false;
      if (op_.reduce_op == ReduceOp::kAvg && op_.rank_count > 0xff) return false;
      program.reduced = bound.source_count;
      program.divisor = op_.reduce_op == ReduceOp::kAvg ? uint8_t(op_.rank_count) : 1;
    }
    if (!count(program.received, bound.receive_first, bound.receive_count, bound.received_before) ||
        !count(program.sent, bound.send_first, bound.send_count, bound.sent_before))
      return false;
    if (!pulls()) return true;
    if (bound.send_count != 0 || is_put(i)) bound.sent_before = uint8_t(offered_buffer(i));
    const auto of_tile = [&](bool wanted, BufferKind kind) { return wanted && kind == BufferKind::kScratch; };
    bound.received_before =
        uint8_t((is_put(i) ? kBoundPut : 0) | ((i.flags & kFinal) != 0 ? kBoundFinal : 0) |
                (of_tile(local, i.source_buffer) ? kBoundSourceOfTile : 0) |
                (of_tile(writes_destination(i.opcode), i.destination_buffer) ? kBoundDestinationOfTile : 0));
    return true;
  }

  // One message more on each of these connections, which have had the same number before.
  static bool count(uint8_t* messages, uint32_t first, uint32_t count, uint8_t& before) {
    if (count == 0) return true;
    before = messages[first];
    for (uint32_t k = first; k < first + count; ++k)
      if (messages[k]++ != before) return false;
    return true;
  }

  // Are instructions n of all blocks alike, but for their chunks, which are so many further each?
  bool follow(uint32_t n, uint32_t& source_step, uint32_t& destination_step, uint32_t& size_step) const {
    const uint32_t blocks = plan_.header->block_count;
    if (blocks == 1) return true;
    const Instruction& i = instruction(0, n);
    source_step = instruction(1, n).source_chunk - i.source_chunk;
    destination_step = instruction(1, n).destination_chunk - i.destination_chunk;
    size_step = instruction(1, n).size_chunk - i.size_chunk;
    for (uint32_t b = 1; b < blocks; ++b) {
      const Instruction& other = instruction(b, n);
      const bool alike =
          other.opcode == i.opcode && other.flags == i.flags && other.source_buffer == i.source_buffer &&
          other.destination_buffer == i.destination_buffer && other.size_buffer == i.size_buffer &&
          other.local_position == i.local_position && other.chunks == i.chunks &&
          other.receive_first == i.receive_first && other.send_first == i.send_first &&
          other.receive_count == i.receive_count && other.send_count == i.send_count &&
          other.dependency_count == 0 && other.source_chunk == i.source_chunk + b * source_step &&
          other.destination_chunk == i.destination_chunk + b * destination_step &&
          other.size_chunk == i.size_chunk + b * size_step;
      if (!alike) return false;
    }
    return true;
  }

  struct Slice {
    bool is_whole;  // every block has some of it in each tile, all in one group
    uint64_t offset;  // of block 0, in the buffer
    uint64_t left;  // bytes from there to the group's end
    uint64_t step;
  };
  Slice slice(BufferKind kind, uint32_t chunk, uint32_t step) const {
    const uint32_t per_group = plan_.header->chunks_per_group, last = plan_.header->block_count - 1;
    const uint64_t group = chunk / per_group, inside = chunk % per_group;
    // A step back is a huge one, and ends outside.
    const uint64_t last_inside = inside + uint64_t(last) * step;
    if (kind == BufferKind::kScratch && plan_.header->tile_scratch != 0) {
      const uint64_t chunks = plan_.header->scratch_chunks;
      const uint64_t bytes = plan_.header->tile_scratch * op_.tile_bytes;
      const bool inside_all = chunk + uint64_t(last) * step < chunks && chunks * bytes <= kMostPulledBytes;
      return {inside_all, chunk * bytes, 0, step * bytes};
    }
    if (kind == BufferKind::kScratch || kind == BufferKind::kNone || last_inside >= per_group) return {};
    const uint64_t begin = inside * op_.chunk_bytes;
    const uint64_t last_tile = (op_.tile_count - 1) * op_.tile_bytes;
    return {last_inside * op_.chunk_bytes + last_tile < op_.group_bytes, group * op_.group_bytes + begin,
            op_.group_bytes - begin, step * op_.chunk_bytes};
  }

  const Instruction& instruction(uint32_t b, uint32_t n) const {
    return plan_.instructions()[plan_.blocks()[b].instruction_first + n];
  }

  PlanView plan_;
  const Operation& op_;
};

}  // namespace starling::device
