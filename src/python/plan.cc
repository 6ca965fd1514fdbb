// starling._core.plan: plans as text (starling/plan.h), and the table of instructions. Types only, no logic.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <starling/plan.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "wire/opcodes.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starling::python {
namespace {

// Takes over a text that the C API gave.
std::string taken(char* text) {
  std::string copy = text;
  starling_plan_free(text);
  return copy;
}

std::string generate(const std::string& collective, const std::string& algorithm, std::uint32_t ranks,
                     std::uint32_t root, std::uint32_t blocks, bool in_place) {
  char* text = nullptr;
  check(starling_plan_generate(collective.c_str(), algorithm.c_str(), ranks, root, blocks, in_place, &text));
  return taken(text);
}

// The least number of slots, and whether it is right for equal parts alone.
std::pair<std::uint32_t, bool> verify(const std::string& text) {
  std::uint32_t minimum_slots = 0;
  int equal_parts_only = 0;
  check(starling_plan_verify(text.c_str(), &minimum_slots, &equal_parts_only));
  return {minimum_slots, equal_parts_only != 0};
}

std::string algorithms(const std::string& collective) {
  char* names = nullptr;
  check(starling_plan_algorithms(collective.c_str(), &names));
  return taken(names);
}

nb::list opcode_table() {
  nb::list table;
  for (const OpcodeTraits& row : kOpcodeTable) {
    nb::dict entry;
    entry["name"] = row.name;
    entry["receives"] = row.receives;
    entry["sends"] = row.sends;
    entry["reads_source"] = row.reads_source;
    entry["writes_destination"] = row.writes_destination;
    entry["reduces"] = row.reduces;
    table.append(entry);
  }
  return table;
}

}  // namespace
}  // namespace starling::python

void bind_plan(nb::module_& m) {
  using namespace starling::python;
  nb::module_ plan = m.def_submodule("plan", "Built-in plans, the verifier and the table of instructions.");
  plan.def("generate", &generate, "collective"_a, "algorithm"_a, "ranks"_a, "root"_a = 0, "blocks"_a = 1,
           "in_place"_a = false);
  plan.def("verify", &verify, "text"_a);
  plan.def("algorithms", &algorithms, "collective"_a);
  plan.attr("LANE_SLOTS") = STARLING_LANE_SLOTS;
  plan.def("opcode_table", &opcode_table);
}
