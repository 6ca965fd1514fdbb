// FULL_TESTS=1 in the environment: all seeds of tests that otherwise take a fixed part of them, the first
// quarter.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace starling {

inline bool full_tests() {
  const char* wanted = std::getenv("FULL_TESTS");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

inline uint64_t part_of(uint64_t seeds) { return full_tests() ? seeds : (seeds + 3) / 4; }

}  // namespace starling
