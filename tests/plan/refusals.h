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

// Of two ranks each sends all its messages before it receives one: every one of them needs a slot.
inline std::string exchange(int messages) {
  std::string body;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string peer = std::to_string(1 - rank);
    body += "rank " + std::to_string(rank) + " scratch 0\nblock 0\n";
    int index = 0;
    for (int m = 0; m < messages; ++m) {
      const std::string chunk = "[" + std::to_string((1 - rank) * messages + m) + "]";
      body +=
          std::to_string(index++) + " send input" + chunk + " -> >" + peer + ".0 size input" + chunk + "\n";
    }
    for (int m = 0; m < messages; ++m) {
      const std::string chunk = "[" + std::to_string((1 - rank) * messages + m) + "]";
      body +=
          std::to_string(index++) + " recv <" + peer + ".0 -> output" + chunk + " size output" + chunk + "\n";
      const std::string own = "[" + std::to_string(rank * messages + m) + "]";
      body +=
          std::to_string(index++) + " copy input" + own + " -> output" + own + " size output" + own + "\n";
    }
  }
  return body;
}
inline PlanShape shape_of_exchange(int messages) {
  return {.collective = "all_to_all", .chunks_per_group = messages, .groups = "2 2"};
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
