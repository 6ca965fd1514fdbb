// The receiving end of a flow over TCP: link/receiver.h decides, this reads into place and keeps its clock.
// One thread's, the proxy's. Made at the first connection of the flow.
#pragma once
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/flow.h"
#include "link/tcp/connection.h"
#include "link/tcp/reactor.h"
#include "link/tcp/timers.h"
#include "link/tcp/upgrade.h"

namespace starling::link::tcp {

// Who has the memory that transfers go to.
class TransferSink {
 public:
  virtual ~TransferSink() = default;
  // Where the payload goes; nobody reads there before accept(). Null: it makes no sense.
  virtual std::byte* destination(const FrameHeader& header) = 0;
  // In order of sequence, each once: all before it came, too.
  virtual void accept(const FrameHeader& header, const std::byte* control) = 0;
  // What came makes no sense, in words that stay. Its path ends; the owner may end all.
  virtual void refuse(const char* /*what*/) {}
};

class ReceivingFlow final : private Link {
 public:
  // dated: reports say when transfers came.
  ReceivingFlow(uint32_t path_count, Policy policy, uint32_t peer, const TimerLengths& lengths,
                Reactor& reactor, TransferSink& sink, uint64_t now_ns, Upgrades* upgrades = nullptr,
                bool dated = false);
  ~ReceivingFlow() override;

  // A connection whose hello was read. `port`: ours. Throws Error if it cannot be watched: then the flow is
  // as it was, and the connection ends, which its sender finds out.
  void adopt(const Hello& hello, std::unique_ptr<Connection> connection, Port port);

  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  uint64_t done() const { return state_.done; }
  uint32_t path_count() const { return uint32_t(paths_.size()); }
  bool has_queue_pairs() const {
    return std::any_of(paths_.begin(), paths_.end(), [](const auto& path) {
      return path->connection != nullptr && path->connection->kind() == LinkKind::kVerbs;
    });
  }

  // Some path is.
  bool has_any() const {
    return std::any_of(paths_.begin(), paths_.end(),
                       [](const auto& path) { return path->connection != nullptr; });
  }
  // As SendingFlow's, of the paths that are open.
  bool has_only_queue_pairs() const {
    return has_queue_pairs() && std::none_of(paths_.begin(), paths_.end(), [](const auto& path) {
             return path->connection != nullptr && path->connection->kind() == LinkKind::kTcp;
           });
  }

  // As Channel::move_destination(), on all paths.
  void move_destination(const std::byte* from, uint64_t bytes, std::byte* to);
  // From here on nothing that peers write by RDMA lands by the paths that are open, and those to come know
  // that offers before this number are void. The flow goes on by them, as after any failure.
  void fence_writes(uint64_t offers_void);
  void port_changed(uint32_t interface_index, bool up);
  void expire(uint64_t now_ns);
  uint64_t next_deadline() const {
    if (failed()) return Timers::kNever;
    return awaited_ ? std::min(timers_.next(), held_until_ns_) : timers_.next();
  }
  // The flow in the other direction suspects its paths, which go by the same ports: these are asked now, too,
  // and not when they are needed.
  void ask_now(uint64_t now_ns) { timers_.hasten(Timer::kWatchdog, 0, now_ns); }
  // A report that is held back is not: its sender is about to leave.
  void report_now();
  void pump();

 private:
  // A transfer that came, until all before it did.
  struct Arrived {
    FrameHeader header{};
    std::vector<std::byte> control;
    uint64_t at_ns = 0;
  };
  class Path final : public Watched, public FrameSink {
   public:
    Path(ReceivingFlow& flow, uint32_t number) : flow_(flow), number_(number) {}
    void ready(uint32_t events) override { flow_.on_ready(*this, events); }
    bool begin(const FrameHeader& header, std::byte*& control, std::byte*& payload) override;
    void end(const FrameHeader& header, uint64_t at_ns) override;
    void message(const LinkMessage& message, const Heard& heard) override;
    void refuse(const char* what) override { flow_.sink_.refuse(what); }

    ReceivingFlow& flow_;
    const uint32_t number_;
    std::unique_ptr<Channel> connection;
    uint64_t watch = 0;
    bool writing = false;
    uint32_t incarnation = 1;
    Port port;
    std::optional<Address> caller;  // the peer's end; none: it had ended before we looked
    const char* trouble = "";  // Channel::trouble() of the last connection
    std::vector<std::byte> control;  // of the transfer that is coming
    std::optional<uint64_t> coming;  // its number
  };

  // Link.
  bool post(uint32_t, uint32_t, uint64_t) override { return false; }
  void send(uint32_t path, const LinkMessage& message) override;
  void close(uint32_t path) override;
  void open(uint32_t, uint32_t) override {}  // the sender opens
  void arm(Timer timer, uint32_t path, uint32_t step) override;
  void disarm(Timer timer, uint32_t path) override { timers_.disarm(timer, path); }

  bool may_wait(const LinkMessage& message) const;
  ArrivalAges ages_for(const LinkMessage& report) const;
  std::unique_ptr<Channel> upgrade(const Hello& hello, std::unique_ptr<Connection> connection,
                                   const Port& port);
  void on_ready(Path& path, uint32_t events);
  void broke(Path& path, int error);
  void drop(Path& path);
  void flush(Path& path);
  void deliver();
  void note_failure();
  Event event_of(EventKind kind, const Path& path) const;

  const uint32_t peer_;
  const TimerLengths lengths_;
  Reactor& reactor_;
  TransferSink& sink_;
  Upgrades* const upgrades_;
  const bool dated_;
  ReceiverState state_;
  uint64_t now_ns_;
  uint64_t delivered_ = 0;
  std::vector<Arrived> arrived_;  // [sequence % kFlowWindow]
  Timers timers_;
  std::vector<std::unique_ptr<Path>> paths_;
  std::deque<Event> events_;
  std::vector<uint64_t> sent_;
  LinkMessage reported_{};  // last, on whatever path
  LinkMessage held_{};      // kind 0: none
  uint32_t held_path_ = 0;
  uint64_t held_until_ns_ = Timers::kNever;
  uint64_t offers_void_ = 0;
  bool awaited_ = false;  // a sender may wait for the report that is held, to have its buffer back
  std::string failure_;
};

}  // namespace starling::link::tcp
