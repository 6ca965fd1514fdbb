#include "comm/lowering.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "plan/choice.h"
#include "plan/generate.h"

namespace starling {
namespace {

constexpr uint64_t kMostElements = uint64_t(1) << 44;  // times 8 bytes and 65535 ranks stays in 64 bits

using ShapeFunction = Shape (*)(const LoweringContext&, const starling_operation&);

ShapeFunction shape_function(starling_collective kind) {
  switch (kind) {
    case STARLING_ALL_REDUCE: return all_reduce_shape;
    case STARLING_ALL_GATHER: return all_gather_shape;
    case STARLING_REDUCE_SCATTER: return reduce_scatter_shape;
    case STARLING_BROADCAST: return broadcast_shape;
    case STARLING_REDUCE: return reduce_shape;
    case STARLING_ALL_TO_ALL: return all_to_all_shape;
    case STARLING_GATHER: return gather_shape;
    case STARLING_SCATTER: return scatter_shape;
    case STARLING_SEND:
    case STARLING_RECV: return send_recv_shape;
    case STARLING_BARRIER: return barrier_shape;
    case STARLING_CUSTOM: return custom_shape;
  }
  throw Error(Code::invalid_argument, "collective " + std::to_string(int(kind)) + " does not exist",
              "use a value of starling_collective");
}

// Before anything is computed from them: types index tables, and lengths are multiplied.
void check_numbers(const LoweringContext& context, const starling_operation& call) {
  if (uint32_t(call.data_type) >= kDataTypeCount)
    throw Error(Code::invalid_argument,
                "data type " + std::to_string(int(call.data_type)) + " does not exist",
                "use a value of starling_data_type");
  if (call.timeout_ns < 0)
    throw Error(Code::invalid_argument, "a timeout of " + std::to_string(call.timeout_ns) + " ns",
                "pass a positive number of nanoseconds, or 0 for the communicator's");
  auto check = [](uint64_t count, const char* name) {
    if (count <= kMostElements) return;
    throw Error(Code::invalid_argument,
                std::string(name) + " " + std::to_string(count) + " is more than there can be",
                "pass the number of elements (a negative number became a huge one?)");
  };
  check(call.count, "count");
  const size_t* tables[] = {call.input_counts, call.input_offsets, call.output_counts, call.output_offsets};
  const char* names[] = {"input count", "input offset", "output count", "output offset"};
  for (int t = 0; t < 4; ++t)
    for (uint32_t r = 0; tables[t] != nullptr && r < context.size; ++r) check(tables[t][r], names[t]);
}

void check_types(const starling_operation& call, const Shape& shape) {
  if (!shape.reduces) return;
  if (uint32_t(call.reduce_op) >= kReduceOpCount)
    throw Error(Code::invalid_argument,
                "reduction " + std::to_string(int(call.reduce_op)) + " does not exist",
                "use a value of starling_reduce_op");
  const auto type = DataType(call.data_type);
  const auto op = ReduceOp(call.reduce_op);
  const bool floating = type == DataType::kFloat16 || type == DataType::kBfloat16 ||
                        type == DataType::kFloat32 || type == DataType::kFloat64;
  const bool bits = op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
  const bool scaling = op == ReduceOp::kAvg || op == ReduceOp::kPremulSum;
  if ((floating && bits) || (type == DataType::kBool && scaling))
    throw Error(Code::unsupported,
                std::string(reduce_op_name(op)) + " of " + data_type_name(type) + " has no meaning",
                floating ? "use an integer type or bool" : "use sum, prod, min, max or a bit operation");
}

// Extents in bytes of a v-variant's buffer; offsets null: one part after the other.
std::vector<GroupExtent> extents(const Side& side, uint32_t size, uint64_t element) {
  std::vector<GroupExtent> groups(size);
  uint64_t next = 0;
  for (uint32_t r = 0; r < size; ++r) {
    groups[r].bytes = side.counts[r] * element;
    groups[r].offset_bytes = side.offsets ? side.offsets[r] * element : next;
    next += groups[r].bytes;
  }
  return groups;
}

uint64_t largest(const std::vector<GroupExtent>& groups) {
  uint64_t bytes = 0;
  for (const GroupExtent& group : groups) bytes = std::max(bytes, group.bytes);
  return bytes;
}

// Of the whole machine: the ranks share it, and other programs too.
uint64_t shared_cache_bytes() {
  static const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? uint64_t(bytes) : uint64_t(32) << 20;
}

// Both buffers of all ranks against what is shared by them and others (docs/design/0009).
uint16_t hints_of(const LoweringContext& context, const Shape& shape) {
  return 2 * context.size * shape.choice_bytes > shared_cache_bytes() / 2 ? kPastCaches : 0;
}

// A plan of the caller's own has no other form.
std::shared_ptr<const Plan> refuse_pull(std::shared_ptr<const Plan> plan) {
  if (plan->protocol() != Protocol::kPull) return plan;
  throw Error(
      Code::unsupported,
      "plan '" + plan->name() +
          "' pulls from peers' buffers, which takes ranks that are threads of one process and "
          "STARLING_PULL not 0, or ranks on GPUs of one host and STARLING_PULL=1; and a reduction other "
          "than premul_sum",
      "compile it with another protocol");
}

// How the blocks may read peers' buffers.
struct Pulls {
  bool by_address;
  bool at_all;
};

Pulls pulls_of(const LoweringContext& context, const starling_operation& call, const Shape& shape) {
  // A factor multiplies what is read from the input, and a puller does not know its peer's.
  const bool addresses = (context.one_process || context.opens) &&
                         !(shape.reduces && ReduceOp(call.reduce_op) == ReduceOp::kPremulSum);
  // Between processes a block copies out of a peer's memory, but cannot reduce from there.
  return {addresses, addresses || (context.readable && !shape.reduces)};
}

// The algorithm, or its form without what these pulls do not allow. Whoever puts has to address.
std::string_view allowed(std::string_view algorithm, const Pulls& pulls) {
  return (takes_addresses(algorithm) ? pulls.by_address : pulls.at_all) ? algorithm : without_pull(algorithm);
}

// The built-in algorithm, which is told of the hosts what it needs to know.
std::shared_ptr<const Plan> built_in(const LoweringContext& context, std::string_view algorithm,
                                     PlanRequest request) {
  if (const HostLayout* hosts = context.hosts) {
    request.node_count = hosts->node_count;
    request.order = is_of_neighbours(algorithm) ? hosts->ring_order : hosts->order;
  }
  return context.plans->get(algorithm, request);
}

// By the table that was measured for such groups; null: it has nothing for this operation.
std::shared_ptr<const Plan> measured_plan(const LoweringContext& context, DataType type, const Shape& shape,
                                          const PlanUse& use, PlanRequest request, Pulls pulls) {
  if (context.table == nullptr || use.is_empty) return nullptr;
  const TableRow* row = context.table->find(use, type_class(shape.reduces, type), shape.choice_bytes);
  if (row == nullptr) return nullptr;
  if (row->block_count == 0) {
    auto plan = context.table->plan(*row, use);
    if (plan == nullptr || (!pulls.by_address && plan->protocol() == Protocol::kPull)) return nullptr;
    return plan->header(0)->channel_count <= context.channel_limit ? plan : nullptr;
  }
  request.block_count = std::min(row->block_count, context.block_limit);
  auto plan = built_in(context, allowed(row->algorithm, pulls), request);
  return use.unequal_parts && plan->header(0)->uniform_only != 0 ? nullptr : plan;
}

// By the table, or else among the built-in ones.
std::shared_ptr<const Plan> choose_anew(const LoweringContext& context, DataType type, const Shape& shape,
                                        const PlanUse& use, Pulls pulls) {
  PlanRequest request{shape.collective, context.size, shape.root, 1, shape.in_place};
  if (auto measured = measured_plan(context, type, shape, use, request, pulls)) return measured;
  ChoiceRequest wanted{shape.collective,    context.size,   shape.choice_bytes, type,
                       context.block_limit, shape.in_place, context.on_gpu,     pulls.at_all,
                       pulls.by_address,    context.reads};
  wanted.pulls_if_faster = context.opens && context.opens_if_faster && !context.one_process;
  wanted.across_hosts = context.across_hosts;
  wanted.equal_hosts = context.hosts != nullptr && context.hosts->node_count != 0;
  const Choice choice = choose(wanted);
  request.block_count = choice.block_count;
  return built_in(context, choice.algorithm, request);
}

// The plan, and what else is known of such calls; null: nothing is kept.
struct ChosenHere {
  std::shared_ptr<const Plan> plan;
  Chosen* kept = nullptr;
};

ChosenHere choose_plan(const LoweringContext& context, const starling_operation& call, const Shape& shape) {
  const Pulls pulls = pulls_of(context, call, shape);
  const bool unequal = shape.input.counts != nullptr || shape.output.counts != nullptr;
  const PlanUse use{shape.collective, context.size, shape.root,
                    shape.in_place,   unequal,      shape.choice_bytes == 0};
  if (context.added != nullptr && !context.added->empty()) {
    if (auto added = call.algorithm != nullptr ? context.added->named(call.algorithm, use)
                                               : context.added->chosen(use, shape.choice_bytes))
      return {pulls.by_address ? added : refuse_pull(std::move(added))};
  }
  if (call.algorithm != nullptr)
    return {built_in(context, allowed(call.algorithm, pulls),
                     {shape.collective, context.size, shape.root, context.block_limit, shape.in_place})};
  const auto type = DataType(call.data_type);
  if (context.chosen == nullptr) return {choose_anew(context, type, shape, use, pulls)};
  const CallShape key{shape.collective,     context.rank, context.size,       shape.root,
                      shape.in_place,       unequal,      pulls.at_all,       pulls.by_address,
                      context.across_hosts, type,         shape.choice_bytes, context.block_limit,
                      context.channel_limit};
  Chosen* kept = context.chosen->find(key);
  if (kept == nullptr) kept = context.chosen->add(key, choose_anew(context, type, shape, use, pulls));
  // Tables differ from call to call, and a barrier's buffer is not the caller's.
  return {kept->plan, unequal || call.kind == STARLING_BARRIER ? nullptr : kept};
}

}  // namespace

void check_parts(const Plan& plan, const Shape& shape) {
  const bool tables = shape.input.counts != nullptr || shape.output.counts != nullptr;
  if (!tables || plan.header(0)->uniform_only == 0) return;
  throw Error(
      Code::unsupported,
      "plan " + plan.name() + " of " + collective_name(shape.collective) +
          " is right for equal parts only, and this call has counts of its own for each rank",
      "leave the counts out if all are equal, or use another plan (algorithm NULL: the library's choice)");
}

namespace {

void bind_buffers(const LoweringContext& context, const Shape& shape, uint64_t element, Lowered& lowered) {
  Operation& op = lowered.operation;
  const bool unequal = shape.input.counts != nullptr || shape.output.counts != nullptr;
  auto bind = [&](BufferKind kind, const Side& side, std::vector<GroupExtent>& groups) {
    BufferBinding& buffer = op.buffers[uint32_t(kind)];
    buffer.base = static_cast<std::byte*>(const_cast<void*>(side.base));
    uint64_t bytes = side.group_bytes;
    if (side.counts != nullptr) {
      groups = extents(side, context.size, element);
      bytes = largest(groups);
    } else if (unequal) {
      groups = {{0, side.group_bytes}};  // one group, this rank's own part, cut as the table cuts it
    }
    if (!groups.empty()) buffer.groups = groups.data();
    lowered.largest_group_bytes = std::max(lowered.largest_group_bytes, bytes);
  };
  bind(BufferKind::kInput, shape.input, lowered.input_groups);
  bind(BufferKind::kOutput, shape.output, lowered.output_groups);
  op.group_bytes = std::max(shape.input.group_bytes, shape.output.group_bytes);
}

void sign(const starling_operation& call, const Shape& shape, const LoweringContext& context,
          Lowered& lowered) {
  Signature& s = lowered.signature;
  s.collective = shape.collective;
  s.data_type = DataType(call.data_type);
  s.reduce_op = shape.reduces ? ReduceOp(call.reduce_op) : ReduceOp::kSum;
  s.varying = shape.varying;
  s.root = int32_t(shape.root);
  s.count = shape.varying ? 0 : call.count;
  s.plan_hash = lowered.plan->hash();
  if (!shape.varying) {
    const size_t* counts = shape.input.counts ? shape.input.counts : shape.output.counts;
    for (uint32_t r = 0; counts != nullptr && r < context.size; ++r)
      s.counts_hash = hash_combine(s.counts_hash, counts[r]);
    if (counts != nullptr) s.count = 0;  // a rank's own part; the table says it all
  }
  s.in_place = shape.in_place;
  // The factor of premul_sum is no part of it: ranks may scale by factors of their own.
}

// What messages name of the rank's buffers; others need not be there, or may be anything.
void find_offered(Lowered& lowered) {
  for (uint32_t rank = 0; rank < lowered.plan->rank_count(); ++rank)
    if (const PlanHeader* plan = lowered.plan->header(rank);
        lowered.own_buffer || (plan->scratch_chunks > 0 && plan->tile_scratch == 0))
      throw Error(Code::unsupported,
                  "plan '" + lowered.plan->name() +
                      "' pulls, but processes on GPUs read nothing but the caller's buffers of each other, "
                      "and write into "
                      "scratch only if each block has its own",
                  "compile it with another protocol, or set STARLING_PULL=0 on all ranks");
  const Operation& op = lowered.operation;
  const PlanView plan{op.plan};
  for (uint32_t n = 0; n < op.plan->instruction_count; ++n) {
    const Instruction& i = plan.instructions()[n];
    // A slice that peers read, or one that they write.
    const bool put = (i.flags & kPut) != 0;
    if (put ? i.opcode != Opcode::recv : !sends(i.opcode)) continue;
    const bool written = writes_destination(i.opcode);
    const BufferKind kind = written ? i.destination_buffer : i.source_buffer;
    if (kind == BufferKind::kScratch) continue;  // the lane's
    const BufferBinding& buffer = op.buffers[uint32_t(kind)];
    const BufferBinding& sizes = op.buffers[uint32_t(i.size_buffer)];
    Extent& offered = lowered.offered.of[kind == BufferKind::kOutput];
    for (uint32_t k = 0; k < i.chunks; ++k) {
      const uint64_t bytes = chunk_length(op, sizes, i.size_buffer, i.size_chunk + k);
      if (bytes == 0) continue;
      const uint64_t begin =
          chunk_begin(op, buffer, kind, (written ? i.destination_chunk : i.source_chunk) + k);
      offered.begin = offered.end == 0 ? begin : std::min(offered.begin, begin);
      offered.end = std::max(offered.end, begin + bytes);
    }
  }
}

// As find_offered(), unless it is known of an earlier call.
void offer(Chosen* kept, Lowered& lowered) {
  if (kept != nullptr && kept->offer) {
    lowered.offered = *kept->offer;
    return;
  }
  find_offered(lowered);
  if (kept != nullptr) kept->offer = lowered.offered;
}

}  // namespace

Lowered lower(const LoweringContext& context, const starling_operation& call) {
  check_numbers(context, call);
  const Shape shape = shape_function(call.kind)(context, call);
  check_types(call, shape);
  Lowered lowered;
  const ChosenHere chosen = choose_plan(context, call, shape);
  lowered.plan = chosen.plan;
  check_parts(*lowered.plan, shape);
  const PlanHeader* header = lowered.plan->header(context.rank);
  const uint64_t element = element_bytes(call);
  bind_buffers(context, shape, element, lowered);
  Operation& op = lowered.operation;
  op.plan = header;
  const uint64_t per_group = header->chunks_per_group;
  op.chunk_bytes = per_group == 1 ? lowered.largest_group_bytes
                                  : ((lowered.largest_group_bytes + per_group - 1) / per_group + 15) & ~15ull;
  op.data_type = DataType(call.data_type);
  op.reduce_op = shape.reduces ? ReduceOp(call.reduce_op) : ReduceOp::kSum;
  op.scalar = call.scalar;
  op.block_count = uint8_t(header->block_count);
  op.rank_count = uint16_t(context.size);
  op.hints = hints_of(context, shape);
  sign(call, shape, context, lowered);
  lowered.size_class_bytes = shape.varying ? uint64_t(1) << 18 : shape.choice_bytes;
  if (shape.varying) {
    lowered.traffic.resize(context.size);
    for (uint32_t r = 0; r < context.size; ++r)
      lowered.traffic[r] = {shape.input.counts[r] * element, shape.output.counts[r] * element};
  }
  lowered.own_buffer = call.kind == STARLING_BARRIER;
  lowered.opens = context.opens && !context.one_process && lowered.plan->protocol() == Protocol::kPull;
  if (lowered.opens) offer(chosen.kept, lowered);
  lowered.count = call.count;
  lowered.reduces = shape.reduces;
  return lowered;
}

std::string text_of(const Lowered& lowered) {
  const Operation& op = lowered.operation;
  const std::string name = collective_name(lowered.signature.collective);
  if (lowered.own_buffer) return name;
  return name + " of " + std::to_string(lowered.count) + " " + data_type_name(op.data_type) +
         (lowered.reduces ? std::string(", ") + reduce_op_name(op.reduce_op) : "");
}

uint64_t bytes_of(const Lowered& lowered) {
  if (!lowered.signature.varying) return lowered.size_class_bytes;
  uint64_t bytes = 0;
  for (const Traffic& traffic : lowered.traffic) bytes += traffic.sent_bytes;
  return bytes;
}

uint64_t element_bytes(const starling_operation& call) {
  return call.kind == STARLING_BARRIER ? 1 : data_type_bytes(DataType(call.data_type));
}

uint64_t message_bytes(const starling_operation& call) { return call.count * element_bytes(call); }

uint64_t sum_of_counts(const size_t* counts, uint32_t size) {
  uint64_t sum = 0;
  for (uint32_t r = 0; r < size; ++r) sum += counts[r];
  return sum;
}

uint64_t end_of_parts(const size_t* counts, const size_t* offsets, uint32_t size) {
  if (offsets == nullptr) return sum_of_counts(counts, size);
  uint64_t end = 0;
  for (uint32_t r = 0; r < size; ++r)
    if (counts[r] != 0) end = std::max<uint64_t>(end, offsets[r] + counts[r]);
  return end;
}

void refuse_overlap(const Shape& shape, uint64_t input_bytes, uint64_t output_bytes) {
  if (shape.in_place || input_bytes == 0 || output_bytes == 0) return;
  const auto input = uintptr_t(shape.input.base);
  const auto output = uintptr_t(shape.output.base);
  if (input >= output + output_bytes || output >= input + input_bytes) return;
  throw Error(
      Code::invalid_argument,
      std::string(collective_name(shape.collective)) +
          ": input and output overlap, and are not in place: results would be read as inputs",
      "pass buffers that do not overlap; in place is the same address, in all_gather and reduce_scatter "
      "that of this rank's own part");
}

uint32_t checked_root(const LoweringContext& context, const starling_operation& call) {
  if (call.root < 0 || uint32_t(call.root) >= context.size)
    throw Error(Code::invalid_argument,
                "root " + std::to_string(call.root) + " is not in the group of " +
                    std::to_string(context.size) + " ranks",
                "pass a rank of this communicator");
  return uint32_t(call.root);
}

void require_buffer(const void* buffer, uint64_t bytes, const char* name) {
  if (buffer == nullptr && bytes != 0)
    throw Error(Code::invalid_argument, std::string(name) + " is a null pointer",
                "pass a buffer of " + std::to_string(bytes) + " bytes");
}

const char* data_type_name(DataType type) {
  static constexpr const char* kNames[] = {"int8",    "uint8",   "int16",  "uint16",  "int32",
                                           "uint32",  "int64",   "uint64", "float16", "bfloat16",
                                           "float32", "float64", "bool"};
  return uint32_t(type) < kDataTypeCount ? kNames[uint32_t(type)] : "?";
}

const char* reduce_op_name(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum",        "prod", "min", "max", "avg",
                                           "premul_sum", "band", "bor", "bxor"};
  return uint32_t(op) < kReduceOpCount ? kNames[uint32_t(op)] : "?";
}

const char* collective_name(Collective collective) {
  static constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                           "reduce",     "all_to_all", "gather",         "scatter",
                                           "send/recv",  "barrier",    "custom"};
  return uint32_t(collective) < kCollectiveCount ? kNames[uint32_t(collective)] : "?";
}

}  // namespace starling
