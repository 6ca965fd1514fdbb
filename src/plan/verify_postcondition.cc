// Whether a postcondition can be meant at all, before anything is compared with it.
#include <string>
#include <vector>

#include "plan/verify_stages.h"

namespace starling::stages {
namespace {

// Empty: the entry names chunks that are there.
std::string fault_of(const Geometry& geometry, const Holding& holding) {
  const std::string place = operand_name(BufferKind::kOutput, holding.chunk, holding.chunks);
  if (holding.rank >= geometry.rank_count) return "names " + place + " of a rank that is not there";
  if (holding.chunks == 0 ||
      std::uint64_t{holding.chunk} + holding.chunks > geometry.chunks(BufferKind::kOutput))
    return "names " + place + ", but the output has " + std::to_string(geometry.chunks(BufferKind::kOutput)) +
           " chunks";
  if (holding.terms.empty()) return "names no input chunk for " + place;
  for (const Term& term : holding.terms) {
    if (term.rank != kEveryRank && term.rank >= geometry.rank_count)
      return "wants " + place + " to hold a chunk of rank " + std::to_string(term.rank) + " of " +
             std::to_string(geometry.rank_count);
    if (std::uint64_t{term.chunk} + holding.chunks > geometry.chunks(BufferKind::kInput))
      return "wants " + place + " to hold " + operand_name(BufferKind::kInput, term.chunk, holding.chunks) +
             ", but the input has " + std::to_string(geometry.chunks(BufferKind::kInput)) + " chunks";
  }
  return "";
}

}  // namespace

void check_postcondition(const Geometry& geometry, const Postcondition& postcondition,
                         std::vector<Violation>& violations) {
  const auto report = [&](std::uint32_t rank, std::string text) {
    if (violations.size() < kMaxViolations)
      violations.push_back({.rule = "postcondition_names", .rank = rank, .text = std::move(text)});
  };
  if (geometry.collective != Collective::kCustom) {
    report(kNowhere, "a postcondition of its own, but the collective " +
                         std::string(traits_of(geometry.collective).name) + " has one already");
    return;
  }
  const std::uint64_t chunks = geometry.chunks(BufferKind::kOutput);
  std::vector<bool> named(geometry.rank_count * chunks);
  for (const Holding& holding : postcondition) {
    if (std::string fault = fault_of(geometry, holding); !fault.empty()) {
      report(holding.rank, "the postcondition " + fault);
      continue;
    }
    for (std::uint32_t k = 0; k < holding.chunks; ++k) {
      auto is_named = named[holding.rank * chunks + holding.chunk + k];
      if (is_named)
        report(holding.rank, "the postcondition names " +
                                 operand_name(BufferKind::kOutput, holding.chunk + k, 1) + " twice");
      is_named = true;
    }
  }
}

}  // namespace starling::stages
