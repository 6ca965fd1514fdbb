// The two ends of a flow in a guest (init.sh): each a thread with devices of its own. Every byte that comes
// is checked; sources and places are used again as soon as they may be.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "link/doors.h"
#include "link/tcp/port_watch.h"
#include "link/tcp/receiving_flow.h"
#include "link/tcp/sending_flow.h"
#include "link/verbs/rails.h"
#include "machine/cpu/futex.h"
#include "verbs/faults.h"

namespace starling::link {

inline constexpr uint64_t kSlots = 16;
inline constexpr uint32_t kMostBytes = 8192;
inline constexpr uint64_t kBoundNs = 60'000'000'000;

inline uint32_t payload_bytes(uint64_t sequence) {
  const uint32_t kinds[] = {0, 8, 4096, kMostBytes, 1000, 64};
  return kinds[sequence * 2654435761 % 6];
}
inline std::byte value(uint64_t sequence, uint64_t at) {
  return std::byte(sequence * 131 + at * 7 + (at >> 8));
}

// Memory that both ends know: what a program on top of them would agree on.
struct Shared {
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> accepted_ns{0};      // when the last one was
  std::atomic<uint64_t> longest_gap_ns{0};   // between two
  std::atomic<uint32_t> accepted_epoch{0};
  std::atomic<uint64_t> epoch_ns{0};         // when the first one of that epoch was
  std::atomic<uint64_t> destinations{0};
  RemoteKeys keys = {};
  std::atomic<bool> damaged{false};
};

struct Options {
  uint32_t paths = 2;
  Policy policy = Policy::kPrimaryBackup;
  verbs::RailOptions rails = {{.timeout = guest::patient_timeout(14)}, kMostBytes};
  bool receiver_has_rails = true;
  bool bad_key = false;
  uint64_t give_up_ns = 40'000'000'000;
  bool patient = true;  // an emulated processor that others use, too, must not be taken for a silent path
};

inline tcp::TimerLengths lengths_of(const Options& options) {
  tcp::TimerLengths lengths;
  lengths.connect_ns = guest::patiently(5'000'000'000);
  lengths.answer_ns = guest::patiently(lengths.answer_ns);
  lengths.longest_reopen_ns = 200'000'000;
  lengths.give_up_ns = guest::patiently(options.give_up_ns);
  if (options.patient) {
    lengths.watchdog_ns = guest::patiently(300'000'000);
    lengths.probe_ns = guest::patiently(1'500'000'000);
  }
  return lengths;
}

inline std::vector<tcp::Port> ports_of(char end, uint32_t count) {
  std::string names;
  for (uint32_t k = 0; k < count; ++k) names += (k ? "," : "") + std::string(1, end) + std::to_string(k);
  return tcp::usable_ports(names);
}

// A thread that turns one end.
class End {
 public:
  explicit End(const Options& options) : options_(options) {}
  virtual ~End() = default;
  std::mutex& mutex() { return mutex_; }

 protected:
  void begin() {
    thread_ = std::thread([this] {
      while (!ending_) {
        reactor_.sleep(1);
        std::lock_guard lock(mutex_);
        const uint64_t now = cpu::monotonic_ns();
        reactor_.poll(0);
        turn(now);
      }
    });
  }
  void end() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
  }
  virtual void turn(uint64_t now) = 0;
  virtual void port_changed(uint32_t interface_index, bool up) = 0;
  void open_rails(const std::vector<tcp::Port>& ports, std::vector<std::byte>& memory) {
    std::string why;
    rails_ = verbs::open_rails(
        reactor_, options_.rails, [this](uint32_t index, bool up) { port_changed(index, up); }, why);
    if (rails_ == nullptr) throw guest::Failure{why};
    rails_->open(ports);
    memory_ = verbs::enroll(rails_->devices(), {memory.data(), memory.size()});
    if (memory_ == nullptr) throw guest::Failure{"cannot register"};
  }

  const Options options_;
  tcp::Reactor reactor_;
  std::unique_ptr<verbs::Rails> rails_;
  RegistrationPtr memory_;
  std::mutex mutex_;

 private:
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

class ReceivingEnd final : public End, private tcp::TransferSink {
 public:
  ReceivingEnd(const Options& options, Shared& shared)
      : End(options), shared_(shared), ports_(ports_of('b', options.paths)), places_(kSlots * kMostBytes) {
    if (options.receiver_has_rails) {
      open_rails(ports_, places_);
      shared.keys = memory_->remote_keys;
    }
    shared_.destinations = reinterpret_cast<uint64_t>(places_.data());
    doors_.emplace(reactor_, ports_, [this](const Hello& hello, auto connection, const tcp::Port& port) {
      called(hello, std::move(connection), port);
    });
    watch_.emplace(reactor_, [this](uint32_t index, bool up) { port_changed(index, up); });
    begin();
  }
  ~ReceivingEnd() override { end(); }

  const std::vector<tcp::Port>& ports() const { return ports_; }
  std::string failure() {
    std::lock_guard lock(mutex_);
    return flow_ ? flow_->failure() : "";
  }

 private:
  void called(const Hello& hello, std::unique_ptr<tcp::Connection> connection, const tcp::Port& port) {
    if (!flow_)
      flow_.emplace(hello.path_count, Policy(hello.policy), 0, lengths_of(options_), reactor_,
                    static_cast<tcp::TransferSink&>(*this), cpu::monotonic_ns(), rails_.get());
    flow_->adopt(hello, std::move(connection), port);
  }
  void turn(uint64_t now) override {
    if (!flow_) return;
    flow_->pump();
    flow_->expire(now);
    flow_->pump();
  }
  void port_changed(uint32_t index, bool up) override {
    if (flow_) flow_->port_changed(index, up);
  }
  std::byte* destination(const FrameHeader& header) override {
    return places_.data() + header.place[0] * kMostBytes;
  }
  void accept(const FrameHeader& header, const std::byte* control) override {
    const uint64_t expected = shared_.accepted;
    uint64_t number;
    std::memcpy(&number, control, sizeof number);
    const std::byte* slot = places_.data() + (expected % kSlots) * kMostBytes;
    bool right = number == expected && header.payload_bytes == payload_bytes(expected);
    for (uint32_t at = 0; right && at < header.payload_bytes; ++at) right = slot[at] == value(expected, at);
    if (!right) shared_.damaged = true;
    const uint64_t now = cpu::monotonic_ns(), last = shared_.accepted_ns;
    if (last != 0) shared_.longest_gap_ns = std::max<uint64_t>(shared_.longest_gap_ns, now - last);
    shared_.accepted_ns = now;
    if (header.epoch != shared_.accepted_epoch) shared_.epoch_ns = now;
    shared_.accepted_epoch = header.epoch;
    ++shared_.accepted;
  }

  Shared& shared_;
  std::vector<tcp::Port> ports_;
  std::vector<std::byte> places_;
  std::optional<tcp::Doors> doors_;
  std::optional<tcp::ReceivingFlow> flow_;
  std::optional<tcp::PortWatch> watch_;
};

class SendingEnd final : public End, private tcp::TransferSource {
 public:
  // rings: one a path, or none.
  SendingEnd(const Options& options, Shared& shared, const std::vector<tcp::Port>& theirs,
             std::vector<PathRing*> rings = {})
      : End(options),
        shared_(shared),
        ports_(ports_of('a', options.paths)),
        registered_(kSlots * kMostBytes),
        plain_(kSlots * kMostBytes) {
    open_rails(ports_, registered_);
    keys_ = shared.keys;
    for (uint32_t& key : keys_.of)
      if (options.bad_key && key != 0) key ^= 0x5500;
    flow_.emplace(tcp::SendingOptions{1, 2, 1, options.policy, tcp::pair_ports(ports_, theirs),
                                      lengths_of(options), std::move(rings), rails_.get()},
                  reactor_, static_cast<tcp::TransferSource&>(*this), cpu::monotonic_ns());
    watch_.emplace(reactor_, [this](uint32_t index, bool up) { port_changed(index, up); });
    begin();
  }
  ~SendingEnd() override { end(); }

  void set_limit(uint64_t limit) { limit_ = limit; }
  uint64_t down_event_ns() const { return down_event_ns_; }
  SenderState state() {
    std::lock_guard lock(mutex_);
    return flow_->state();
  }
  std::string failure() {
    std::lock_guard lock(mutex_);
    return flow_->failure();
  }

 private:
  void turn(uint64_t now) override {
    for (int twice = 0; twice < 2; ++twice) {
      offer();
      flow_->pump();
      flow_->expire(now);
    }
  }
  // What has a free source and place.
  void offer() {
    const uint64_t end = std::min(limit_.load(), std::min(shared_.accepted.load(), flow_->acked()) + kSlots);
    for (; offered_ < end; ++offered_) {
      numbers_[offered_ % kSlots] = offered_;
      std::byte* slot = source(offered_);
      for (uint32_t at = 0; at < payload_bytes(offered_); ++at) slot[at] = value(offered_, at);
    }
    if (end > flow_->posted()) flow_->offer(end);
  }
  std::byte* source(uint64_t sequence) {
    return (sequence % 2 ? registered_ : plain_).data() + sequence % kSlots * kMostBytes;
  }
  // Every way that a payload can go: from registered memory into its place or by the ring, or by the ring
  // from other memory.
  Outgoing transfer(uint64_t sequence) override {
    Outgoing out;
    out.control = reinterpret_cast<const std::byte*>(&numbers_[sequence % kSlots]);
    out.control_bytes = sizeof(uint64_t);
    out.payload = source(sequence);
    out.payload_bytes = payload_bytes(sequence);
    out.place[0] = sequence % kSlots;
    out.source = sequence % 2 ? &memory_ : nullptr;
    if (sequence / 2 % 3 != 0)
      out.remote = {shared_.destinations + sequence % kSlots * kMostBytes, keys_, 0, Placed::kInSlot};
    return out;
  }
  void port_changed(uint32_t index, bool up) override {
    if (!up && index == ports_.front().index && down_event_ns_ == 0) down_event_ns_ = cpu::monotonic_ns();
    flow_->port_changed(index, up);
  }

 public:
  void forget_event() { down_event_ns_ = 0; }

 private:
  Shared& shared_;
  std::vector<tcp::Port> ports_;
  std::vector<std::byte> registered_, plain_;
  uint64_t numbers_[kSlots] = {};
  RemoteKeys keys_ = {};
  std::atomic<uint64_t> limit_{0};
  std::atomic<uint64_t> down_event_ns_{0};
  uint64_t offered_ = 0;
  std::optional<tcp::SendingFlow> flow_;
  std::optional<tcp::PortWatch> watch_;
};

}  // namespace starling::link
