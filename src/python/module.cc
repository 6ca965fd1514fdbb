// The nanobind module starling._core: translates types between Python and C++, nothing else. One file a
// group.
#include "python/bindings.h"

namespace nb = nanobind;

// Groups of other parts of the house; a build without one of them has a null function here.
[[gnu::weak]] void bind_plan(nb::module_& m);
[[gnu::weak]] void bind_study(nb::module_& m);
[[gnu::weak]] void bind_sim(nb::module_& m);
[[gnu::weak]] void bind_settings(nb::module_& m);
[[gnu::weak]] void bind_monitor(nb::module_& m);

NB_MODULE(_core, m) {
  m.doc() = "Types of the C API (starling/starling.h). Use the package starling, which documents them.";
  nb::set_leak_warnings(false);  // what a program still holds when it ends is its own affair
  bind_errors(m);
  bind_requests(m);
  bind_context(m);
  bind_communicator(m);
  bind_timing(m);
  if (bind_plan) bind_plan(m);
  if (bind_study) bind_study(m);
  if (bind_sim) bind_sim(m);
  if (bind_settings) bind_settings(m);
  if (bind_monitor) bind_monitor(m);
}
