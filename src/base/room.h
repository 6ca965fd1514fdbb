// Memory in advance, where what was begun must not end for want of it.
#pragma once
#include <vector>

namespace starling {

// The next push_back() needs no memory.
template <class T>
void for_one_more(std::vector<T>& all) {
  if (all.size() == all.capacity()) all.reserve(2 * all.size() + 8);
}

}  // namespace starling
