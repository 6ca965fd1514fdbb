// How a lane finds those of its peers, and leaves them.
#include <atomic>

#include "comm/lane.h"
#include "link/carry/proxy.h"
#include "machine/cpu/doorbell.h"

namespace starling {
namespace {

// Withdrawal::met. Relaxed: nothing else is read because of it. An owner that misses a peer's word only keeps
// its region in the directory longer than it had to.
constexpr uint64_t kMet = 1;
constexpr uint64_t kLeft = 2;
std::atomic_ref<uint64_t> met(LaneShared& owner, uint32_t peer) {
  return std::atomic_ref<uint64_t>(withdrawals_of(&owner)[peer].met);
}

}  // namespace

bool HostLane::lingered(uint64_t now_ns) {
  constexpr uint64_t kLingerNs = 50'000'000;  // a store over NVLink or the bus takes microseconds
  if (place_.traits().direct) return true;
  if (abandoned_ns_ == 0) abandoned_ns_ = now_ns;
  return now_ns - abandoned_ns_ >= kLingerNs;
}

bool HostLane::resolve() { return find_peers(true); }

// `connects`: our blocks are to write there.
bool HostLane::find_peers(bool connects) {
  if (shared_ == nullptr) return false;  // whom it meets it tells where its own region is
  bool any = false;
  for (uint32_t peer = 0; unresolved_ > 0 && peer < size(); ++peer) {
    if (peer == rank() || peers_[peer] != nullptr) continue;
    if (member(peer).peer.way != nullptr && !published_) continue;  // that has no number of ours yet
    LaneShared* found = member(peer).peer.arena->find_lane(options_.key.low, options_.key.high);
    // Of another size it is no lane of these ranks: their link ends (link/carry/arrivals.cc).
    if (found == nullptr || found->size != size()) continue;
    if (met(*found, rank()).load(std::memory_order_relaxed) == kLeft) continue;
    if (PeerMemory* const memory = member(peer).peer.memory.get(); connects && memory != nullptr &&
                                                                   found->connectors_offset != 0 &&
                                                                   !memory->reaches(found->connectors_offset))
      continue;
    peers_[peer] = found;
    met(*found, rank()).store(kMet, std::memory_order_relaxed);
    if (member(peer).peer.way != nullptr) member(peer).peer.way->pair(numbers_[peer], found);
    --unresolved_;
    any = true;
    if (connects) connect(peer);
  }
  return any;
}

void HostLane::close(cpu::CpuMachine& host) {
  if (shared_ == nullptr) return;
  find_peers(false);
  // A lane of theirs may break later. Not after the next lines: their regions may then be used for others.
  withdraw(host);
  told_.assign(size(), true);
  // A peer that has not come yet must find out why the lane broke, not that we left. Or it may already have
  // all that it waits for: then it needs no more than to find us. Where blocks work on the host's memory that
  // stays while a peer maps it; memory of a GPU goes with its context.
  const bool broken = std::atomic_ref<uint64_t>(shared_->fault).load(std::memory_order_relaxed) != 0;
  const bool tells = broken ? !resolved() : !met_by_all();
  if (published_ && (!tells || (!broken && !place_.traits().direct)))
    arena_.unpublish(options_.key.low, options_.key.high, region_.offset);
  for (uint32_t peer = 0; published_ && carried_ && !tells && peer < size(); ++peer)
    if (member(peer).peer.way != nullptr) member(peer).peer.way->unpublish(numbers_[peer]);
  for (LaneShared* peer : peers_) {
    if (peer == nullptr) continue;
    met(*peer, rank()).store(kLeft, std::memory_order_relaxed);
    // Release: all that our blocks did in the peer's region came before; pairs with abandoned().
    std::atomic_ref<uint64_t>(peer->closed).fetch_add(1, std::memory_order_acq_rel);
  }
  closed_ = true;
  ring_shadows();
}

void HostLane::ring_shadows() const {
  for (uint32_t peer = 0; carried_ && peer < size(); ++peer)
    if (member(peer).peer.way != nullptr) cpu::ring(&member(peer).peer.arena->header()->host);
}

bool HostLane::met_by_all() const {
  for (uint32_t peer = 0; peer < size(); ++peer)
    if (peer != rank() && met(*shared_, peer).load(std::memory_order_relaxed) == 0) return false;
  return true;
}

bool HostLane::abandoned() const {
  return shared_ == nullptr ||
         // Acquire: pairs with the peers' additions in close(); after it nobody touches the region.
         std::atomic_ref<uint64_t>(shared_->closed).load(std::memory_order_acquire) == size() - 1;
}

}  // namespace starling
