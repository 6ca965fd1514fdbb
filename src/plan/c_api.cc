// The C API of plans (starling/plan.h).
#include <starling/plan.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/status.h"
#include "plan/generate.h"
#include "plan/geometry.h"
#include "plan/text.h"

namespace starling {
namespace {

const char* required(const char* argument, const char* name) {
  if (argument == nullptr) throw Error(Code::invalid_argument, std::string(name) + " is NULL", "pass a text");
  return argument;
}

Collective collective_or_throw(const char* name) {
  const std::optional<Collective> collective = collective_named(required(name, "collective"));
  if (!collective) {
    throw Error(Code::invalid_argument, std::string("there is no collective '") + name + "'",
                "use a name of starling/plan.h");
  }
  return *collective;
}

char* copy_for_caller(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw Error(Code::system, "no memory for a plan's text", "free some memory");
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

char** cleared(char** result) {
  if (result == nullptr)
    throw Error(Code::invalid_argument, "the place for the result is NULL", "pass the address of a char*");
  *result = nullptr;
  return result;
}

}  // namespace
}  // namespace starling

using namespace starling;

extern "C" {

starling_status starling_plan_generate(const char* collective, const char* algorithm, uint32_t ranks,
                                       uint32_t root, uint32_t blocks, int in_place, char** text) {
  return guarded([&] {
    cleared(text);
    const PlanRequest request{collective_or_throw(collective), ranks, root, blocks, in_place != 0};
    *text = copy_for_caller(to_text(generate(required(algorithm, "algorithm"), request)));
  });
}

starling_status starling_plan_verify(const char* text, uint32_t* minimum_slots, int* equal_parts_only) {
  return guarded([&] {
    const Plan plan = plan_from_text(required(text, "text"));
    if (minimum_slots != nullptr) *minimum_slots = plan.header(0)->minimum_slots;
    if (equal_parts_only != nullptr) *equal_parts_only = plan.header(0)->uniform_only;
  });
}

starling_status starling_plan_algorithms(const char* collective, char** names) {
  return guarded([&] {
    cleared(names);
    std::string text;
    for (const std::string_view name : algorithms_for(collective_or_throw(collective))) {
      text += (text.empty() ? "" : " ") + std::string(name);
    }
    *names = copy_for_caller(text);
  });
}

void starling_plan_free(char* text) { std::free(text); }

}  // extern "C"
