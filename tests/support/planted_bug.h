// Most planted bugs share a copy of the sources with others (switched.py): this says which one is there.
#pragma once
#include <type_traits>

namespace starling {

inline int planted_bug = -1;  // of the process: set before a simulation begins

constexpr bool planted(int bug) { return !std::is_constant_evaluated() && planted_bug == bug; }

}  // namespace starling
