// starling._core.study: the deadlock study's engine for Python (python/starling/deadlock). Types only, no
// logic.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "study/shrink.h"
#include "study/study.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starling::study {
namespace {

// Calls back with the GIL; a raised exception (Ctrl-C among them) stops the work and is raised again by the
// caller.
Work make_work(std::int64_t rounds, std::uint64_t seed, int threads, nb::object progress) {
  Work work;
  work.rounds = rounds;
  work.seed = seed;
  work.threads = threads;
  work.progress = [progress = std::move(progress)](std::int64_t done) {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return progress.is_none() || nb::cast<bool>(progress(done));
  };
  return work;
}

void bind_model(nb::module_& m) {
  nb::enum_<Rule>(m, "Rule")
      .value("single_queue", Rule::single_queue)
      .value("synchronization", Rule::synchronization);
  nb::enum_<Order>(m, "Order")
      .value("interleaved", Order::interleaved)
      .value("concatenated", Order::concatenated);
  nb::enum_<Decision>(m, "Decision").value("exact", Decision::exact).value("released", Decision::released);
  nb::class_<Group>(m, "Group")
      .def(
          "__init__",
          [](Group* group, std::vector<int> gpus, int collectives) {
            new (group) Group{std::move(gpus), collectives};
          },
          "gpus"_a, "collectives"_a)
      .def_rw("gpus", &Group::gpus)
      .def_rw("collectives", &Group::collectives);
  m.def(
      "three_d_groups",
      [](int tensor, int data, int pipeline, int tensor_collectives, int data_collectives) {
        return three_d_groups({tensor, data, pipeline, tensor_collectives, data_collectives});
      },
      "tensor"_a, "data"_a, "pipeline"_a, "tensor_collectives"_a, "data_collectives"_a);
  nb::class_<Model>(m, "Model")
      .def(
          "__init__",
          [](Model* model, Rule rule, Order order, int gpus, std::vector<Group> groups,
             double disorder_probability, double synchronization_probability) {
            new (model) Model(
                {rule, order, gpus, std::move(groups), disorder_probability, synchronization_probability});
          },
          nb::kw_only(), "rule"_a, "order"_a, "gpus"_a, "groups"_a, "disorder_probability"_a,
          "synchronization_probability"_a)
      .def_prop_ro("gpus", &Model::gpus)
      .def_prop_ro("launches", &Model::launches)
      .def_prop_ro("components", [](const Model& model) { return model.placements().size(); });
}

void bind_program(nb::module_& m) {
  nb::class_<Program>(m, "Program")
      .def(
          "__init__",
          [](Program* program, std::vector<std::vector<int>> events, std::vector<std::vector<int>> members,
             std::vector<int> group) {
            new (program) Program{std::move(events), std::move(members), std::move(group)};
          },
          "events"_a, "members"_a, "group"_a)
      .def_ro("events", &Program::events)
      .def_ro("members", &Program::members)
      .def_ro("group", &Program::group);
  nb::class_<Blocked>(m, "Blocked")
      .def_ro("gpu", &Blocked::gpu)
      .def_ro("event", &Blocked::event)
      .def_ro("executing", &Blocked::executing)
      .def_ro("waits_for", &Blocked::waits_for);
  nb::class_<Judgement>(m, "Judgement")
      .def_ro("exact", &Judgement::exact)
      .def_ro("released", &Judgement::released)
      .def_ro("blocked", &Judgement::blocked);
  nb::class_<Shrunk>(m, "Shrunk")
      .def_ro("program", &Shrunk::program)
      .def_ro("gpus", &Shrunk::gpus)
      .def_ro("collectives", &Shrunk::collectives);
  m.attr("SYNCHRONIZE") = kSynchronize;
  m.def("judge", &judge, "program"_a, "rule"_a);
  m.def("shrink", &shrink, "program"_a, "rule"_a);
  m.def("taking_part", &taking_part, "program"_a, "rule"_a);
}

void bind_rounds(nb::module_& m) {
  nb::class_<Counts>(m, "Counts")
      .def_ro("rounds", &Counts::rounds)
      .def_ro("exact", &Counts::exact)
      .def_ro("released", &Counts::released)
      .def_ro("both", &Counts::both)
      .def_ro("calm", &Counts::calm);
  nb::class_<Estimate>(m, "Estimate")
      .def_ro("probability", &Estimate::probability)
      .def_ro("standard_error", &Estimate::standard_error)
      .def_ro("samples", &Estimate::samples)
      .def_ro("hits", &Estimate::hits)
      .def_ro("bound", &Estimate::bound);
  m.def(
      "count_deadlocks",
      [](const Model& model, std::int64_t rounds, std::uint64_t seed, int threads, bool exact, bool released,
         nb::object progress) {
        const Work work = make_work(rounds, seed, threads, std::move(progress));
        const nb::gil_scoped_release free;
        return count_deadlocks(model, work, {exact, released});
      },
      "model"_a, "rounds"_a, "seed"_a = 1, "threads"_a = 0, "exact"_a = true, "released"_a = true,
      "progress"_a = nb::none());
  m.def(
      "estimate_deadlocks",
      [](const Model& model, std::int64_t samples, std::uint64_t seed, int threads, Decision decision,
         nb::object progress) {
        const Work work = make_work(samples, seed, threads, std::move(progress));
        const nb::gil_scoped_release free;
        return estimate_deadlocks(model, work, decision);
      },
      "model"_a, "samples"_a, "seed"_a = 1, "threads"_a = 0, "decision"_a = Decision::exact,
      "progress"_a = nb::none());
  m.def("single_group_probability", &single_group_probability, "gpus"_a, "collectives"_a,
        "disorder_probability"_a);
  m.def("harmful_turns", &harmful_turns, "model"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("round_program", &round_program, "model"_a, "seed"_a, "round"_a,
        nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "find_deadlocks",
      [](const Model& model, std::int64_t rounds, std::int64_t count, std::uint64_t seed, int threads) {
        const Work work = make_work(rounds, seed, threads, nb::none());
        const nb::gil_scoped_release free;
        return find_deadlocks(model, work, count);
      },
      "model"_a, "rounds"_a, "count"_a, "seed"_a = 1, "threads"_a = 0);
  m.def(
      "planted_deadlocks",
      [](const Model& model, std::int64_t rounds, std::int64_t count, std::uint64_t seed) {
        const Work work = make_work(rounds, seed, 1, nb::none());
        const nb::gil_scoped_release free;
        return planted_deadlocks(model, work, count);
      },
      "model"_a, "rounds"_a, "count"_a, "seed"_a = 1);
}

}  // namespace
}  // namespace starling::study

void bind_replay(nb::module_& m);  // replay.cc

void bind_study(nb::module_& m) {
  nb::module_ study =
      m.def_submodule("study", "Deadlock study: how likely collectives deadlock without yielding.");
  starling::study::bind_model(study);
  starling::study::bind_program(study);
  starling::study::bind_rounds(study);
  bind_replay(study);
}
