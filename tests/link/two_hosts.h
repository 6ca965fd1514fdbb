// Two ranks in one process as if on two hosts: a segment and a proxy each, one lane between them, and what
// hosts and blocks would store. For tests of link/carry.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "link/carry/proxy.h"
#include "machine/cpu/arena.h"
#include "machine/cpu/doorbell.h"
#include "machine/cpu/place.h"
#include "wire/lane_layout.h"

namespace starling::link::carry {

inline constexpr auto kBound = std::chrono::seconds(60);
inline constexpr uint64_t kArenaBytes = 16 << 20;
inline constexpr LaneShape kShape{2, 1, 2, 4096, 0, 8};

// False: not within a bound that only a hang reaches.
template <class Done>
bool wait_until(Done&& done) {
  const auto end = std::chrono::steady_clock::now() + kBound;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

template <class T>
T acquired(const T& word) {
  // Pairs with the releases of proxies.
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}
template <class T>
void released(T& word, T value) {
  // Pairs with the acquires of proxies.
  std::atomic_ref<T>(word).store(value, std::memory_order_release);
}

inline std::byte value_of(uint64_t message, uint64_t at) { return std::byte(message * 131 + at * 7); }

class Host {
 public:
  Host(uint32_t rank, const tcp::TimerLengths& lengths, const std::string& interfaces, bool polls)
      : rank_(rank), arena_({kArenaBytes}), place_(arena_, {}, true) {
    ProxyOptions options;
    options.polls = polls;
    options.interfaces = interfaces;
    options.lengths = lengths;
    options.shadow_bytes = kArenaBytes;
    proxy_ = std::make_unique<Proxy>(arena_, options);
  }

  Proxy& proxy() { return *proxy_; }
  const std::string& name() const { return arena_.name(); }
  Way& way() { return *way_; }
  LaneShared* lane() { return lane_; }
  ArenaHeader* shadow() { return seen_->header(); }
  LaneShared* theirs() { return theirs_; }
  ArenaHeader* header() { return arena_.header(); }
  void leave() { proxy_.reset(); }

  // `ports`: where it is called at; "": where it listens.
  void attach(Host& other, const std::string& ports = "") {
    RemoteRank remote;
    remote.arena = other.arena_.name();
    remote.rank = other.rank_;
    attach(remote, ports.empty() ? other.proxy_->ports() : ports);
  }
  void attach(const RemoteRank& remote, const std::string& ports) {
    way_ = &proxy_->attach(remote, ports);
    seen_ = std::make_unique<cpu::PeerArena>(way_->shadow_name());
  }

  void open_lane(bool slots_on_device = false) {
    const LaneLayout layout(kShape);
    const uint64_t offset = arena_.allocate(layout.region_bytes);
    lane_ = reinterpret_cast<LaneShared*>(arena_.at(offset));
    layout.describe(*lane_, kShape);
    lane_->rank = rank_;
    const ChannelShape shape{kShape.channels, kShape.private_slots, kShape.slot_bytes};
    std::unique_ptr<SlotsOnDevice> slots;
    if (slots_on_device) {
      slots = std::make_unique<SlotsOnDevice>(place_, 2 * Channels::slots_bytes(shape));
      slots->seal(std::make_shared<Registration>());
    }
    channels_ = std::make_shared<Channels>(place_, shape, std::move(slots));
    number_ = way_->open_lane(lane_, channels_,
                              {1, 2, kShape.size, rank_, 1 - rank_, kShape.channels, kShape.private_slots,
                               kShape.slot_bytes, 0, kShape.board_size, slots_on_device, 0});
  }
  // Of the other's lane, once it is here. False: the link failed.
  bool pair() {
    const bool came = wait_until([&] {
      theirs_ = seen_->find_lane(1, 2);
      return theirs_ != nullptr || failed();
    });
    if (!came || theirs_ == nullptr) return false;
    way_->pair(number_, theirs_);
    return true;
  }
  uint32_t number() const { return number_; }
  bool failed() { return !way_->failure().empty(); }

  // As send(), of a message that lies at `source`. ring: its carrier hears of it at once.
  bool name(uint64_t k, const std::byte* source, uint32_t bytes, bool rings = true) {
    const Credit& credit = *channels_->arrivals().credit;
    if (!wait_until([&] { return acquired(credit.granted) > k || failed(); })) return false;
    std::memcpy(channels_->slot(channels_->departures(), 0, credit.grants[k % kMaxCredits]), &source,
                sizeof source);
    Inbox& inbox = *channels_->departures().inbox;
    inbox.bytes[k % kMaxCredits] = bytes | kElsewhere;
    released(inbox.posted, k + 1);
    if (rings) cpu::ring(&shadow()->daemon);
    return true;
  }
  uint64_t taken() { return acquired(channels_->arrivals().credit->taken); }
  // Of a message that is there: did it come to where it was wanted, and not into its slot?
  bool is_in_place(uint64_t k) {
    return (channels_->arrivals().inbox->bytes[k % kMaxCredits] & kElsewhere) != 0;
  }
  const std::byte* slot_of(uint64_t k) {
    return channels_->slot(channels_->arrivals(), 0, uint32_t(k % kShape.private_slots));
  }
  // The slot of message k, which was read.
  void grant(uint64_t k) {
    Credit& credit = *channels_->departures().credit;
    const uint64_t granted = k + kShape.private_slots;
    credit.grants[granted % kMaxCredits] = uint32_t(k % kShape.private_slots);
    released(credit.granted, granted + 1);
    cpu::ring(&shadow()->daemon);
  }

  bool may_send(uint64_t k) { return acquired(channels_->arrivals().credit->granted) > k; }
  // What a sending block does. False: the link failed before there was a grant.
  bool send(uint64_t k, uint32_t bytes, bool rings = true) {
    const Credit& credit = *channels_->arrivals().credit;
    if (!wait_until([&] { return acquired(credit.granted) > k || failed(); })) return false;
    if (acquired(credit.granted) <= k) return false;
    std::byte* slot = channels_->slot(channels_->departures(), 0, credit.grants[k % kMaxCredits]);
    for (uint32_t at = 0; at < bytes; ++at) slot[at] = value_of(k, at);
    Inbox& inbox = *channels_->departures().inbox;
    inbox.bytes[k % kMaxCredits] = bytes;
    released(inbox.posted, k + 1);
    if (rings && !proxy_->polls()) cpu::ring(&shadow()->daemon);
    return true;
  }
  // What a receiving block does: takes the message, checks it, and grants its slot again.
  bool receive(uint64_t k, uint32_t bytes) {
    const Inbox& inbox = *channels_->arrivals().inbox;
    if (!wait_until([&] { return acquired(inbox.posted) > k || failed(); })) return false;
    if (acquired(inbox.posted) <= k) return false;
    // Slots are granted in turn, so message k lies in this one.
    const uint32_t number = uint32_t(k % kShape.private_slots);
    const std::byte* slot = channels_->slot(channels_->arrivals(), 0, number);
    for (uint32_t at = 0; at < bytes; ++at)
      if (slot[at] != value_of(k, at)) {
        ADD_FAILURE() << "message " << k << ", byte " << at;
        return false;
      }
    Credit& credit = *channels_->departures().credit;
    const uint64_t granted = k + kShape.private_slots;
    credit.grants[granted % kMaxCredits] = number;
    released(credit.granted, granted + 1);
    if (!proxy_->polls()) cpu::ring(&shadow()->daemon);
    return true;
  }
  uint64_t posted() { return acquired(channels_->arrivals().inbox->posted); }

  // As post_signature() does (comm/matching.cc).
  void post_board(uint64_t sequence, uint64_t count, bool rings = true) {
    Signature& entry = board_of(lane_)[sequence % kShape.board_size];
    std::atomic_ref<uint64_t>(entry.count).store(count, std::memory_order_relaxed);
    released(lane_->submitted, sequence + 1);
    released(entry.position, sequence + 1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (rings) ring();
  }
  void ring() { cpu::ring(&shadow()->host); }

 private:
  const uint32_t rank_;
  cpu::Arena arena_;
  cpu::CpuPlace place_;
  std::unique_ptr<Proxy> proxy_;
  std::shared_ptr<Channels> channels_;
  Way* way_ = nullptr;
  std::unique_ptr<cpu::PeerArena> seen_;
  LaneShared* lane_ = nullptr;
  LaneShared* theirs_ = nullptr;
  uint32_t number_ = 0;
};

struct TwoHosts {
  explicit TwoHosts(const tcp::TimerLengths& lengths = {}, const std::string& of_a = "lo",
                    const std::string& of_b = "lo", bool polls = false)
      : a(0, lengths, of_a, polls), b(1, lengths, of_b, polls) {}
  bool join() {
    a.attach(b);
    b.attach(a);
    a.open_lane();
    b.open_lane();
    return a.pair() && b.pair();
  }
  Host a, b;
};

}  // namespace starling::link::carry
