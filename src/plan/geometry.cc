#include "plan/geometry.h"

#include <array>

#include "base/assert.h"

namespace starling {
namespace {

// In the order of the enum's values.
constexpr std::array<CollectiveTraits, kCollectiveCount> kTraits{{
    {"all_reduce", false, true, false, false},
    {"all_gather", false, false, false, true},
    {"reduce_scatter", false, true, true, false},
    {"broadcast", true, false, false, false},
    {"reduce", true, true, false, false},
    {"all_to_all", false, false, true, true},
    {"gather", true, false, false, true},
    {"scatter", true, false, true, false},
    {"send_recv", false, false, false, false},
    {"barrier", false, true, false, false},  // an all_reduce that nobody reads
    {"custom", false, true, false, false},   // anything: the plan says what
}};

constexpr std::array<std::string_view, kProtocolCount> kProtocols{"slots", "packets", "pull"};

}  // namespace

const CollectiveTraits& traits_of(Collective collective) {
  STARLING_ASSERT(static_cast<std::uint32_t>(collective) < kCollectiveCount, "no such collective");
  return kTraits[static_cast<std::uint32_t>(collective)];
}

std::optional<Collective> collective_named(std::string_view name) {
  for (std::uint32_t i = 0; i < kCollectiveCount; ++i) {
    if (kTraits[i].name == name) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

std::string_view name_of(Protocol protocol) { return kProtocols[static_cast<std::uint32_t>(protocol)]; }

std::optional<Protocol> protocol_named(std::string_view name) {
  for (std::uint32_t i = 0; i < kProtocolCount; ++i) {
    if (kProtocols[i] == name) return static_cast<Protocol>(i);
  }
  return std::nullopt;
}

std::string_view name_of(BufferKind buffer) {
  switch (buffer) {
    case BufferKind::kNone: return "none";
    case BufferKind::kInput: return "input";
    case BufferKind::kOutput: return "output";
    case BufferKind::kScratch: return "scratch";
  }
  return "unknown";
}

Geometry Geometry::standard(Collective collective, std::uint32_t rank_count, std::uint32_t root,
                            bool in_place, std::uint32_t chunks_per_group) {
  const CollectiveTraits& traits = traits_of(collective);
  Geometry geometry;
  geometry.collective = collective;
  geometry.rank_count = rank_count;
  geometry.root = root;
  geometry.in_place = in_place;
  geometry.chunks_per_group = chunks_per_group;
  geometry.input_groups = traits.input_parts ? rank_count : 1;
  geometry.output_groups = traits.output_parts ? rank_count : 1;
  return geometry;
}

Geometry Geometry::of(const PlanHeader& header) {
  Geometry geometry;
  geometry.collective = header.collective;
  geometry.rank_count = header.rank_count;
  geometry.root = header.root;
  geometry.in_place = header.in_place != 0;
  geometry.chunks_per_group = header.chunks_per_group;
  geometry.input_groups = header.input_groups;
  geometry.output_groups = header.output_groups;
  return geometry;
}

std::uint64_t Geometry::chunks(BufferKind buffer) const {
  if (buffer == BufferKind::kInput) return std::uint64_t{input_groups} * chunks_per_group;
  if (buffer == BufferKind::kOutput) return std::uint64_t{output_groups} * chunks_per_group;
  return 0;
}

bool Geometry::exists(BufferKind buffer, std::uint32_t rank) const {
  const bool is_root = rank == root;
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kScatter: return buffer != BufferKind::kInput || is_root;
    case Collective::kReduce:
    case Collective::kGather: return buffer != BufferKind::kOutput || is_root;
    case Collective::kSendRecv:
      if (buffer == BufferKind::kInput) return rank == 0;
      return buffer != BufferKind::kOutput || rank + 1 == rank_count;
    default: return true;
  }
}

Geometry::Overlap Geometry::overlap(std::uint32_t rank) const {
  const std::uint64_t own = std::uint64_t{rank} * chunks_per_group;
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kGather: return {own, 0};
    case Collective::kReduceScatter:
    case Collective::kScatter: return {0, own};
    default: return {0, 0};
  }
}

LengthClass length_class(const Geometry& geometry, Parts parts, std::uint32_t rank, BufferKind buffer,
                         std::uint32_t chunk) {
  const std::uint32_t group = chunk / geometry.chunks_per_group;
  LengthClass length{0, chunk % geometry.chunks_per_group};
  if (parts == Parts::kEqual) return length;
  const bool is_input = buffer == BufferKind::kInput;
  switch (geometry.collective) {
    case Collective::kAllGather:
    case Collective::kGather: length.part = is_input ? rank : group; break;
    case Collective::kReduceScatter:
    case Collective::kScatter: length.part = is_input ? group : rank; break;
    case Collective::kAllToAll:
      length.part = is_input ? std::uint64_t{rank} * geometry.rank_count + group
                             : std::uint64_t{group} * geometry.rank_count + rank;
      break;
    default: break;
  }
  return length;
}

}  // namespace starling
