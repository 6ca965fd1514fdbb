// Plans in text form, and what the verifier says of them.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "plan/text.h"

namespace starling {

struct PlanShape {
  const char* collective = "all_reduce";
  int ranks = 2;
  int root = 0;
  int in_place = 0;
  int chunks_per_group = 1;
  const char* groups = "1 1";
};

inline std::string text_of(const PlanShape& shape, const std::string& body) {
  return "starling-plan 1\nname test\ncollective " + std::string(shape.collective) + "\nranks " +
         std::to_string(shape.ranks) + "\nroot " + std::to_string(shape.root) + "\nin_place " +
         std::to_string(shape.in_place) + "\nchunks_per_group " + std::to_string(shape.chunks_per_group) +
         "\ngroups " + shape.groups + "\n" + body;
}

// The whole message of the refusal, "" if there was none.
inline std::string refusal_of(const std::string& text) {
  try {
    plan_from_text(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
inline std::string refusal(const PlanShape& shape, const std::string& body) {
  return refusal_of(text_of(shape, body));
}

#define EXPECT_REFUSED(rule, words, shape, body)                                                 \
  do {                                                                                           \
    const std::string message = refusal(shape, body);                                            \
    EXPECT_NE(message.find(std::string("(rule ") + (rule) + ")"), std::string::npos) << message; \
    EXPECT_NE(message.find(words), std::string::npos) << message;                                \
  } while (false)

}  // namespace starling
