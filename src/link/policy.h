// Which of the living paths the next epoch uses. Paths are numbered in order of preference.
#pragma once
#include "link/flow.h"

namespace starling::link {

inline PathSet choose_paths(Policy policy, PathSet living) {
  if (policy == Policy::kStriping) return living;
  return PathSet(living & -living);  // the most preferred one
}

}  // namespace starling::link
