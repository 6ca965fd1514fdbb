// Writes plans. Generators, the text parser and the compiler say what each block does, step by step; build()
// lays out the bytes, has them verified, and fills in what follows from them (slots, channels, hash).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/geometry.h"
#include "plan/plan.h"

namespace starling {

inline constexpr std::uint32_t kMaxPlanRanks = 4096;
inline constexpr std::uint32_t kMaxPlanBlocks = 64;  // blocks that are resident together on a rank
inline constexpr std::uint32_t kMaxPlanChannels = 256;

struct Operand {
  BufferKind buffer = BufferKind::kNone;
  std::uint32_t chunk = 0;

  friend bool operator==(const Operand&, const Operand&) = default;
};
constexpr Operand input(std::uint32_t chunk) { return {BufferKind::kInput, chunk}; }
constexpr Operand output(std::uint32_t chunk) { return {BufferKind::kOutput, chunk}; }
constexpr Operand scratch(std::uint32_t chunk) { return {BufferKind::kScratch, chunk}; }

// One instruction as people say it.
struct Step {
  Opcode opcode = Opcode::nop;
  Operand source{};
  Operand destination{};
  std::vector<Connection> receives{};  // in order of reduction
  std::vector<Connection> sends{};
  std::uint32_t local_position = 0;    // how many of `receives` come before the source
  std::uint32_t chunks = 1;
  Operand size{};  // none: the destination's, else the source's, whichever is not scratch
  bool final = false;
  bool put = false;  // kPut: of recv what it receives, else what it sends
  std::vector<Dependency> after{};
};

class PlanBuilder {
 public:
  PlanBuilder(std::string name, const Geometry& geometry);

  // Appends to a block, making it and those before it if need be; gives the instruction's index in the block.
  std::uint32_t add(std::uint32_t rank, std::uint32_t block, Step step);
  void set_scratch(std::uint32_t rank, std::uint32_t chunks);
  void set_protocol(Protocol protocol) { protocol_ = protocol; }
  // PlanHeader::tile_bytes.
  void set_tile(std::uint32_t bytes) { tile_bytes_ = bytes; }
  // Of a custom collective.
  void set_postcondition(Postcondition postcondition) { postcondition_ = std::move(postcondition); }
  // What was added for rank p is that of rank order[p], its peers, parts and the root likewise. Once, before
  // build(); no instruction may span the parts of several ranks. Throws Error(invalid_argument) if `order` is
  // no permutation.
  void rename_ranks(const std::vector<std::uint16_t>& order);
  // At least so many blocks, also if they stay empty.
  void set_blocks(std::uint32_t rank, std::uint32_t blocks);

  // Throws Error(invalid_argument) with the verifier's first violation, or if a fan-in or fan-out lists
  // connections in an order that no table of the block can hold.
  Plan build() const;

 private:
  struct Block {
    std::vector<Step> steps;
  };
  struct Rank {
    std::vector<Block> blocks;
    std::uint32_t scratch_chunks = 0;
  };

  std::vector<std::uint64_t> lay_out(std::uint32_t rank) const;

  std::string name_;
  Geometry geometry_;
  Protocol protocol_ = Protocol::kSlots;
  std::uint32_t tile_bytes_ = 0;
  std::vector<Rank> ranks_;
  std::optional<Postcondition> postcondition_;
};

}  // namespace starling
