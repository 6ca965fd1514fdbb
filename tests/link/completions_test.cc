// Goal: over what sockets become, transfers are recorded by its own completions and under its name; a path
// that comes back as a socket is one again, and one that does not come back says why. Method: TCP's rig with
// an upgrade that keeps the socket and holds back what it says of transfers, as a device does, until the test
// tells it in an order of its own.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "link/tcp_rig.h"
#include "monitor/path_ring.h"

namespace starling::link::conformance {
namespace {

struct Device {
  bool there = true;
  bool holds = false;
  const char* trouble = "";
  std::vector<uint64_t> held;
};

class DeviceChannel final : public Channel {
 public:
  DeviceChannel(Device& device, std::unique_ptr<tcp::Connection> socket)
      : device_(device), socket_(std::move(socket)) {}
  starling::LinkKind kind() const override { return starling::LinkKind::kVerbs; }
  int fd() const override { return socket_->fd(); }
  void queue(const LinkMessage& message, const ArrivalAges*) override { socket_->queue(message, nullptr); }
  bool queue(uint32_t epoch, uint64_t sequence, const Outgoing& transfer) override {
    return socket_->queue(epoch, sequence, transfer);
  }
  void free_below(uint64_t acked) override { socket_->free_below(acked); }
  bool move_source(uint64_t sequence, const std::byte* to) override {
    return socket_->move_source(sequence, to);
  }
  void move_destination(const std::byte* from, uint64_t bytes, std::byte* to) override {
    socket_->move_destination(from, bytes, to);
  }
  bool waits_to_write() const override { return socket_->waits_to_write(); }
  int flush(std::vector<uint64_t>& sent) override {
    const int error = socket_->flush(device_.held);
    if (device_.holds) return error;
    sent.insert(sent.end(), device_.held.rbegin(), device_.held.rend());
    device_.held.clear();
    return error;
  }
  int read(FrameSink& sink) override { return socket_->read(sink); }
  int fence(FrameSink& sink) override { return socket_->fence(sink); }
  const char* trouble() const override { return device_.trouble; }

 private:
  Device& device_;
  std::unique_ptr<tcp::Connection> socket_;
};

class DeviceUpgrade final : public Upgrade {
 public:
  DeviceUpgrade(Device& device, bool sending) : device_(device), sending_(sending) { ours_.count = 1; }
  const QueuePairs& ours() const override { return ours_; }
  std::unique_ptr<Channel> finish(const QueuePairs&, std::unique_ptr<tcp::Connection> socket) override {
    if (!sending_) return socket;
    return std::make_unique<DeviceChannel>(device_, std::move(socket));
  }

 private:
  Device& device_;
  const bool sending_;
  QueuePairs ours_{};
};

class DeviceUpgrades final : public Upgrades {
 public:
  explicit DeviceUpgrades(Device& device) : device_(device) {}
  std::unique_ptr<Upgrade> begin_sending(const tcp::Port&) override { return begin(true); }
  std::unique_ptr<Upgrade> begin_receiving(const tcp::Port&, uint32_t, uint64_t) override {
    return begin(false);
  }

 private:
  std::unique_ptr<Upgrade> begin(bool sending) {
    return device_.there ? std::make_unique<DeviceUpgrade>(device_, sending) : nullptr;
  }
  Device& device_;
};

std::vector<TransferRecord> records_of(const PathRing& ring) {
  std::vector<TransferRecord> all;
  monitor::PathReader reader(ring);
  for (TransferRecord record; reader.next(record);) all.push_back(record);
  return all;
}

template <class Test>
void checked(Test&& test) {
  try {
    test();
  } catch (const Failure& failure) {
    FAIL() << failure.why;
  }
}

TEST(Completions, AreWhatIsRecorded) {
  checked([] {
    constexpr uint64_t kHeld = 20;
    Device devices[2];
    uint32_t made = 0;
    const auto ring = std::make_unique<PathRing>();
    TcpRig rig({.paths = 1, .patient = true}, 0, {ring.get()},
               [&] { return std::make_unique<DeviceUpgrades>(devices[made++]); });
    EXPECT_EQ(ring->link, starling::LinkKind::kVerbs);
    devices[0].holds = true;
    rig.deliver(kHeld);
    EXPECT_EQ(rig.acked(0), kHeld) << "its reports have come";
    EXPECT_EQ(ring->written, 0u);
    const uint64_t told_ns = rig.now_ns();
    devices[0].holds = false;
    rig.deliver(1);
    rig.run_until("completions", [&] { return devices[0].held.empty() && ring->left_bytes == 0; });
    const std::vector<TransferRecord> records = records_of(*ring);
    ASSERT_EQ(records.size(), kHeld + 1);
    for (uint64_t k = 0; k < records.size(); ++k) {
      EXPECT_EQ(records[k].bytes, sizeof(uint64_t) + rig.traffic[0].bytes(k));
      EXPECT_LE(k > 0 ? records[k - 1].posted_ns : 0, records[k].posted_ns);
      EXPECT_LE(k > 0 ? records[k - 1].completed_ns : told_ns, records[k].completed_ns);
      EXPECT_EQ(k < kHeld, records[k].posted_ns < told_ns);
    }
  });
}

TEST(Completions, OfAPathThatBecameASocketAreNone) {
  checked([] {
    Device devices[2];
    uint32_t made = 0;
    const auto rings = std::make_unique<std::array<PathRing, 2>>();
    TcpRig rig({.patient = true}, 0, {&(*rings)[0], &(*rings)[1]},
               [&] { return std::make_unique<DeviceUpgrades>(devices[made++]); });
    rig.deliver(20);
    for (Device& device : devices) device.there = false;
    rig.fail(0, kCut);
    rig.run_until("the other path", [&] { return rig.uses(2); });
    rig.heal(0);
    rig.run_until("the first path", [&] { return rig.uses(1); });
    EXPECT_EQ((*rings)[0].link, starling::LinkKind::kTcp);
    EXPECT_EQ((*rings)[1].link, starling::LinkKind::kVerbs);
    const uint64_t before = (*rings)[0].written;
    rig.deliver(20);
    EXPECT_EQ((*rings)[0].written, before + 20);
  });
}

// When the flow gives up, each path waits for an answer to its hello.
TEST(Completions, WhatADeviceDiedOfIsToldAmidAnotherConnection) {
  checked([] {
    Device devices[2];
    uint32_t made = 0;
    TcpRig rig({.give_up_ns = 1'500'000'000}, 0, {},
               [&] { return std::make_unique<DeviceUpgrades>(devices[made++]); });
    rig.deliver(20);
    const std::string trouble = devices[0].trouble = "a cable that mice ate";
    rig.add(1);
    for (const uint32_t path : {0u, 1u}) rig.fail(path, kSilent);
    rig.run_until("an error", [&] { return !rig.failure(0, 0).empty(); });
    const std::string text = rig.failure(0, 0);
    EXPECT_NE(text.find(trouble), std::string::npos) << text;
    EXPECT_NE(text.find(trouble), text.rfind(trouble)) << "not of both paths: " << text;
  });
}

// With queue pairs it is said in the answer, behind which no socket is read where those are refused.
TEST(Completions, WhoCallsALinkThatBrokeHearsItAtOnce) {
  for (const bool queue_pairs : {false, true})
    checked([&] {
      Device devices[2];
      uint32_t made = 0;
      TcpRig::MakeUpgrades upgrades;
      if (queue_pairs) upgrades = [&] { return std::make_unique<DeviceUpgrades>(devices[made++]); };
      TcpRig rig({}, 0, {}, upgrades);
      rig.deliver(20);
      if (queue_pairs) rig.only_queue_pairs(0);
      rig.give_up(1);
      rig.run_until("an error", [&] { return !rig.failure(0, 0).empty(); });
      EXPECT_NE(rig.failure(0, 0).find("rank 1 gave up"), std::string::npos) << rig.failure(0, 0);
    });
}

// Nobody has started yet.
class LateRig final : public SocketRig {
 public:
  LateRig(Device (&devices)[2], uint64_t give_up_ns)
      : SocketRig({.give_up_ns = give_up_ns}, 100'000, tcp::TimerLengths()) {
    for (uint32_t rank = 0; rank < 2; ++rank)
      add_end(rank, std::vector<tcp::Port>(2, tcp::usable_ports("lo").front())).upgrades =
          std::make_unique<DeviceUpgrades>(devices[rank]);
    for (uint32_t from = 0; from < 2; ++from) SocketRig::connect(from, ends_[1 - from]->ports);
    give_up(1);
    only_queue_pairs(0);
  }
  void fail(uint32_t, Fault) override {}
  void heal(uint32_t) override {}
};

TEST(Completions, WhoCallsALinkThatBrokeHearsItBeforeItHasStarted) {
  checked([] {
    Device devices[2];
    LateRig rig(devices, 100'000'000'000);
    rig.run_until("an error", [&] { return !rig.failure(0, 0).empty(); });
    EXPECT_NE(rig.failure(0, 0).find("rank 1 gave up"), std::string::npos) << rig.failure(0, 0);
  });
}

}  // namespace
}  // namespace starling::link::conformance
