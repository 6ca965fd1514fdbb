// starling._core.study, continued: replays through the simulator machine. Types only, no logic.
#include "study/replay.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

void bind_replay(nb::module_& m) {
  using namespace starling::study;
  nb::class_<Replayed>(m, "Replayed")
      .def_ro("failure", &Replayed::failure)
      .def_ro("hangs", &Replayed::hangs)
      .def_ro("state", &Replayed::state)
      .def_ro("launches", &Replayed::launches)
      .def_ro("synchronizations", &Replayed::synchronizations)
      .def_ro("parks", &Replayed::parks)
      .def_ro("stuck_quits", &Replayed::stuck_quits)
      .def_ro("idle_quits", &Replayed::idle_quits)
      .def_ro("limited_quits", &Replayed::limited_quits)
      .def_ro("daemon_launches", &Replayed::daemon_launches)
      .def_ro("virtual_us", &Replayed::virtual_us)
      .def_ro("steps", &Replayed::steps);
  nb::class_<Replayer>(m, "Replayer")
      .def(nb::init<>())
      .def(
          "run",
          [](Replayer& replayer, const Program& program, const std::vector<int>& lane_of, std::uint64_t seed,
             bool wild, bool checks, bool yielding, std::uint64_t pace_ns) {
            const nb::gil_scoped_release free;
            return replayer.run(program, lane_of, {seed, wild, checks, yielding, pace_ns});
          },
          "program"_a, "lane_of"_a = std::vector<int>{}, nb::kw_only(), "seed"_a = 1, "wild"_a = false,
          "checks"_a = true, "yielding"_a = true, "pace_ns"_a = 0);
}
