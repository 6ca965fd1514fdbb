// The sending end of a flow over TCP: link/sender.h decides, this connects, writes and keeps its clock. One
// thread's, the proxy's.
//
// Connections of the first incarnation are made at the start; transfers wait for them. Those that cannot be
// made in time are told to the flow as paths that broke, and are tried again like those.
#pragma once
#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "link/flow.h"
#include "link/shares.h"
#include "link/tcp/connection.h"
#include "link/tcp/reactor.h"
#include "link/tcp/timers.h"
#include "link/tcp/upgrade.h"
#include "monitor/flow_recorder.h"

namespace starling::link::tcp {

// Who has the transfers.
class TransferSource {
 public:
  virtual ~TransferSource() = default;
  virtual Outgoing transfer(uint64_t sequence) = 0;
  // As TransferSink's.
  virtual void refuse(const char* /*what*/) {}
};

struct SendingOptions {
  uint64_t from;  // identities, as in Hello
  uint64_t to;
  uint32_t peer;  // its rank, for messages
  Policy policy;
  std::vector<std::pair<Port, Port>> paths;  // ours, theirs
  TimerLengths lengths;
  std::vector<PathRing*> rings = {};  // one for each path; none: nothing is recorded
  Upgrades* upgrades = nullptr;  // outlives the flow; none: sockets
  BulkSender* bulk = nullptr;  // likewise; none: the flow's thread sends all itself
};

class SendingFlow final : private Link {
 public:
  SendingFlow(SendingOptions options, Reactor& reactor, TransferSource& source, uint64_t now_ns);
  ~SendingFlow() override;

  // Transfers before `end` may go.
  void offer(uint64_t end);
  // Below it sources are the owner's again.
  uint64_t acked() const { return state_.acked; }
  uint64_t posted() const { return offered_; }
  bool failed() const { return !failure_.empty(); }
  // "": it has not failed.
  const std::string& failure() const { return failure_; }
  const SenderState& state() const { return state_; }
  // From here on nothing goes by sockets: those that are open are given up, as if they had broken.
  void only_queue_pairs();
  // None: paths are being opened; else whether all that could be are queue pairs.
  std::optional<bool> has_only_queue_pairs() const;
  bool has_queue_pairs() const {
    return std::any_of(paths_.begin(), paths_.end(), [](const auto& path) {
      return path->connection != nullptr && path->connection->kind() == LinkKind::kVerbs;
    });
  }

  // As Channel::move_source(), on all paths; one that cannot is given up, and opened again like any that
  // broke.
  void move_source(uint64_t sequence, const std::byte* to);
  void port_changed(uint32_t interface_index, bool up);
  // The peer called from this address at the port that we listen at there: it may have another one now.
  void peer_called(const Port& ours, const Address& from);
  void expire(uint64_t now_ns);
  // Since the last call: whether what is under way has come to a standstill, and paths are asked why.
  bool suspects() { return std::exchange(suspects_, false); }
  uint64_t next_deadline() const;
  // Does what has become possible; call it after offers and in every round.
  void pump();

 private:
  class Path final : public Watched, public FrameSink {
   public:
    Path(SendingFlow& flow, uint32_t number) : flow_(flow), number_(number) {}
    void ready(uint32_t events) override { flow_.on_ready(*this, events); }
    bool begin(const FrameHeader&, std::byte*&, std::byte*&) override {
      refuse("a transfer to who sends them");
      return false;
    }
    void end(const FrameHeader&, uint64_t) override {}
    void message(const LinkMessage& message, const Heard& heard) override;
    void refuse(const char* what) override { flow_.source_.refuse(what); }

    SendingFlow& flow_;
    const uint32_t number_;
    std::unique_ptr<Channel> connection;
    std::unique_ptr<Upgrade> upgrade;  // while its answer is awaited
    bool greeted = false;  // this incarnation said hello with queue pairs
    uint64_t watch = 0;
    bool connecting = false;
    bool writing = false;  // watched for it
    uint64_t connect_end_ns = Timers::kNever;
    uint32_t incarnation = 0;
    std::optional<Address> heard;  // where the peer called from, if it is not where it was called at
    uint32_t calls = 0;  // since it was open; every second one goes there
    bool at_heard = false;  // the last one did
    std::string refusal;  // of the system, when it was to be opened last; "": none
    std::string trouble;  // what it died of, by its device or by us, until it is open again; "": not known
  };

  // Link.
  bool post(uint32_t path, uint32_t epoch, uint64_t sequence) override;
  void send(uint32_t path, const LinkMessage& message) override;
  void close(uint32_t path) override;
  void open(uint32_t path, uint32_t incarnation) override;
  void arm(Timer timer, uint32_t path, uint32_t step) override;
  void disarm(Timer timer, uint32_t path) override { timers_.disarm(timer, path); }

  void on_ready(Path& path, uint32_t events);
  void connected(Path& path);
  void answered(Path& path);
  void opened(Path& path);
  void peer_gave_up(Path& path);
  void end_before_start(FlowError error, FailureCause cause);
  void connect(Path& path, uint32_t incarnation);
  void drop(Path& path);
  void broke(Path& path, int error);
  void refuse_socket(Path& path);
  void flush(Path& path);
  bool has_least_under_way(uint32_t path) const;
  void start_when_connected();
  void note_failure();
  const char* wrong_with_word(const LinkMessage& message) const;
  Event event_of(EventKind kind, const Path& path) const;

  SendingOptions options_;
  Reactor& reactor_;
  TransferSource& source_;
  SenderState state_{};
  monitor::FlowRecorder recorder_;
  bool started_ = false;
  bool only_queue_pairs_ = false;
  uint64_t offered_ = 0;
  uint64_t sent_below_ = 0;  // transfers before this one were, at least once
  bool refused_ = false;  // a transfer had no room
  uint64_t now_ns_;
  uint64_t give_up_ns_;  // without a connection at the start
  Timers timers_;
  std::vector<std::unique_ptr<Path>> paths_;
  std::deque<Event> events_;
  std::vector<uint64_t> sent_;
  std::array<uint64_t, kFlowWindow> bytes_{};  // of transfers that are posted, by number
  HeardLandings heard_{};
  bool suspects_ = false;
  std::string failure_;
};

}  // namespace starling::link::tcp
