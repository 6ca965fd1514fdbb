// The text form of plans: one line an instruction, for people, for tools and for Python. docs/WIRE.md has the
// grammar.
//
//   starling-plan 1
//   name ring
//   collective all_reduce
//   ...
//   rank 0 scratch 0
//     block 0
//       0 send input[0] -> >1.0 size input[0]
//       1 recv_reduce_copy_send <1.0 input[1] -> output[1] >1.0 size input[1] final
#pragma once
#include <string>
#include <string_view>

#include "plan/plan.h"

namespace starling {

// Version 2 says what a custom collective's outputs must hold; plans that do not are written as version 1.
inline constexpr int kPlanTextVersion = 2;

std::string to_text(const Plan& plan);

// Throws Error(invalid_argument) with line and column for what is no plan text, and with the verifier's
// violation for a plan that is wrong.
Plan plan_from_text(std::string_view text);

}  // namespace starling
