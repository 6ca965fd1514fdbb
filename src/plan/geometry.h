// What a collective means for buffers: how many groups they have, which ranks have them, where they overlap
// when the call is in place, and which chunks are equally long. Generators, verifier and text form share
// these.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "wire/plan.h"
#include "wire/types.h"

namespace starling {

struct CollectiveTraits {
  std::string_view name;
  bool rooted;
  bool reduces;        // outputs are reductions over ranks: avg and premul_sum apply
  bool input_parts;    // the input buffer has one group per rank
  bool output_parts;   // likewise the output
};

const CollectiveTraits& traits_of(Collective collective);
std::optional<Collective> collective_named(std::string_view name);
std::string_view name_of(BufferKind buffer);
std::string_view name_of(Protocol protocol);
std::optional<Protocol> protocol_named(std::string_view name);

// The fields of PlanHeader that describe buffers, as far as every rank shares them.
struct Geometry {
  Collective collective = Collective::kAllReduce;
  std::uint32_t rank_count = 1;
  std::uint32_t root = 0;
  bool in_place = false;
  std::uint32_t chunks_per_group = 1;
  std::uint32_t input_groups = 1;
  std::uint32_t output_groups = 1;

  static Geometry standard(Collective collective, std::uint32_t rank_count, std::uint32_t root, bool in_place,
                           std::uint32_t chunks_per_group);
  static Geometry of(const PlanHeader& header);

  // Chunks that a buffer has; scratch is not part of the geometry.
  std::uint64_t chunks(BufferKind buffer) const;

  // Whether the caller's buffer exists on the rank: a reduce has its output at the root alone, and so on.
  // Sizes may be named after a buffer that does not exist here.
  bool exists(BufferKind buffer, std::uint32_t rank) const;

  // In place, chunk c of the input is chunk c + input_offset() of the output, or the other way round.
  struct Overlap {
    std::uint64_t input_first = 0;   // where input chunk 0 lies in the larger buffer
    std::uint64_t output_first = 0;  // where output chunk 0 lies
  };
  Overlap overlap(std::uint32_t rank) const;
};

// Chunks of one class are equally long whatever the count; inside one part a later chunk is never longer than
// an earlier one (the last ones take what is left, or nothing).
struct LengthClass {
  std::uint64_t part = 0;    // which rank's part; all 0 where parts are known to be equally long
  std::uint32_t inside = 0;  // position in the part

  friend bool operator==(const LengthClass&, const LengthClass&) = default;
  // Not empty whenever a chunk of class `other` is not empty.
  bool covers(const LengthClass& other) const { return part == other.part && inside <= other.inside; }
};

enum class Parts { kEqual, kUnequal };  // kUnequal: the v-variants

LengthClass length_class(const Geometry& geometry, Parts parts, std::uint32_t rank, BufferKind buffer,
                         std::uint32_t chunk);

}  // namespace starling
