// What a rank owes, and is owed, after a lane broke amid operations: slots of its pool that peers may still
// write to, and buffers that peers may still read, because messages named them (protocol pull). Both end when
// the peer has withdrawn.
//
//   fault seen ──▶ our blocks leave the lane ──▶ withdraw(): each peer is told
//                                           └──▶ a peer has told us ──▶ slots go back to the pool (recover)
//                                                all that could read ─▶ kept requests end        (give_back)
//
// No circle: to withdraw a rank waits for its own blocks alone, and they leave a broken lane at their next
// look at its fault, at the latest behind the instruction they are in. It withdraws before it waits.
//
// No torn result passes for a right one: a rank withdraws when it knows of the fault and the completions of
// all its operations in the lane were read. Those that it took for successful before had all their reads
// behind them, of buffers that their owners had not got back: the owner waits for the withdrawal, or the
// operation itself waited until all was read (Interpreter::wait_for_readers).
#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/log.h"
#include "comm/context.h"
#include "device/withdrawal.h"

namespace starling {
namespace {

constexpr uint64_t kReadersNs = 2'000'000'000;  // a peer that does not withdraw keeps a request so long
// A peer that is well leaves the lane a few milliseconds after it heard of the fault, behind all that is
// under way. Without it paths are broken, which are open again after 50 ms: to wait longer would spare
// nothing.
constexpr uint64_t kDevicesNs = 30'000'000;
constexpr uint64_t kGivesBackEveryNs = 100'000;

// Do peers read its caller's buffers, which our messages have named, or do their copy engines write there?
bool is_used_by_peers(const Flight& flight) {
  if (flight.lowered.by_copies)
    return flight.lowered.operation.buffers[uint32_t(BufferKind::kOutput)].base != nullptr;
  return flight.lowered.plan->protocol() == Protocol::kPull;
}

const char* use_by_peers(const Flight& flight) {
  if (flight.lowered.by_copies) return "written";
  const PlanView plan{flight.lowered.operation.plan};
  for (uint32_t n = 0; n < plan.header->instruction_count; ++n)
    if (plan.instructions()[n].opcode == Opcode::recv && (plan.instructions()[n].flags & kPut) != 0)
      return "written, and read,";
  return "read";
}

std::string still_used_text(const HostLane& lane, const Flight& flight,
                            const std::vector<uint32_t>& readers) {
  std::string who;
  for (const uint32_t peer : readers)
    who += (who.empty() ? "rank " : ", rank ") + std::to_string(lane.member(peer).world_rank);
  return "; rank " + std::to_string(lane.member(lane.rank()).world_rank) + "'s buffers may still be " +
         use_by_peers(flight) + " by " + who +
         ", which has not left the lane within 2 s; remedy: keep them, unchanged, until its own request " +
         "has ended";
}

}  // namespace

// ---- the lane -----------------------------------------------------------------------------------------

void HostLane::withdraw(cpu::CpuMachine& host) {
  for (uint32_t peer = 0; peer < size(); ++peer) {
    if (peers_[peer] == nullptr || told_[peer]) continue;
    if (!device::withdraw(host, idle_on_device() ? 0 : 1, &withdrawals_of(peers_[peer])[rank()].out)) return;
    told_[peer] = true;
    cpu::ring(&member(peer).peer.arena->header()->host);
  }
}

// A dead process, and one that has left, touches nothing any more either.
bool HostLane::is_out(cpu::CpuMachine& host, uint32_t peer) const {
  return device::has_withdrawn(host, &withdrawals_of(shared_)[peer].out) || abandoned() ||
         !member(peer).peer.arena->alive();
}

// A peer that we never connected got no message of ours, so it knows no address.
std::vector<uint32_t> HostLane::readers(cpu::CpuMachine& host) const {
  std::vector<uint32_t> readers;
  for (uint32_t peer = 0; peer < size(); ++peer)
    if (peers_[peer] != nullptr && !is_out(host, peer)) readers.push_back(peer);
  return readers;
}

// Our blocks touch the lane no more, so once is enough. False: they are on their way.
bool HostLane::read_receives() {
  if (receives_ == nullptr) receives_ = place_.begin_read(image_.receives, ends() * sizeof(ReceiveEnd));
  return receives_->ended();
}

bool HostLane::recover(cpu::CpuMachine& host, std::vector<uint32_t>& slots) {
  bool all = true;
  std::vector<bool> out(size(), true);
  for (uint32_t peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    out[peer] = is_out(host, peer);
    all = all && out[peer] && (told_[peer] || abandoned() || !member(peer).peer.arena->alive());
  }
  if (!read_receives()) return false;
  const uint64_t count = receives_->failed() ? 0 : ends();
  for (uint64_t end = 0; end < count; ++end) {
    ReceiveEnd receive;
    std::memcpy(&receive, receives_->bytes().data() + end * sizeof receive, sizeof receive);
    if (recovered_[end] || receive.peer == rank() || !out[receive.peer]) continue;
    recovered_[end] = true;
    for (uint64_t k = receive.received; k < receive.granted; ++k)
      if (const uint32_t slot = receive.grants[k % kMaxCredits]; slot >= kPoolSlot) slots.push_back(slot);
  }
  settled_ = all;
  return all;
}

// ---- its context --------------------------------------------------------------------------------------

void Context::break_lane(const LaneKey& key, FaultKind kind, const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(key);
  if (found == lanes_.end()) return;
  HostLane& lane = *found->second;
  lane.resolve();
  starling::break_lane(lane, kind, lane.next_sequence(), text);
  // Who came meanwhile may have looked at our region before the fault was there.
  if (lane.resolve()) starling::break_lane(lane, kind, lane.next_sequence(), text);
  if (lane.shared() != nullptr) fail_waiting(lane, fault_of(lane));
}

// Lanes that nobody here uses break too: their peers wait to hear that we touch nothing of theirs.
void Context::find_broken_lanes() {
  // Acquire: pairs with the release in write_fault(); the faults that it counts are readable.
  const uint64_t faults = std::atomic_ref<uint64_t>(arena_->header()->faults).load(std::memory_order_acquire);
  if (faults == faults_seen_) return;
  faults_seen_ = faults;
  auto look = [this](HostLane* lane, auto&& broken) {
    if (lane == nullptr || lane->shared() == nullptr || !broken(*lane)) return;
    if (!lane->settled() && std::find(broken_.begin(), broken_.end(), lane) == broken_.end())
      broken_.push_back(lane);
  };
  for (HostLane* lane : lanes_by_id_) look(lane, is_broken);
  // Peers' regions of these may be others' by now.
  for (const auto& lane : closed_lanes_) look(lane.get(), is_told_broken);
}

// No operation comes to the device after the fault: once those that are there have ended, our blocks touch
// the lane no more, and we say so. What we had lent to peers comes back when they have said it. True: all
// done.
bool Context::settle(HostLane& lane) {
  if (!lane.idle_on_device()) return false;
  if (lane.may_replay()) {  // what begins from here on finds the fault at its start
    lane.show_fault(uint64_t(told_fault(lane).kind));
    if (!lane.fault_is_known()) return false;
    if (lane.captures() != nullptr) lane.look_at_replays(host_machine_, cpu::monotonic_ns());
    if (!lane.idle_on_device()) return false;
  }
  lane.resolve();  // a peer that comes late may still lend us slots, until it sees the fault
  lane.withdraw(host_machine_);
  std::vector<uint32_t> slots;
  const bool all = lane.recover(host_machine_, slots);
  for (const uint32_t slot : slots)
    unsubmitted_.push_back({{slot, 0, 0, 0, uint64_t(memory_.owner_of(slot)) + 1}, 0});
  if (!slots.empty()) flush_submissions(true);
  return all;
}

// Of a broken lane, an operation that our device is through with: ends it, or keeps it while peers may read
// what it gave them to read.
void Context::end_broken(HostLane& lane, Flight&& flight, const Fault& fault) {
  const bool by_links = flight.on_device && lane.is_used_by_devices();
  if (flight.on_device && !by_links) lane.take_back_buffers();
  if (!by_links && (!flight.on_device || !is_used_by_peers(flight)))
    return end(flight, status_of(fault.kind), fault.text);
  // Whoever broke the lane may not know all the peers that read our buffers. They have to hear of it: to
  // withdraw, and to take nothing that they read from now on for a result.
  starling::break_lane(lane, fault.kind, flight.sequence, fault.text);
  lane.kept().push_back({std::move(flight), status_of(fault.kind), fault.text,
                         cpu::monotonic_ns() + (by_links ? kDevicesNs : kReadersNs), by_links});
  if (std::find(keeping_.begin(), keeping_.end(), &lane) == keeping_.end()) keeping_.push_back(&lane);
}

// Requests of kept operations end where nobody reads their buffers any more. True if any did.
bool Context::give_back() {
  bool any = false;
  std::erase_if(keeping_, [&](HostLane* lane) {
    lane->withdraw(host_machine_);
    const std::vector<uint32_t> readers = lane->readers(host_machine_);
    const bool by_links = lane->is_used_by_devices();
    const uint64_t now = cpu::monotonic_ns();
    std::erase_if(lane->kept(), [&](KeptFlight& kept) {
      if ((kept.by_links ? by_links : !readers.empty()) && now < kept.until_ns) return false;
      if (kept.by_links) {
        lane->take_back_buffers();
      } else if (!readers.empty()) {
        kept.message += still_used_text(*lane, kept.flight, readers);
        lane->keep(kept.flight.lowered.bounced);
        log(LogLevel::warn, kept.message);
      }
      end(kept.flight, kept.status, kept.message);
      return any = true;
    });
    return lane->kept().empty();
  });
  return any;
}

// The context ends, and its daemon has: our blocks touch nothing any more. Those of peers may.
void Context::end_everything() {
  const Fault fault{FaultKind::kAborted, "the context was destroyed while the operation was under way"};
  std::vector<HostLane*> lanes;
  for (const auto& [key, lane] : lanes_) lanes.push_back(lane.get());
  for (const auto& lane : closed_lanes_) lanes.push_back(lane.get());
  for (HostLane* const lane : lanes) {
    if (!lane->busy() || lane->shared() == nullptr) continue;
    // Peers need not wait for their timeouts to hear of it.
    starling::break_lane(*lane, fault.kind, lane->next_sequence(),
                         "a rank destroyed its context while an operation was under way in lane '" +
                             lane->name() + "'; remedy: finish all operations before");
    for (Flight& flight : lane->take_waiting(true)) end_broken(*lane, std::move(flight), fault);
  }
  while (!keeping_.empty())
    if (!give_back()) std::this_thread::sleep_for(std::chrono::nanoseconds(kGivesBackEveryNs));
}

}  // namespace starling
