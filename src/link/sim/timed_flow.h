// Both ends of a flow over a network in time (timed_network.h): the shipped Sender and Receiver, with timers
// of the lengths that TCP uses, connections that are made, and end, as sockets do, and what a network card
// does: bytes land whether or not the rank looks.
//
// Checked on every step: acked <= done <= transmitted <= posted; done never retreats; at most one epoch
// apart; the sender runs only what was agreed to; no write of an older epoch lands after the next began;
// nothing lands twice. The first thing that was wrong stays in problem().
#pragma once
#include <array>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "link/core.h"
#include "link/shares.h"
#include "link/sim/timed_network.h"
#include "link/tcp/timers.h"
#include "monitor/flow_recorder.h"

namespace starling::link::sim {

// The program that writes and reads.
class FlowProgram {
 public:
  virtual ~FlowProgram() = default;
  virtual std::span<const std::byte> source(uint64_t sequence) = 0;
  virtual std::byte* destination(uint64_t sequence) = 0;
  virtual void accept(uint64_t sequence) = 0;  // in order, each once
};

struct TimedFlowOptions {
  uint32_t from = 0;  // the sending rank
  Policy policy = Policy::kPrimaryBackup;
  uint32_t probation = 1;
  tcp::TimerLengths lengths = {};
  const FlowCore* core = &shipped_flow_core();
  bool calls_back = true;  // where the peer's flow calls from; false: for showing what that is for
  monitor::FlowRecorder* recorder = nullptr;  // hears of transfers as it does over TCP; outlives the flow
};

class TimedFlow final : private TimedNetwork::Listener {
 public:
  // Program and network outlive it; with it in place, and not before, the network may step.
  TimedFlow(TimedNetwork& network, const TimedFlowOptions& options, FlowProgram& program);
  ~TimedFlow() override;

  // Transfers before `end` may go.
  void offer(uint64_t end);
  const SenderState& sender() const { return sender_; }
  const ReceiverState& receiver() const { return receiver_; }
  const std::string& problem() const { return problem_; }

 private:
  struct Frame;
  struct Stream;
  struct Connection;
  class SendingSide;
  class ReceivingSide;
  using ConnectionPtr = std::shared_ptr<Connection>;

  // What the sender knows of a port of its peer's, as tcp/sending_flow.h.
  struct Callee {
    uint32_t address = 0;  // where it answered last
    uint32_t heard = 0;    // where its own flow called from last
    uint32_t calls = 0;    // in vain, since
  };

  bool takes_its_share(uint32_t path) const;
  uint32_t rank_of(bool forward) const { return forward ? options_.from : 1 - options_.from; }
  void to_sender(const Event& event);
  void to_receiver(const Event& event);
  void handle_at_sender(const Event& event);
  void handle_at_receiver(const Event& event);
  void expire(bool sending);

  void transmit(const ConnectionPtr& connection, bool forward, Frame frame);
  void arrive_later(const ConnectionPtr& connection, bool forward, uint64_t after_ns, const Frame& frame);
  void attempt(const ConnectionPtr& connection, bool forward);
  void attempt_at(const ConnectionPtr& connection, bool forward, uint64_t when_ns);
  void arrive(const ConnectionPtr& connection, bool forward, const Frame& frame);
  void land(const ConnectionPtr& connection, const Frame& frame);
  void answer_reset(const ConnectionPtr& connection, bool to_the_sender);
  bool passes(const Connection& connection, uint32_t from) const;
  void connect(const ConnectionPtr& connection);
  void adopt(const ConnectionPtr& connection);
  void end_at_sender(const ConnectionPtr& connection);
  void end_at_receiver(const ConnectionPtr& connection);
  void port_changed(uint32_t path, uint32_t rank, bool up) override;
  void reset(uint32_t path, uint32_t rank) override;
  void called_from(uint32_t path, uint32_t rank, uint32_t address) override;

  void report(const std::string& problem);
  void check();

  TimedNetwork& network_;
  const TimedFlowOptions options_;
  FlowProgram& program_;
  SenderState sender_;
  HeardLandings heard_{};  // by the sender's link
  ReceiverState receiver_;
  tcp::Timers timers_[2];  // of the receiver, of the sender
  std::array<ConnectionPtr, kMaxPaths> outgoing_, incoming_;
  std::array<Callee, kMaxPaths> callees_;
  std::set<uint64_t> landed_;  // beyond what was accepted
  uint64_t accepted_ = 0;
  uint64_t most_done_ = 0;
  std::string problem_;
};

}  // namespace starling::link::sim
