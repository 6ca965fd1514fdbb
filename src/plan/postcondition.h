// What a collective of the user's own must leave in its outputs: the plan carries it, so that whoever loads
// the plan can prove it. Standard collectives have theirs in the verifier (plan/verify_result.cc).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace starling {

inline constexpr std::uint32_t kEveryRank = 0xffffffff;

// An input chunk; with kEveryRank that of each rank, once.
struct Term {
  std::uint32_t rank = 0;
  std::uint32_t chunk = 0;

  friend bool operator==(const Term&, const Term&) = default;
};

// At the end, output chunk `chunk` + k of the rank holds the reduction of the terms, each k chunks further,
// for k from 0 to `chunks` - 1.
struct Holding {
  std::uint32_t rank = 0;
  std::uint32_t chunk = 0;
  std::uint32_t chunks = 1;
  std::vector<Term> terms{};

  friend bool operator==(const Holding&, const Holding&) = default;
};

// Output chunks that no entry names may hold anything.
using Postcondition = std::vector<Holding>;

}  // namespace starling
