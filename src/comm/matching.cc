#include "comm/matching.h"

#include <algorithm>
#include <atomic>

#include "comm/transfers.h"
#include "machine/cpu/doorbell.h"
#include "machine/cpu/lane_fault.h"
#include "wire/lane_layout.h"

namespace starling {
namespace {

constexpr uint32_t kWords = sizeof(Signature) / sizeof(uint64_t);

uint64_t load(const uint64_t& word, std::memory_order order) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(order);
}
void store(uint64_t& word, uint64_t value, std::memory_order order) {
  std::atomic_ref<uint64_t>(word).store(value, order);
}

// Word by word: the owner may overwrite the entry while a peer that is far behind reads it.
void copy_words(uint64_t* to, const uint64_t* from, uint32_t words) {
  for (uint32_t w = 0; w < words; ++w)
    store(to[w], load(from[w], std::memory_order_relaxed), std::memory_order_relaxed);
}

Signature& signature_of(LaneShared* shared, uint64_t sequence) {
  return board_of(shared)[sequence % shared->board_size];
}

enum class Reading { kNotThere, kThere, kLongPast };

// kLongPast: the peer has finished what it did there.
Reading read_signature(LaneShared* shared, uint64_t sequence, Signature& out) {
  Signature& entry = signature_of(shared, sequence);
  // Acquire: pairs with the release of `position` in post_signature().
  uint64_t position = load(entry.position, std::memory_order_acquire);
  if (position == sequence + 1) {
    copy_words(reinterpret_cast<uint64_t*>(&out), reinterpret_cast<uint64_t*>(&entry), kWords);
    std::atomic_thread_fence(std::memory_order_acquire);  // the words before the second look
    position = load(entry.position, std::memory_order_relaxed);
    if (position == sequence + 1) return Reading::kThere;
  }
  return position > sequence + 1 ? Reading::kLongPast : Reading::kNotThere;
}

// Does the operation send the peer any message?
bool sends_to(const HostLane& lane, const Flight& flight, uint32_t peer) {
  if (flight.lowered.by_copies) {  // then the plan counts for its hash alone
    const auto sends = transfers_of(flight.lowered, lane.rank(), lane.size()).sends;
    return std::any_of(sends.begin(), sends.end(),
                       [peer](const Transfer& one) { return one.peer == peer && one.bytes > 0; });
  }
  const PlanView plan{flight.lowered.plan->header(lane.rank())};
  Operation op = flight.lowered.operation;
  op.plan = plan.header;
  op.tile_bytes = 1;  // it may have no tiles yet
  for (uint32_t b = 0; b < plan.header->block_count; ++b) {
    const BlockPlan& block = plan.blocks()[b];
    for (uint32_t n = 0; n < block.instruction_count; ++n) {
      const Instruction& i = plan.instructions()[block.instruction_first + n];
      if (!sends(i.opcode) || message_count(op, i) == 0) continue;
      for (uint32_t k = 0; k < i.send_count; ++k)
        if (plan.connections()[block.send_first + i.send_first + k].peer == peer) return true;
    }
  }
  return false;
}

bool same(const Signature& a, const Signature& b) {
  return a.collective == b.collective && a.data_type == b.data_type && a.reduce_op == b.reduce_op &&
         a.varying == b.varying && a.root == b.root && a.count == b.count && a.plan_hash == b.plan_hash &&
         a.counts_hash == b.counts_hash;
}

std::string rank_name(const HostLane& lane, uint32_t rank) {
  return "rank " + std::to_string(lane.member(rank).world_rank);
}

std::optional<std::string> compare_traffic(const HostLane& lane, const Flight& flight, uint32_t peer) {
  if (!flight.lowered.signature.varying) return std::nullopt;
  Traffic theirs;
  copy_words(reinterpret_cast<uint64_t*>(&theirs),
             reinterpret_cast<uint64_t*>(traffic_of(lane.peer_shared(peer), flight.sequence) + lane.rank()),
             2);
  const Traffic& ours = flight.lowered.traffic[peer];
  if (ours.sent_bytes != theirs.received_bytes)
    return rank_name(lane, lane.rank()) + " sends " + std::to_string(ours.sent_bytes) + " bytes to " +
           rank_name(lane, peer) + ", which expects " + std::to_string(theirs.received_bytes);
  if (ours.received_bytes != theirs.sent_bytes)
    return rank_name(lane, peer) + " sends " + std::to_string(theirs.sent_bytes) + " bytes to " +
           rank_name(lane, lane.rank()) + ", which expects " + std::to_string(ours.received_bytes);
  return std::nullopt;
}

// Not in the region, where texts have little room.
const char* remedy_of(FaultKind kind, const std::string& text) {
  switch (kind) {
    case FaultKind::kMismatch:
      if (text.find("send/recv of") != std::string::npos)
        return "; remedy: let sender and receiver call the same number of elements of the same type for each "
               "message between them with this tag, in the same order";
      return "; remedy: let every rank call the same operation with the same arguments at each position of a "
             "lane, "
             "and name lanes where ranks call in different orders";
    case FaultKind::kTimeout:
      if (text.find(" has not ") == std::string::npos)
        return "; remedy: all have called it: see with `starling diagnose` whose part of it stands still, or "
               "allow more time (STARLING_TIMEOUT_S, or the communicator's timeout)";
      return "; remedy: see what the rank that has not called it does (`starling diagnose` names it), let no "
             "ranks "
             "wait for each other in a circle, or allow more time (STARLING_TIMEOUT_S, or the communicator's "
             "timeout)";
    default: return "";
  }
}

}  // namespace

void post_call(HostLane& lane) {
  // Release: pairs with the acquires in Communicator::match_any_source() and was_called_by_all(). Nothing but
  // the count is read by it.
  // A proxy takes it along when it looks for the operation's messages: nobody is rung for it.
  store(lane.shared()->submitted, lane.next_sequence(), std::memory_order_release);
}

bool was_called_by_all(const HostLane& lane, uint64_t sequence) {
  for (uint32_t peer = 0; peer < lane.size(); ++peer) {
    if (peer == lane.rank()) continue;
    const LaneShared* const theirs = lane.peer_shared(peer);
    // Acquire: pairs with the release in post_call(). The count alone is told.
    if (theirs == nullptr || load(theirs->submitted, std::memory_order_acquire) <= sequence) return false;
  }
  return true;
}

// Relaxed, both: who hears of it begins to wait in the operation, and nothing else is read because of it.
void post_arrival(HostLane& lane, uint64_t sequence) {
  uint64_t& arrived = lane.shared()->arrived;
  if (load(arrived, std::memory_order_relaxed) <= sequence)
    store(arrived, sequence + 1, std::memory_order_relaxed);
}

bool have_all_arrived(const HostLane& lane, uint64_t sequence) {
  for (uint32_t peer = 0; peer < lane.size(); ++peer) {
    if (peer == lane.rank()) continue;
    const LaneShared* const theirs = lane.peer_shared(peer);
    if (theirs == nullptr) return false;
    // What ended before its host looked for arrivals was not told.
    if (load(theirs->arrived, std::memory_order_relaxed) <= sequence &&
        load(theirs->completed, std::memory_order_relaxed) <= sequence)
      return false;
  }
  return true;
}

void post_signature(HostLane& lane, const Flight& flight) {
  LaneShared* shared = lane.shared();
  Signature& entry = signature_of(shared, flight.sequence);
  store(entry.position, 0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // no new word is seen with the old position
  Signature signature = flight.lowered.signature;
  signature.deadline_ns = flight.deadline_ns;
  copy_words(reinterpret_cast<uint64_t*>(&entry) + 1, reinterpret_cast<uint64_t*>(&signature) + 1,
             kWords - 1);
  if (signature.varying)
    copy_words(reinterpret_cast<uint64_t*>(traffic_of(shared, flight.sequence)),
               reinterpret_cast<const uint64_t*>(flight.lowered.traffic.data()), 2 * lane.size());
  // Release: the entry before its position; pairs with the acquire in read_signature().
  store(entry.position, flight.sequence + 1, std::memory_order_release);
  // Our board before our look at the others': the later of two ranks sees the earlier one. Between hosts
  // "sees" is the proxy's comparison, after the same two steps (link/carry/arrivals.cc).
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::optional<std::string> find_mismatch(const HostLane& lane, const Flight& flight, bool begins) {
  for (uint32_t peer = 0; peer < lane.size(); ++peer) {
    LaneShared* shared = peer == lane.rank() ? nullptr : lane.peer_shared(peer);
    if (shared == nullptr) continue;
    Signature theirs;
    const Reading reading = read_signature(shared, flight.sequence, theirs);
    const auto where = [&] {
      return "in lane '" + lane.name() + "' at position " + std::to_string(flight.sequence);
    };
    // Of what is captured boards say nothing of that.
    if (reading == Reading::kLongPast && begins && lane.captures() == nullptr && sends_to(lane, flight, peer))
      return "operations do not match " + where() + ": " + rank_name(lane, lane.rank()) + " calls " +
             describe(lane, flight.lowered.signature) + ", " + rank_name(lane, peer) +
             " has gone on from there without its message (after an operation of no elements, say)";
    if (reading != Reading::kThere) continue;
    if (!same(theirs, flight.lowered.signature)) {
      Signature ours = flight.lowered.signature;
      const bool plans_only = describe(lane, ours) == describe(lane, theirs);
      return "operations do not match " + where() + ": " + rank_name(lane, lane.rank()) + " calls " +
             describe(lane, ours) + ", " + rank_name(lane, peer) + " calls " + describe(lane, theirs) +
             (plans_only ? " (by another plan or other counts: settings or counts differ between ranks)"
                         : "");
    }
    if (auto text = compare_traffic(lane, flight, peer))
      return "operations do not match " + where() + ": in " + describe(lane, theirs) + " " + *text;
  }
  return std::nullopt;
}

std::string describe(const HostLane& lane, const Signature& s) {
  std::string text = collective_name(s.collective);
  if (s.varying || s.counts_hash != 0)
    text += " of varying counts of ";
  else
    text += " of " + std::to_string(s.count) + " ";
  text += data_type_name(s.data_type);
  const bool reduces = s.collective == Collective::kAllReduce || s.collective == Collective::kReduce ||
                       s.collective == Collective::kReduceScatter;
  const bool rooted = s.collective == Collective::kBroadcast || s.collective == Collective::kReduce ||
                      s.collective == Collective::kGather || s.collective == Collective::kScatter;
  if (reduces) text += std::string(", ") + reduce_op_name(s.reduce_op);
  if (rooted && uint32_t(s.root) < lane.size()) text += ", root " + rank_name(lane, uint32_t(s.root));
  if (s.in_place != 0) text += ", in place";
  return text;
}

void break_lane(HostLane& lane, FaultKind kind, uint64_t sequence, const std::string& text) {
  for (uint32_t peer = 0; peer < lane.size(); ++peer) {
    if (peer == lane.rank() || lane.peer_shared(peer) == nullptr) continue;
    ArenaHeader* header = lane.member(peer).peer.arena->header();
    cpu::write_fault(lane.peer_shared(peer), header, lane.rank(), uint64_t(kind), sequence, text.c_str());
    cpu::ring(&header->daemon);
    cpu::ring(&header->host);
  }
  if (lane.shared() == nullptr) return;
  cpu::write_own_fault(lane.shared(), lane.arena().header(), uint64_t(kind), sequence, text.c_str());
  cpu::ring(lane.doorbell());
}

bool is_broken(HostLane& lane) {
  LaneShared* own = lane.shared();
  if (own == nullptr) return false;
  if (is_told_broken(lane)) return true;
  // A peer that broke the lane before our region was there could not tell us.
  for (uint32_t peer = 0; peer < lane.size(); ++peer) {
    LaneShared* shared = peer == lane.rank() ? nullptr : lane.peer_shared(peer);
    if (shared == nullptr) continue;
    // Acquire: as in is_told_broken().
    const uint64_t fault = load(shared->fault, std::memory_order_acquire);
    if (fault == 0) continue;
    const FaultNote& note = cpu::note_of(*shared, fault);
    cpu::write_own_fault(own, lane.arena().header(), uint64_t(fault_kind(fault)), note.sequence, note.text);
    cpu::ring(lane.doorbell());
    return true;
  }
  return false;
}

Fault fault_of(HostLane& lane) { return is_broken(lane) ? told_fault(lane) : Fault{}; }

// Acquire: pairs with the release in write_fault(); after it the text is readable.
bool is_told_broken(const HostLane& lane) {
  return load(lane.shared()->fault, std::memory_order_acquire) != 0;
}

Fault told_fault(const HostLane& lane) {
  // Acquire: as in is_told_broken().
  const uint64_t fault = load(lane.shared()->fault, std::memory_order_acquire);
  const FaultKind kind = fault_kind(fault);
  if (kind == FaultKind::kNone) return {};
  const FaultNote& note = cpu::note_of(*lane.shared(), fault);
  std::string text = note.text;
  if (text.find("remedy: ") == std::string::npos) text += remedy_of(kind, text);
  return {kind, text, note.sequence};
}

starling_status status_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone: return STARLING_SUCCESS;
    case FaultKind::kMismatch: return STARLING_MISMATCH;
    case FaultKind::kTimeout: return STARLING_TIMEOUT;
    case FaultKind::kPeerFailed: return STARLING_PEER_FAILED;
    case FaultKind::kAborted: return STARLING_ABORTED;
    case FaultKind::kInternal: return STARLING_INTERNAL;
  }
  return STARLING_INTERNAL;
}

}  // namespace starling
