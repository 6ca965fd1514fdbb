// A case told in words.
#include <cstdio>

#include "machine/sim/campaign.h"
#include "plan/geometry.h"

namespace starling::sim {
namespace {

std::string time_text(uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%10.3f us", double(ns) * 1e-3);
  return text;
}

std::string graph_text(const Graph& graph, size_t rank, size_t number) {
  static constexpr const char* kKinds[] = {"fill", "start", "start (held)", "wait", "check"};
  std::string text = "  rank " + std::to_string(rank) + ", graph " + std::to_string(number) + " on stream " +
                     std::to_string(graph.stream) + ":";
  const auto add = [&text](const char* what, const std::vector<GraphNode>& nodes) {
    text += std::string(" ") + what + " {";
    for (size_t k = 0; k < nodes.size(); ++k) {
      const GraphNode& node = nodes[k];
      const bool together = k > 0 && end_of_together(nodes, k - 1) > k;
      text += std::string(together ? " with " : " ") + kKinds[uint32_t(node.kind)] + " " +
              std::to_string(node.lane) + "." + std::to_string(node.operation) + ";";
    }
    text += " }";
  };
  for (const auto& branch : graph.branches) add("branch", branch);
  add("then", graph.tail);
  return text + "\n";
}

std::string program_text(const Program& program) {
  std::string text = "program '" + program.name + "', " + std::to_string(program.rank_count) + " ranks\n";
  for (size_t k = 0; k < program.lanes.size(); ++k) {
    const LaneSpec& lane = program.lanes[k];
    text += "  lane " + std::to_string(k) + ":";
    for (const CallSpec& call : lane.calls)
      text += (&call == lane.calls.data() ? " " : ", then ") +
              std::string(traits_of(call.plan->collective()).name) + " (" + call.plan->name() + ") of " +
              std::to_string(call.count) + " elements";
    text += " among ranks";
    for (uint32_t r : lane.ranks) text += " " + std::to_string(r);
    text += lane.captured ? ", captured\n" : "\n";
  }
  for (uint32_t r = 0; r < program.graphs.size(); ++r)
    for (size_t g = 0; g < program.graphs[r].size(); ++g) text += graph_text(program.graphs[r][g], r, g);
  for (uint32_t r = 0; r < program.rank_count; ++r) {
    text += "  rank " + std::to_string(r) + " calls:";
    for (size_t k = 0; k < program.steps[r].size() && k < 40; ++k) {
      const Step& step = program.steps[r][k];
      switch (step.kind) {
        case StepKind::kSubmit: text += " " + std::to_string(step.lane); break;
        case StepKind::kSynchronize: text += " synchronize"; break;
        case StepKind::kWait: text += " wait"; break;
        case StepKind::kPause: text += " pause"; break;
        case StepKind::kStart:
        case StepKind::kPrepared:
          text += " " + std::to_string(step.lane) + (step.held ? " (held)" : "") + " on stream " +
                  std::to_string(step.stream) + ";";
          break;
        case StepKind::kStreamWait:
          text += " stream " + std::to_string(step.stream) + " waits for " + std::to_string(step.lane) + ";";
          break;
        case StepKind::kCompute:
          text += " kernel of " + std::to_string(step.blocks) + " blocks on stream " +
                  std::to_string(step.stream) + ";";
          break;
        case StepKind::kCopyBack: text += " copy from stream " + std::to_string(step.stream) + ";"; break;
        case StepKind::kLoadKernels: text += " load kernels;"; break;
        case StepKind::kReplay: text += " graph " + std::to_string(step.lane) + ";"; break;
      }
    }
    text += program.steps[r].size() > 40 ? " ...\n" : "\n";
  }
  return text;
}

struct Field {
  const char* name;
  uint64_t value, calm;
};

std::string machine_text(const Options& o) {
  const Options calm{};
  const Field fields[] = {
      {"blocks", o.blocks, calm.blocks},
      {"threads", o.threads, calm.threads},
      {"late_store_chance", o.late_store_chance, calm.late_store_chance},
      {"late_data_chance", o.late_data_chance, calm.late_data_chance},
      {"slow_chance", o.slow_chance, calm.slow_chance},
      {"stall_chance", o.stall_chance, calm.stall_chance},
      {"initial_budget", o.initial_budget, calm.initial_budget},
      {"quit_period", o.quit_period, calm.quit_period},
      {"residency_limit", o.residency_limit, calm.residency_limit},
      {"priority_order", o.priority_order, calm.priority_order},
      {"forced_park_chance", o.forced_park_chance, calm.forced_park_chance},
      {"forced_quit_chance", o.forced_quit_chance, calm.forced_quit_chance},
      {"drain_chance", o.drain_chance, calm.drain_chance},
      {"fence_chance", o.fence_chance, calm.fence_chance},
      {"callback_submits", o.callback_submits, calm.callback_submits},
      {"opens", o.opens, calm.opens},
      {"bounces", o.bounces, calm.bounces},
      {"submission_capacity", o.submission_capacity, calm.submission_capacity},
      {"completion_capacity", o.completion_capacity, calm.completion_capacity},
      {"completion_kind", o.completion_kind, calm.completion_kind},
      {"slot_bytes", o.slot_bytes, calm.slot_bytes},
      {"pool_slots", o.pool_slots, calm.pool_slots},
      {"plan_room", o.plan_room, calm.plan_room},
      {"first_sequence", o.first_sequence, calm.first_sequence},
      {"first_message", o.first_message, calm.first_message},
      {"hardware_queues", o.hardware_queues, calm.hardware_queues},
      {"queue_depth", o.queue_depth, calm.queue_depth},
      {"launch_limit", o.launch_limit, calm.launch_limit},
      {"gate_limit", o.gate_limit, calm.gate_limit},
      {"start_limit", o.start_limit, calm.start_limit},
      {"gates", o.gates, calm.gates},
      {"doorbells", o.doorbells, calm.doorbells},
      {"sm_slots", o.sm_slots, calm.sm_slots},
      {"begin_delay_ns", o.begin_delay_ns, calm.begin_delay_ns},
      {"daemon_first", o.daemon_first, calm.daemon_first},
      {"guards", o.guards, calm.guards},
      {"watch_limit", o.watch_limit, calm.watch_limit},
      {"wide_watches", o.wide_watches, calm.wide_watches},
      {"watch_blocks", o.watch_blocks, calm.watch_blocks},
      {"wake_ns", o.wake_ns, calm.wake_ns},
      {"turn_ns", o.turn_ns, calm.turn_ns},
      {"served_ns", o.served_ns, calm.served_ns},
      {"daemon_kept_out", o.daemon_kept_out, calm.daemon_kept_out},
      {"rendezvous", o.rendezvous, calm.rendezvous},
      {"missing_ns", o.missing_ns, calm.missing_ns},
      {"driver_connects", o.driver_connects, calm.driver_connects},
      {"hosts", o.hosts, calm.hosts},
      {"carry_ns", o.carry_ns, calm.carry_ns},
      {"path_break_chance", o.path_break_chance, calm.path_break_chance},
      {"nap_chance", o.nap_chance, calm.nap_chance},
  };
  std::string text = "machine:";
  for (const Field& field : fields)
    if (field.value != field.calm) text += std::string(" ") + field.name + "=" + std::to_string(field.value);
  if (o.dying_rank >= 0) text += " dying_rank=" + std::to_string(o.dying_rank);
  return text + "\n";
}

std::string event_text(const Simulation::TracedEvent& event) {
  const TraceRecord& r = event.record;
  std::string text = time_text(r.ticks) + "  rank " + std::to_string(event.rank) + " block " +
                     std::to_string(event.block) + "  ";
  const std::string operation = "lane " + std::to_string(r.lane) + " operation " + std::to_string(r.sequence);
  switch (r.event) {
    case TraceEvent::kLaunch: return text + "enters the daemon, residency " + std::to_string(r.sequence);
    case TraceEvent::kQuit: {
      static constexpr const char* kWhy[] = {"idle", "stuck",    "drained", "residency limit",
                                             "exit", "elsewhere"};
      return text + "leaves: " + kWhy[r.detail % std::size(kWhy)];
    }
    case TraceEvent::kFetch: return text + "reads the submission of " + operation;
    case TraceEvent::kRun:
      return text + "runs " + operation + " after " + std::to_string(r.detail) + " instructions";
    case TraceEvent::kPark: {
      text += "parks " + operation + " at instruction " + std::to_string(r.detail >> 32);
      const uint32_t peer = uint32_t(r.detail);
      return peer == ~0u ? text : text + ", it waits for peer " + std::to_string(peer);
    }
    case TraceEvent::kComplete: return text + "finishes its part of " + operation;
    case TraceEvent::kPublish: return text + "publishes " + operation;
    case TraceEvent::kFault: return text + "drops " + operation + ": its lane is broken";
  }
  return text;
}

}  // namespace

std::string story(Simulation& simulation, const Case& told, uint32_t last_events) {
  Options options = told.options;
  options.trace_capacity = 1 << 14;
  const Report report = simulation.run(told.program, options, told.seed);
  std::string text = program_text(told.program) + machine_text(told.options);
  const auto events = simulation.trace();
  if (events.size() > last_events)
    text += "... " + std::to_string(events.size() - last_events) + " events before\n";
  for (size_t k = events.size() > last_events ? events.size() - last_events : 0; k < events.size(); ++k)
    text += event_text(events[k]) + "\n";
  text += time_text(report.virtual_ns) + "  " +
          (report.ok() ? "all operations complete" : "FAILED: " + report.failure);
  return text + "\n" + report.state;
}

}  // namespace starling::sim
