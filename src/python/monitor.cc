// starling._core.monitor: what watchers see of the ranks of this host. Types only, no logic.
#include <nanobind/nanobind.h>
#include <nanobind/stl/list.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/lowering.h"
#include "machine/cpu/futex.h"
#include "monitor/watcher.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace starling::monitor {
namespace {

const char* text_of(RankState state) {
  switch (state) {
    case RankState::kLeft: return "left";
    case RankState::kDied: return "died";
    default: return "alive";
  }
}

const char* text_of(Cause cause) { return cause == Cause::kNetwork ? "network" : "starved"; }

const char* text_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone: return "";
    case FaultKind::kMismatch: return "mismatch";
    case FaultKind::kTimeout: return "timeout";
    case FaultKind::kPeerFailed: return "peer failed";
    case FaultKind::kAborted: return "aborted";
    default: return "internal";
  }
}

nb::dict dict_of(const Anomaly& anomaly) {
  nb::dict fields;
  fields["cause"] = text_of(anomaly.cause);
  fields["begin_ns"] = anomaly.begin_ns;
  fields["end_ns"] = anomaly.end_ns;
  fields["lost_ns"] = anomaly.lost_ns;
  fields["left_bytes"] = anomaly.left_bytes;
  fields["usual_bytes_per_second"] = anomaly.usual_bytes_per_second;
  fields["bytes_per_second"] = anomaly.bytes_per_second;
  return fields;
}

nb::dict dict_of(const LaneView& lane) {
  nb::dict fields;
  fields["name"] = lane.name;
  fields["region"] = lane.key_offset;
  fields["rank"] = lane.rank;
  fields["size"] = lane.size;
  fields["submitted"] = lane.submitted;
  fields["completed"] = lane.completed;
  fields["fault"] = text_of(lane.fault);
  fields["oldest"] = nb::none();
  if (!lane.oldest.known) return fields;
  nb::dict oldest;
  oldest["kind"] = collective_name(lane.oldest.collective);
  oldest["data_type"] = data_type_name(lane.oldest.data_type);
  oldest["count"] = lane.oldest.count;
  oldest["root"] = lane.oldest.root;
  oldest["deadline_ns"] = lane.oldest.deadline_ns;
  fields["oldest"] = oldest;
  return fields;
}

nb::dict dict_of(const PathView& path) {
  nb::dict fields;
  fields["ring"] = path.ring_offset;
  fields["peer"] = path.peer;
  fields["path"] = path.path;
  fields["link"] = path.link == LinkKind::kVerbs ? "verbs" : "tcp";
  fields["name"] = path.name;
  fields["transfers"] = path.transfers;
  fields["bytes"] = path.bytes;
  fields["left_bytes"] = path.left_bytes;
  fields["waiting_ns"] = path.waiting_ns;
  fields["straight_bytes"] = path.straight_bytes;
  fields["copied_bytes"] = path.copied_bytes;
  fields["closed"] = path.closed;
  fields["missed"] = path.missed;
  fields["window_transfers"] = path.window.transfers;
  fields["window_bytes"] = path.window.bytes;
  fields["window_end_ns"] = path.window.last_completed_ns;
  fields["bytes_per_second"] = path.window.transfers ? path.window.bytes_per_second() : 0.0;
  fields["busy_bytes_per_second"] = path.window.transfers ? path.window.busy_bytes_per_second() : 0.0;
  fields["slow_count"] = path.slow_count;
  fields["slow_ns"] = path.slow_ns;
  fields["starved_count"] = path.starved_count;
  fields["starved_ns"] = path.starved_ns;
  fields["anomaly"] = path.current ? nb::object(dict_of(*path.current)) : nb::none();
  return fields;
}

nb::dict dict_of(const BlockCounters& c) {
  nb::dict fields;
  fields["launches"] = c.launches;
  fields["parks"] = c.parks;
  fields["resumes"] = c.resumes;
  fields["context_saves"] = c.saves;
  fields["context_loads"] = c.loads;
  fields["quits_idle"] = c.quits_idle;
  fields["quits_stuck"] = c.quits_stuck;
  fields["quits_drained"] = c.quits_drained;
  fields["instructions"] = c.instructions;
  fields["passes"] = c.passes;
  fields["queue_peak"] = c.queue_peak;
  return fields;
}

nb::dict dict_of(const RankView& rank) {
  nb::dict fields;
  fields["segment"] = rank.segment;
  fields["state"] = text_of(rank.state);
  fields["pid"] = rank.pid;
  fields["device"] = rank.device;
  fields["job"] = rank.joined ? nb::object(nb::str(rank.job.c_str())) : nb::none();
  fields["job_key"] = std::vector<uint64_t>{rank.job_high, rank.job_low};
  fields["rank"] = rank.rank;
  fields["size"] = rank.size;
  fields["waiting"] = rank.waiting;
  fields["window"] = rank.window;
  fields["counters"] = rank.counted ? nb::object(dict_of(rank.counters)) : nb::none();
  nb::list lanes, paths;
  for (const LaneView& lane : rank.lanes) lanes.append(dict_of(lane));
  for (const PathView& path : rank.paths) paths.append(dict_of(path));
  fields["lanes"] = lanes;
  fields["paths"] = paths;
  return fields;
}

nb::list looks_of(Watcher& watcher) {
  std::vector<RankView> views;
  {
    const nb::gil_scoped_release free;
    views = watcher.look();
  }
  nb::list ranks;
  for (const RankView& view : views) ranks.append(dict_of(view));
  return ranks;
}

// For each rank (segment, samples, anomalies); a sample is (ring, posted_ns, completed_ns, bytes, left_bytes,
// bytes per second of the window, of that starved_ns, transfers in the window).
nb::list taken_from(Watcher& watcher) {
  nb::list all;
  for (const Watcher::Samples& rank : watcher.take()) {
    nb::list samples, anomalies;
    for (const PathSample& s : rank.samples)
      samples.append(nb::make_tuple(s.ring_offset, s.record.posted_ns, s.record.completed_ns, s.record.bytes,
                                    s.record.left_bytes, s.window.bytes_per_second(), s.window.starved_ns,
                                    s.window.transfers));
    for (const PathAnomaly& a : rank.anomalies)
      anomalies.append(nb::make_tuple(a.ring_offset, dict_of(a.anomaly)));
    all.append(nb::make_tuple(rank.segment, samples, anomalies));
  }
  return all;
}

using Records = std::vector<std::tuple<uint64_t, uint64_t, uint32_t, uint32_t>>;

// Of records (posted_ns, completed_ns, bytes, left_bytes) in order: for each window that is full, when it
// ended, and its bytes a second.
std::vector<std::pair<uint64_t, double>> windows_of(const Records& records, uint32_t size) {
  Window window(size);
  std::vector<std::pair<uint64_t, double>> found;
  for (const auto& [posted_ns, completed_ns, bytes, left_bytes] : records) {
    const WindowSample sample = window.push({posted_ns, completed_ns, bytes, left_bytes});
    if (sample.transfers == size) found.emplace_back(completed_ns, sample.bytes_per_second());
  }
  return found;
}

nb::list anomalies_of(const Records& records, uint32_t size) {
  AnomalyOptions options;
  options.window = size;
  AnomalyDetector detector(options);
  nb::list found;
  for (const auto& [posted_ns, completed_ns, bytes, left_bytes] : records)
    if (const auto ended = detector.push({posted_ns, completed_ns, bytes, left_bytes}))
      found.append(dict_of(*ended));
  if (detector.current()) found.append(dict_of(*detector.current()));
  return found;
}

}  // namespace
}  // namespace starling::monitor

void bind_monitor(nb::module_& m) {
  using namespace starling::monitor;
  nb::module_ sub = m.def_submodule("monitor");
  nb::class_<Watcher>(sub, "Watcher")
      .def(
          "__init__",
          [](Watcher* self, uint32_t window, uint64_t kept_samples) {
            WatcherOptions options;
            options.watch.window = window;
            options.watch.kept_samples = kept_samples;
            new (self) Watcher(options);
          },
          "window"_a = 0, "kept_samples"_a = 0)
      .def("look", &looks_of)
      .def("take", &taken_from);
  sub.def("windows", &windows_of, "records"_a, "size"_a);
  sub.def("anomalies", &anomalies_of, "records"_a, "size"_a);
  sub.def("now_ns", &starling::cpu::monotonic_ns);
}
