// Judges a plan before it runs: structure, deadlock, races, and that it computes its collective.
//
//   layout      headers and tables lie inside the bytes that were given        (verify_layout.cc)
//   structure   operands and connections are such that the interpreter is safe (verify_structure.cc)
//   deadlock    the least number of slots with which every block finishes      (verify_deadlock.cc)
//   races       blocks of a rank that touch one chunk are ordered              (verify_races.cc)
//   result      every output chunk is the right reduction of the right inputs  (verify_result.cc)
//
// Each stage trusts the ones before it. The first stage that finds violations ends the judgement.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/postcondition.h"
#include "wire/plan.h"

namespace starling {

inline constexpr std::uint32_t kNowhere = 0xffffffff;

struct Violation {
  std::string rule;  // short name, for tests and tools
  std::uint32_t rank = kNowhere;
  std::uint32_t block = kNowhere;
  std::uint32_t instruction = kNowhere;
  std::string text;  // what is wrong, with the values

  std::string describe() const;
};

// What follows from a plan's instructions, and is kept in the headers.
struct PlanFacts {
  std::uint16_t channel_count = 0;
  std::uint16_t minimum_slots = 0;
  std::uint16_t largest_chunks = 1;
  bool canonical = false;
  std::uint8_t tile_scratch = 0;
  bool uniform_only = false;
};

struct Verdict {
  std::vector<Violation> violations;  // at most kMaxViolations
  PlanFacts facts;                    // meaningful if there are none

  bool right() const { return violations.empty(); }
};

inline constexpr std::size_t kMaxViolations = 16;

// One part of bytes that nobody has looked at yet: safe for any bytes.
std::vector<Violation> verify_layout(std::span<const std::byte> part);

// All ranks of a plan whose layout is right. The facts that the headers claim are not compared; see
// Plan::from_parts. postcondition: of a custom collective; NULL: its outputs may hold anything.
Verdict verify(std::span<const PlanView> ranks, const Postcondition* postcondition = nullptr);

}  // namespace starling
