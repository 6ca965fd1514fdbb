// Two links in one thread whose paths are taken for RDMA: sockets that say they are queue pairs, that may
// read what is registered until they are fenced, and that record the fence. So what must be fenced before a
// buffer is given back can be seen where there is no device (docs/design/0015-verbs.md, Quarantine).
#pragma once
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "link/carry/peer_link.h"
#include "link/doors.h"
#include "link/two_hosts.h"
#include "machine/cpu/futex.h"

namespace starling::link::carry {

// What the paths of one rank have been, in the order in which they were opened.
struct FenceRecord {
  struct Opened {
    bool sends;
    uint64_t offers_void;  // that the peer was told
    bool fenced = false;
  };
  std::vector<Opened> paths;

  size_t living(bool sends) const {
    return size_t(std::count_if(paths.begin(), paths.end(),
                                [&](const Opened& path) { return path.sends == sends && !path.fenced; }));
  }
};

class RecordedChannel final : public Channel {
 public:
  RecordedChannel(FenceRecord& record, size_t number, std::unique_ptr<tcp::Connection> socket)
      : record_(record), number_(number), socket_(std::move(socket)) {}
  starling::LinkKind kind() const override { return starling::LinkKind::kVerbs; }
  int fd() const override { return socket_->fd(); }
  void queue(const LinkMessage& message, const ArrivalAges*) override { socket_->queue(message, nullptr); }
  bool queue(uint32_t epoch, uint64_t sequence, const Outgoing& transfer) override {
    if (!socket_->queue(epoch, sequence, transfer)) return false;
    if (transfer.source != nullptr && *transfer.source != nullptr) read_.insert(sequence);
    return true;
  }
  void free_below(uint64_t) override {}
  bool move_source(uint64_t sequence, const std::byte* to) override {
    return !read_.contains(sequence) && socket_->move_source(sequence, to);
  }
  void move_destination(const std::byte*, uint64_t, std::byte*) override {}
  bool waits_to_write() const override { return socket_->waits_to_write(); }
  int flush(std::vector<uint64_t>& sent) override { return socket_->flush(sent); }
  int read(FrameSink& sink) override { return socket_->read(sink); }
  int fence(FrameSink& sink) override {
    record_.paths[number_].fenced = true;
    return socket_->fence(sink);
  }

 private:
  FenceRecord& record_;
  const size_t number_;
  std::unique_ptr<tcp::Connection> socket_;
  std::set<uint64_t> read_;  // transfers whose source the device may read until the fence
};

class RecordedUpgrades final : public Upgrades {
 public:
  std::unique_ptr<Upgrade> begin_sending(const tcp::Port&) override {
    return std::make_unique<Recorded>(record, true, 0);
  }
  std::unique_ptr<Upgrade> begin_receiving(const tcp::Port&, uint32_t, uint64_t offers_void) override {
    return std::make_unique<Recorded>(record, false, offers_void);
  }
  FenceRecord record;

 private:
  class Recorded final : public Upgrade {
   public:
    Recorded(FenceRecord& record, bool sends, uint64_t offers_void)
        : record_(record), opened_{sends, offers_void} {
      ours_.count = 1;
    }
    const QueuePairs& ours() const override { return ours_; }
    std::unique_ptr<Channel> finish(const QueuePairs&, std::unique_ptr<tcp::Connection> socket) override {
      record_.paths.push_back(opened_);
      return std::make_unique<RecordedChannel>(record_, record_.paths.size() - 1, std::move(socket));
    }

   private:
    FenceRecord& record_;
    const FenceRecord::Opened opened_;
    QueuePairs ours_{};
  };
};

// A rank with a lane; its peer's calls come at two ports.
class FencedHost {
 public:
  FencedHost(uint32_t rank, tcp::Reactor& reactor)
      : rank_(rank),
        reactor_(reactor),
        arena_({kArenaBytes}),
        place_(arena_, {}),
        ports_(2, tcp::usable_ports("lo").front()),
        doors_(
            reactor, ports_,
            [this](const Hello& hello, std::unique_ptr<tcp::Connection> connection, const tcp::Port& port) {
              link_->adopt(hello, std::move(connection), port, cpu::monotonic_ns());
            }) {}

  void attach(FencedHost& other) {
    tcp::TimerLengths lengths;
    lengths.reopen_ns = lengths.longest_reopen_ns = 2'000'000;
    lengths.probe_ns = 60'000'000'000;  // a machine that is busy is no silent path
    RemoteRank remote;
    remote.arena = other.arena_.name();
    remote.rank = other.rank_;
    const Common common{arena_,
                        reactor_,
                        &upgrades_,
                        nullptr,
                        lengths,
                        Policy::kPrimaryBackup,
                        identity_of(arena_.name()),
                        kArenaBytes,
                        -1,
                        mismatch_,
                        false,
                        false};
    std::vector<std::pair<tcp::Port, tcp::Port>> paths;
    for (size_t p = 0; p < ports_.size(); ++p) paths.emplace_back(ports_[p], other.ports_[p]);
    link_.emplace(common, remote, paths, cpu::monotonic_ns());
    seen_ = std::make_unique<cpu::PeerArena>(link_->shadow_name());
    const LaneLayout layout(kShape);
    lane_ = reinterpret_cast<LaneShared*>(arena_.at(arena_.allocate(layout.region_bytes)));
    layout.describe(*lane_, kShape);
    lane_->rank = rank_;
    channels_ = std::make_shared<Channels>(
        place_, ChannelShape{kShape.channels, kShape.private_slots, kShape.slot_bytes});
    link_->open_lane(lane_, channels_,
                     {1, 2, kShape.size, rank_, 1 - rank_, kShape.channels, kShape.private_slots,
                      kShape.slot_bytes, 0, kShape.board_size, 0, 0});
  }
  bool pair() {
    LaneShared* theirs = seen_->find_lane(1, 2);
    if (theirs != nullptr) link_->pair(kLane, theirs, nullptr);
    return theirs != nullptr;
  }

  // As a block does, of message k, which lies at `source`.
  void name(uint64_t k, const std::byte* source, uint32_t bytes) {
    const Credit& credit = *channels_->arrivals().credit;
    std::memcpy(channels_->slot(channels_->departures(), 0, credit.grants[k % kMaxCredits]), &source,
                sizeof source);
    Inbox& inbox = *channels_->departures().inbox;
    inbox.bytes[k % kMaxCredits] = bytes | kElsewhere;
    released(inbox.posted, k + 1);
  }
  // The slot of message k, which was read.
  void grant(uint64_t k) {
    Credit& credit = *channels_->departures().credit;
    const uint64_t granted = k + kShape.private_slots;
    credit.grants[granted % kMaxCredits] = uint32_t(k % kShape.private_slots);
    released(credit.granted, granted + 1);
  }
  bool may_name(uint64_t k) const { return acquired(channels_->arrivals().credit->granted) > k; }
  uint64_t posted() const { return acquired(channels_->arrivals().inbox->posted); }
  const std::byte* slot_of(uint64_t k) const {
    return channels_->slot(channels_->arrivals(), 0, uint32_t(k % kShape.private_slots));
  }
  // The peer has left the lane, as its host says in our region.
  void note_left() { released(withdrawals_of(lane_)[1 - rank_].out, uint64_t(1)); }

  static constexpr uint32_t kLane = 0;
  PeerLink& link() { return *link_; }
  const FenceRecord& record() const { return upgrades_.record; }

 private:
  const uint32_t rank_;
  tcp::Reactor& reactor_;
  cpu::Arena arena_;
  cpu::CpuPlace place_;
  std::atomic<bool> mismatch_{false};
  RecordedUpgrades upgrades_;
  std::vector<tcp::Port> ports_;
  std::shared_ptr<Channels> channels_;
  std::unique_ptr<cpu::PeerArena> seen_;
  LaneShared* lane_ = nullptr;
  std::optional<PeerLink> link_;
  tcp::Doors doors_;
};

struct FencedHosts {
  FencedHosts() : a(0, reactor), b(1, reactor) {
    a.attach(b);
    b.attach(a);
  }
  void look() {
    reactor.poll(0);
    for (FencedHost* host : {&a, &b}) host->link().round(cpu::monotonic_ns());
  }
  // False: not within a bound that only a hang reaches.
  template <class Done>
  bool look_until(Done&& done) {
    const auto end = std::chrono::steady_clock::now() + kBound;
    for (look(); !done(); look())
      if (std::chrono::steady_clock::now() > end) return false;
    return true;
  }
  // Both have heard all that was said, by paths that are all open.
  bool settle() {
    return look_until([&] {
      for (FencedHost* host : {&a, &b})
        if (host->link().unsaid() > 0 || host->record().living(true) != 2 ||
            host->record().living(false) != 2)
          return false;
      return true;
    });
  }
  bool join() { return settle() && a.pair() && b.pair(); }

  tcp::Reactor reactor;
  FencedHost a, b;
};

}  // namespace starling::link::carry
