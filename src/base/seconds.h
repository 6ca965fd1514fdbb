// Times in messages.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

namespace starling {

// "0.25 s", "9.6 s", "1800 s".
inline std::string seconds(uint64_t ns) {
  char text[32];
  const double value = double(ns) * 1e-9;
  std::snprintf(text, sizeof text, value < 100 ? "%.3g s" : "%.0f s", value);
  return text;
}

}  // namespace starling
