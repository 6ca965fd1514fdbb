// The simulated network with time as a link of the conformance suite.
#pragma once
#include "link/conformance.h"
#include "link/failure_text.h"
#include "link/sim/timed_flow.h"

namespace starling::link::conformance {

class SimRig final : public Rig {
 public:
  SimRig(const RigOptions& options, const sim::WireSettings& wires,
         const FlowCore& core = shipped_flow_core(), monitor::FlowRecorder* of_rank_0 = nullptr,
         bool calls_back = true)
      : Rig(options, 100'000), network_(options.paths, options.seed, wires) {
    for (uint32_t from = 0; from < 2; ++from) {
      sim::TimedFlowOptions flow{.from = from, .policy = options.policy};
      flow.lengths.give_up_ns = options.give_up_ns;
      flow.core = &core;
      flow.calls_back = calls_back;
      if (from == 0) flow.recorder = of_rank_0;
      if (options.patient) flow.lengths.watchdog_ns = flow.lengths.probe_ns = 40'000'000'000;
      if (options.answers_late) flow.lengths.probe_ns = 40'000'000'000;
      watchdog_ns_ = flow.lengths.watchdog_ns;
      programs_[from] = std::make_unique<Program>(traffic[from]);
      flows_[from] = std::make_unique<sim::TimedFlow>(network_, flow, *programs_[from]);
    }
  }

  sim::TimedNetwork& network() { return network_; }

  void turn() override {
    if (!network_.step()) throw Failure{"nothing can happen any more"};
    for (const auto& flow : flows_)
      if (!flow->problem().empty()) throw Failure{flow->problem()};
  }
  uint64_t now_ns() const override { return network_.now_ns(); }
  void offer(uint32_t from, uint64_t end) override { flows_[from]->offer(end); }
  uint64_t acked(uint32_t from) const override { return flows_[from]->sender().acked; }
  uint64_t transmitted(uint32_t from) const override { return flows_[from]->sender().transmitted; }
  uint64_t credit() const override { return kFlowWindow; }
  uint64_t watchdog_ns() const override { return watchdog_ns_; }
  void hold(uint32_t rank, bool held) override { network_.hold(rank, held); }
  const SenderState* sender(uint32_t from) const override { return &flows_[from]->sender(); }
  void fail(uint32_t path, Fault fault) override {
    switch (fault) {
      case kCut: return network_.cut(path, 3);
      case kHalfOpen:
        network_.cut(path, 2);
        return network_.silence(path, 1, true);  // its hosts' answers are lost, too
      case kSilent: network_.silence(path, 1, true); [[fallthrough]];
      case kOneWay: return network_.silence(path, 0, true);
      case kOwnPort: return network_.set_port(path, 0, false);
      case kPeerPort: return network_.set_port(path, 1, false);
    }
  }
  void heal(uint32_t path) override { network_.heal(path); }
  // The rank's port has another address when it is well again.
  void heal_elsewhere(uint32_t path, uint32_t rank) {
    network_.move(path, rank);
    network_.heal(path);
  }
  void die() override { network_.die(1, false); }
  std::string failure(uint32_t rank, uint32_t from) const override {
    const FlowNames names{1 - rank, {port_name(0), port_name(1)}};
    if (rank == from) return failure_text(sender(from)->error, sender(from)->paths, names);
    return failure_text(flows_[from]->receiver().error, flows_[from]->receiver().paths, names);
  }
  std::string port_name(uint32_t path) const override { return "wire" + std::to_string(path); }

 private:
  struct Program final : sim::FlowProgram {
    explicit Program(Traffic& traffic) : traffic(traffic) {}
    std::span<const std::byte> source(uint64_t k) override { return traffic.source(k); }
    std::byte* destination(uint64_t k) override { return traffic.place(k); }
    void accept(uint64_t k) override { traffic.accept(k, traffic.bytes(k)); }
    Traffic& traffic;
  };

  sim::TimedNetwork network_;
  uint64_t watchdog_ns_ = 0;
  std::unique_ptr<Program> programs_[2];
  std::unique_ptr<sim::TimedFlow> flows_[2];
};

}  // namespace starling::link::conformance
