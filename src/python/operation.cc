#include "python/operation.h"

#include <algorithm>

#include "python/bindings.h"
#include "python/buffer.h"

namespace nb = nanobind;

namespace starling::python {
namespace {

// What a buffer holds on this rank: nothing, one part, or a part of every rank.
enum class Holds { kNothing, kPart, kEvery };

struct Layout {
  Holds input;
  Holds output;
};

Layout layout_of(starling_collective kind, bool is_root) {
  const Holds every_at_root = is_root ? Holds::kEvery : Holds::kNothing;
  const Holds part_at_root = is_root ? Holds::kPart : Holds::kNothing;
  switch (kind) {
    case STARLING_ALL_REDUCE: return {Holds::kPart, Holds::kPart};
    case STARLING_ALL_GATHER: return {Holds::kPart, Holds::kEvery};
    case STARLING_REDUCE_SCATTER: return {Holds::kEvery, Holds::kPart};
    case STARLING_BROADCAST: return {part_at_root, Holds::kPart};
    case STARLING_REDUCE: return {Holds::kPart, part_at_root};
    case STARLING_ALL_TO_ALL: return {Holds::kEvery, Holds::kEvery};
    case STARLING_GATHER: return {Holds::kPart, every_at_root};
    case STARLING_SCATTER: return {every_at_root, Holds::kPart};
    case STARLING_SEND: return {Holds::kPart, Holds::kNothing};
    case STARLING_RECV: return {Holds::kNothing, Holds::kPart};
    case STARLING_BARRIER: return {Holds::kNothing, Holds::kNothing};
    case STARLING_CUSTOM: break;
  }
  raise(STARLING_INVALID_ARGUMENT, "no such collective");
}

[[noreturn]] void refuse(const std::string& text) { raise(STARLING_INVALID_ARGUMENT, text.c_str()); }

std::string elements(size_t count) { return std::to_string(count) + " elements"; }

// Counts and offsets of one side of a v-variant.
struct Table {
  const std::vector<size_t>* counts;
  const std::vector<size_t>* offsets;

  explicit operator bool() const { return counts != nullptr; }
  size_t offset(uint32_t rank) const {
    if (offsets != nullptr) return (*offsets)[rank];
    size_t sum = 0;
    for (uint32_t r = 0; r < rank; ++r) sum += (*counts)[r];
    return sum;
  }
  size_t end() const {
    size_t end = 0;
    for (uint32_t r = 0; r < counts->size(); ++r) end = std::max(end, offset(r) + (*counts)[r]);
    return end;
  }
};

Table table_of(const std::optional<std::vector<size_t>>& counts,
               const std::optional<std::vector<size_t>>& offsets, uint32_t size, const char* side) {
  if (offsets && !counts) refuse(std::string(side) + "_offsets without " + side + "_counts; pass both");
  for (const auto* list : {&counts, &offsets})
    if (*list && (*list)->size() != size)
      refuse(std::string(side) + " counts and offsets need one entry a rank: " + std::to_string(size) +
             ", not " + std::to_string((*list)->size()));
  return {counts ? &*counts : nullptr, offsets ? &*offsets : nullptr};
}

// Elements of one part, from whichever buffer is there.
size_t part_count(const Layout& layout, const Buffer& input, const Buffer& output, uint32_t size) {
  if (layout.input == Holds::kPart && input.data_type) return input.count;
  if (layout.output == Holds::kPart && output.data_type) return output.count;
  const bool from_input = layout.input == Holds::kEvery && input.data_type.has_value();
  const size_t every = from_input ? input.count : output.count;
  if (every % size != 0)
    refuse(std::string(from_input ? "input" : "output") + " of " + elements(every) + " does not divide by " +
           std::to_string(size) + " ranks; pass counts, or a buffer that divides");
  return every / size;
}

void check_length(const char* name, Holds holds, const Buffer& buffer, size_t part, const Table& table,
                  uint32_t size) {
  if (holds == Holds::kNothing || !buffer.data_type) return;
  if (holds == Holds::kEvery && table) {
    if (buffer.count < table.end())
      refuse(std::string(name) + " has " + elements(buffer.count) + ", its counts and offsets need " +
             std::to_string(table.end()));
    return;
  }
  const size_t needed = holds == Holds::kPart ? part : part * size;
  if (buffer.count != needed)
    refuse(std::string(name) + " has " + elements(buffer.count) + ", this call needs " +
           std::to_string(needed));
}

std::optional<starling_data_type> data_type_of(const Call& call, const Buffer& input, const Buffer& output) {
  auto own = input.data_type ? input.data_type : output.data_type;
  if (input.data_type && output.data_type && input.data_type != output.data_type)
    refuse("input and output have different data types; pass buffers of one type");
  if (!call.data_type) return own;
  const starling_data_type named = data_type_named(call.data_type->c_str());
  if (own && bytes_of(*own) != bytes_of(named))
    refuse("dtype='" + *call.data_type + "' has elements of " + std::to_string(bytes_of(named)) +
           " bytes, the buffers of " + std::to_string(bytes_of(*own)) +
           "; view the buffer as a type of that size");
  return named;
}

void* part_of(void* whole, const Table& table, uint32_t rank, size_t part, starling_data_type type) {
  const size_t offset = table ? table.offset(rank) : part * rank;
  return static_cast<char*>(whole) + offset * bytes_of(type);
}

const char* text_of(const std::optional<std::string>& text) { return text ? text->c_str() : nullptr; }

}  // namespace

starling_operation operation_of(const Call& call, uint32_t rank, uint32_t size, bool on_gpu) {
  const auto kind = starling_collective(call.kind);
  const bool is_root = call.root >= 0 && uint32_t(call.root) == rank;
  const Layout layout = layout_of(kind, is_root);
  // In place the one buffer is written as well; a broadcast's root only reads it.
  const bool writes_input = call.output.is_none() && layout.input != Holds::kNothing &&
                            layout.output != Holds::kNothing && kind != STARLING_BROADCAST;
  Buffer input = buffer_of(call.input, "input", writes_input ? Access::kWrite : Access::kRead, on_gpu);
  Buffer output = buffer_of(call.output, "output", Access::kWrite, on_gpu);
  if (layout.input == Holds::kNothing) input = {};
  if (layout.output == Holds::kNothing) output = {};
  if (layout.input != Holds::kNothing && layout.output != Holds::kNothing && !input.data && !output.data &&
      call.input.is_none() && call.output.is_none())
    refuse("neither input nor output given; pass a buffer");
  if (layout.input != Holds::kNothing && layout.output == Holds::kNothing && call.input.is_none())
    refuse("input is None; this rank has data to give: pass a buffer");
  if (layout.input == Holds::kNothing && layout.output != Holds::kNothing && call.output.is_none())
    refuse("output is None; this rank receives data: pass a buffer");
  // One part has no room for all of them.
  if (layout.input == Holds::kPart && layout.output == Holds::kEvery && call.output.is_none())
    refuse("output is None; it holds a part of every rank: pass a buffer for all parts");
  if (layout.input == Holds::kEvery && layout.output == Holds::kPart && call.input.is_none())
    refuse("input is None; it holds a part for every rank: pass a buffer of all parts");

  const Table input_table = table_of(call.input_counts, call.input_offsets, size, "input");
  const Table output_table = table_of(call.output_counts, call.output_offsets, size, "output");
  starling_operation op{};
  op.struct_bytes = sizeof op;
  op.kind = kind;
  const auto type = data_type_of(call, input, output);
  if (!type && kind != STARLING_BARRIER) {
    if (!call.input.is_none() || !call.output.is_none())
      refuse(
          "the buffers' data type is not supported; use int8 to uint64, float16, bfloat16, float32, "
          "float64 or bool");
  }
  op.data_type = type.value_or(STARLING_UINT8);
  const Table& varying = input_table ? input_table : output_table;
  op.count = varying ? (*varying.counts)[rank] : part_count(layout, input, output, size);
  check_length("input", layout.input, input, op.count, input_table, size);
  check_length("output", layout.output, output, op.count, output_table, size);

  op.input = input.data;
  op.output = output.data;
  // A side that is not given lies inside the other one: in place.
  if (call.output.is_none() && layout.output != Holds::kNothing)
    op.output = layout.output == layout.input
                    ? input.data
                    : part_of(input.data, input_table, rank, op.count, op.data_type);
  if (call.input.is_none() && layout.input != Holds::kNothing)
    op.input = layout.output == layout.input
                   ? output.data
                   : part_of(output.data, output_table, rank, op.count, op.data_type);
  op.reduce_op = starling_reduce_op(call.reduce_op);
  op.scalar = call.scalar;
  op.root = call.root;
  op.peer = call.peer;
  op.tag = call.tag;
  op.lane = text_of(call.lane);
  op.priority = call.priority;
  op.timeout_ns = call.timeout_ns;
  op.algorithm = text_of(call.algorithm);
  op.start = starling_start(call.start);
  op.stream = reinterpret_cast<void*>(call.stream);
  op.input_counts = input_table ? input_table.counts->data() : nullptr;
  op.input_offsets = input_table.offsets ? input_table.offsets->data() : nullptr;
  op.output_counts = output_table ? output_table.counts->data() : nullptr;
  op.output_offsets = output_table.offsets ? output_table.offsets->data() : nullptr;
  return op;
}

starling_operation custom_operation_of(const Call& call, uint32_t input_groups, uint32_t output_groups,
                                       bool on_gpu) {
  const bool in_place = call.output.is_none();
  const Buffer input = buffer_of(call.input, "input", in_place ? Access::kWrite : Access::kRead, on_gpu);
  const Buffer output = in_place ? input : buffer_of(call.output, "output", Access::kWrite, on_gpu);
  if (call.input.is_none()) refuse("input is None; pass a buffer");
  const auto type = data_type_of(call, input, output);
  if (!type) refuse("the buffers' data type is not supported");
  const size_t count = input.count / input_groups;
  if (input.count != count * input_groups || output.count != count * output_groups)
    refuse("input has " + elements(input.count) + " and output " + elements(output.count) +
           "; the plan has " + std::to_string(input_groups) + " and " + std::to_string(output_groups) +
           " groups, all equally long");
  starling_operation op{};
  op.struct_bytes = sizeof op;
  op.kind = STARLING_CUSTOM;
  op.data_type = *type;
  op.count = count;
  op.input = input.data;
  op.output = output.data;
  op.reduce_op = starling_reduce_op(call.reduce_op);
  op.scalar = call.scalar;
  op.lane = text_of(call.lane);
  op.priority = call.priority;
  op.timeout_ns = call.timeout_ns;
  op.algorithm = text_of(call.algorithm);
  op.start = starling_start(call.start);
  op.stream = reinterpret_cast<void*>(call.stream);
  return op;
}

}  // namespace starling::python
