// Messages that the communicator itself matches: those to this rank, and receives from any source.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace starling {

RequestPtr Communicator::submit_to_self(const starling_operation& call, RequestPtr request) {
  check_pair_call(call);
  SelfQueue& queue = self_[call.tag];
  (call.kind == STARLING_SEND ? queue.sends : queue.receives).push_back({request, call});
  if (queue.sends.empty() || queue.receives.empty()) return request;
  SelfCall send = std::move(queue.sends.front());
  SelfCall receive = std::move(queue.receives.front());
  queue.sends.pop_front();
  queue.receives.pop_front();
  if (send.call.count != receive.call.count || send.call.data_type != receive.call.data_type) {
    const std::string text = "rank " + std::to_string(rank_) + " sends itself " +
                             std::to_string(send.call.count) + " elements and receives " +
                             std::to_string(receive.call.count);
    context_.fail(send.request, STARLING_MISMATCH, text);
    context_.fail(receive.request, STARLING_MISMATCH, text);
    return request;
  }
  try {
    if ((send.call.start == STARLING_START_NOW) != (receive.call.start == STARLING_START_NOW) ||
        send.call.stream != receive.call.stream)
      throw Error(Code::unsupported, "a rank's send to itself and its receive are on different streams",
                  "submit both on one stream");
    copy_to_self(send, receive);
  } catch (const std::exception& error) {
    for (const RequestPtr& end : {send.request, receive.request})
      context_.fail(end, status_of_exception(error), error.what());
  }
  return request;
}

void Communicator::copy_to_self(const SelfCall& send, const SelfCall& receive) {
  starling_operation both = send.call;
  both.output = receive.call.output;
  both.start = std::max(send.call.start, receive.call.start);
  const LoweringContext alone{0, 1, context_.block_count(), &context_.plans(), context_.on_gpu()};
  Flight flight = flight_of(both, alone, receive.request);
  flight.second = send.request;
  const std::string name = pair_name(rank_, rank_, both.tag, false);
  HostLane& lane = context_.lane(remember(key_of(key_, name)), name, 0, {Member{{}, rank_}},
                                 LaneUse::kAnySize, nullptr, {flight_group_, int32_t(rank_), int32_t(rank_)});
  context_.submit(lane, std::move(flight));
}

// A sender's region says how many messages it has for us; one that we have not taken yet is a match.
bool Communicator::match_any_source(AnySource& receive) {
  SelfQueue& own = self_[receive.call.tag];
  starling_operation call = receive.call;
  if (!own.sends.empty()) {
    call.peer = int32_t(rank_);
    receive.request->set_source(call.peer);
    submit_to_self(call, receive.request);
    return true;
  }
  const bool copies = goes_by_copies(call, std::nullopt);
  for (uint32_t source = 0; source < size(); ++source) {
    if (source == rank_) continue;
    const LaneKey key = key_of(key_, pair_name(source, rank_, call.tag, copies));
    // A sender whose messages wait in our slots may have left: then its directory knows the lane no more.
    const LaneShared* theirs = context_.connected_peer(key, 0);
    if (theirs == nullptr) theirs = members_[source].peer.arena->find_lane(key.low, key.high);
    if (theirs == nullptr) continue;
    // Acquire: pairs with the release in post_call(). Nothing but the count is read by it.
    const uint64_t sent =
        std::atomic_ref<uint64_t>(const_cast<uint64_t&>(theirs->submitted)).load(std::memory_order_acquire);
    if (sent <= context_.submitted(pair_lane(source, rank_, call.tag, copies))) continue;
    call.peer = int32_t(source);
    receive.request->set_source(call.peer);
    Departure departure = pair_departure(call, source, receive.request, std::nullopt);
    submit_to(*departure.lane, std::move(departure.flight), std::nullopt);
    return true;
  }
  return false;
}

// The only one, which was called just now. What goes wrong is its caller's.
bool Communicator::match_at_once() {
  bool ended = true;
  const auto take_back = [&] {
    if (ended) any_source_.pop_back();
    note_unmatched();
  };
  try {
    ended = match_any_source(any_source_.back());
  } catch (...) {
    take_back();
    throw;
  }
  take_back();
  return ended;
}

// From now on. If that cannot be, the receive that asks for it was not called.
void Communicator::poll_by_context() {
  if (hooked_) return;
  try {
    context_.add_hook(this);
  } catch (...) {
    any_source_.pop_back();
    note_unmatched();
    throw;
  }
  hooked_ = true;
}

bool Communicator::poll() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  // In order: an earlier receive of the same tag is served first.
  if (const Fault fault = told_fault(control()); fault.kind != FaultKind::kNone) {
    end_unmatched(status_of(fault.kind), fault.text);
    return true;
  }
  std::vector<uint64_t> waiting_tags;
  for (auto it = any_source_.begin(); it != any_source_.end();) {
    const uint64_t tag = it->call.tag;
    const bool behind = std::find(waiting_tags.begin(), waiting_tags.end(), tag) != waiting_tags.end();
    if (!behind && matched_or_failed(*it)) {
      it = any_source_.erase(it);
    } else if (cpu::monotonic_ns() > it->deadline_ns) {
      context_.fail(
          it->request, STARLING_TIMEOUT,
          "rank " + std::to_string(rank_) + ": no rank sent a message with tag " + std::to_string(tag) +
              " within the timeout; remedy: see which rank should send it, and with which tag "
              "(`starling diagnose` says who waits), or allow more time (STARLING_TIMEOUT_S, or the "
              "communicator's timeout)");
      it = any_source_.erase(it);
    } else {
      waiting_tags.push_back(tag);
      ++it;
    }
  }
  note_unmatched();
  return true;
}

// For diagnosis: they wait in no lane.
void Communicator::note_unmatched() {
  const bool some = !any_source_.empty();
  if (some != std::exchange(unmatched_, some)) context_.count_unmatched(some);
  context_.flight().unmatched(flight_group_, any_source_.empty() ? 0 : any_source_.front().since_ns);
}

// On the poller's thread an error has no caller: it is the receive's.
bool Communicator::matched_or_failed(AnySource& receive) {
  try {
    return match_any_source(receive);
  } catch (const std::exception& error) {
    context_.fail(receive.request, status_of_exception(error), error.what());
    return true;
  }
}

}  // namespace starling
