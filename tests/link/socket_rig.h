// Flows over sockets as a link of the conformance suite, and over what sockets become (link/tcp/upgrade.h):
// two ranks on one thread, each with a reactor, a listener at each port, and a flow in each direction. Who
// derives from it says how paths fail.
#pragma once
#include <unistd.h>

#include <cstring>
#include <optional>

#include "link/conformance.h"
#include "link/doors.h"
#include "link/tcp/both_ways.h"
#include "link/tcp/port_watch.h"
#include "machine/cpu/futex.h"

namespace starling::link::conformance {

class SocketRig : public Rig {
 public:
  void turn() override {
    bool any = false;
    for (const auto& end : ends_)
      if (end && !end->held) any |= end->turn();
    if (!any) usleep(100);
  }
  uint64_t now_ns() const override { return cpu::monotonic_ns(); }
  void offer(uint32_t from, uint64_t end) override { ends_[from]->sending->offer(end); }
  uint64_t acked(uint32_t from) const override {
    return ends_[from] ? ends_[from]->sending->acked() : traffic[from].accepted;
  }
  uint64_t transmitted(uint32_t from) const override { return sender(from)->transmitted; }
  uint64_t credit() const override { return kFlowWindow; }
  uint64_t watchdog_ns() const override { return lengths_.watchdog_ns; }
  void hold(uint32_t rank, bool held) override { ends_[rank]->held = held; }
  const SenderState* sender(uint32_t from) const override {
    return ends_[from] ? &ends_[from]->sending->state() : nullptr;
  }
  void die() override { ends_[1].reset(); }
  void only_queue_pairs(uint32_t from) { ends_[from]->sending->only_queue_pairs(); }
  // As a link does that broke: its flows go without a word, and who calls hears of it.
  void give_up(uint32_t rank) {
    ends_[rank]->gave_up = true;
    ends_[rank]->receiving.reset();
  }
  std::string failure(uint32_t rank, uint32_t from) const override {
    if (!ends_[rank]) return "";
    if (rank == from) return ends_[rank]->sending->failure();
    return ends_[rank]->receiving ? ends_[rank]->receiving->failure() : "";
  }
  std::string port_name(uint32_t path) const override {
    const tcp::Port& port = ends_[0]->ports[path];
    return port.name + " " + tcp::address_text(port.address);
  }

 protected:
  class End;
  SocketRig(const RigOptions& options, uint32_t most_bytes, const tcp::TimerLengths& lengths)
      : Rig(options, most_bytes), policy_(options.policy), lengths_(lengths) {
    lengths_.give_up_ns = options.give_up_ns;
    if (options.patient)
      lengths_.watchdog_ns = lengths_.idle_watchdog_ns = lengths_.probe_ns = 40'000'000'000;
    if (!options.asks_when_idle) lengths_.idle_watchdog_ns = 1'000'000'000'000;
    if (options.answers_late) lengths_.probe_ns = 40'000'000'000;
  }
  End& add_end(uint32_t rank, std::vector<tcp::Port> ports) {
    ends_[rank] = std::make_unique<End>(*this, rank, std::move(ports));
    return *ends_[rank];
  }
  // `theirs`: where they are called at, by path. `rings`: one a path, or none.
  void connect(uint32_t rank, const std::vector<tcp::Port>& theirs, std::vector<PathRing*> rings = {}) {
    End& end = *ends_[rank];
    std::vector<std::pair<tcp::Port, tcp::Port>> paths;
    for (size_t p = 0; p < theirs.size(); ++p) paths.emplace_back(end.ports[p], theirs[p]);
    end.sending.emplace(tcp::SendingOptions{rank, 1 - rank, 1 - rank, policy_, std::move(paths), lengths_,
                                            std::move(rings), end.upgrades.get()},
                        end.reactor, static_cast<tcp::TransferSource&>(end), cpu::monotonic_ns());
  }
  void start() {
    run_until("a start", [&] { return sender(0)->path_count != 0 && sender(1)->path_count != 0; });
  }

  class End final : public tcp::TransferSource, public tcp::TransferSink {
   public:
    End(SocketRig& rig, uint32_t rank, std::vector<tcp::Port> listens)
        : rig_(rig),
          rank_(rank),
          ports(std::move(listens)),
          doors_(reactor, ports, [this](const Hello& hello, auto connection, const tcp::Port& port) {
            called(hello, std::move(connection), port);
          }) {}
    bool turn() {
      const uint64_t now = cpu::monotonic_ns();  // before the sockets: timers end after what had come
      const bool any = reactor.poll(0) > 0;
      if (receiving) receiving->pump();
      tcp::expire(*sending, receiving ? &*receiving : nullptr, now);
      return any;
    }
    void port_changed(uint32_t interface_index, bool up) {
      sending->port_changed(interface_index, up);
      if (receiving) receiving->port_changed(interface_index, up);
    }

    Outgoing transfer(uint64_t k) override {
      Outgoing out;
      uint64_t& number = numbers_[k % kFlowWindow];
      number = k;
      out.control = reinterpret_cast<const std::byte*>(&number);
      out.control_bytes = sizeof number;
      const auto source = rig_.traffic[rank_].source(k);
      out.payload = source.data();
      out.payload_bytes = uint32_t(source.size());
      out.place[0] = k;
      return out;
    }
    std::byte* destination(const FrameHeader& header) override {
      return rig_.traffic[1 - rank_].place(header.place[0]);
    }
    void accept(const FrameHeader& header, const std::byte* control) override {
      uint64_t number;
      std::memcpy(&number, control, sizeof number);
      rig_.traffic[1 - rank_].accept(number, header.payload_bytes);
    }

   private:
    void called(const Hello& hello, std::unique_ptr<tcp::Connection> connection, const tcp::Port& port) {
      if (gave_up) return connection->give_up(hello);
      if (!receiving)
        receiving.emplace(hello.path_count, Policy(hello.policy), 1 - rank_, rig_.lengths_, reactor,
                          static_cast<tcp::TransferSink&>(*this), cpu::monotonic_ns(), upgrades.get());
      receiving->adopt(hello, std::move(connection), port);
    }

    SocketRig& rig_;
    const uint32_t rank_;
    uint64_t numbers_[kFlowWindow] = {};

   public:
    tcp::Reactor reactor;
    std::vector<tcp::Port> ports;
    bool held = false;
    bool gave_up = false;
    // Before the flows that use them, after the reactor that they use.
    std::unique_ptr<Upgrades> upgrades;
    std::optional<tcp::PortWatch> watch;

   private:
    tcp::Doors doors_;

   public:
    std::optional<tcp::SendingFlow> sending;
    std::optional<tcp::ReceivingFlow> receiving;
  };

  const Policy policy_;
  tcp::TimerLengths lengths_;
  std::unique_ptr<End> ends_[2];
};

}  // namespace starling::link::conformance
