// Messages between two ranks: each (source, destination, tag) is a lane of its own, one of copies where copy
// engines move it.
#include "comm/communicator.h"

namespace starling {

Departure Communicator::pair_departure(const starling_operation& call, uint32_t peer, RequestPtr request,
                                       const Capture& capture) {
  const bool sends = call.kind == STARLING_SEND;
  const bool copies = goes_by_copies(call, capture);
  Departure departure{nullptr, flight_of(call, lowering_of_pair(call, peer), std::move(request))};
  if (copies)
    lower_to_copies(departure.flight.lowered, sends ? 0 : 1,
                    {members_[sends ? rank_ : peer], members_[sends ? peer : rank_]});
  departure.lane =
      sends ? &pair_lane(rank_, peer, call.tag, copies) : &pair_lane(peer, rank_, call.tag, copies);
  return departure;
}

// To or from that rank: 0 sends, 1 receives.
LoweringContext Communicator::lowering_of_pair(const starling_operation& call, uint32_t peer) {
  return lowering(call.kind == STARLING_SEND ? 0u : 1u, 2, members_[peer].peer.way != nullptr);
}

// Misuse is told to the caller, not to the partner that comes later, or to the poller.
void Communicator::check_pair_call(const starling_operation& call) {
  lower(lowering_of_pair(call, call.peer < 0 ? rank_ : uint32_t(call.peer)), call);
}

HostLane& Communicator::pair_lane(uint32_t source, uint32_t destination, uint64_t tag, bool copies) {
  const std::tuple pair(source, destination, tag, copies);
  if (const auto found = pair_lanes_.find(pair); found != pair_lanes_.end()) return *found->second;
  const std::string name = pair_name(source, destination, tag, copies);
  const LaneKey key = remember(key_of(key_, name));
  const uint32_t own = rank_ == source ? 0 : 1;
  const std::vector<Member> members{members_[source], members_[destination]};
  const monitor::FlightPlace place{flight_group_, int32_t(source), int32_t(destination)};
  HostLane& lane = copies ? context_.copy_lane(key, name, own, members, &control(), place)
                          : context_.lane(key, name, own, members, LaneUse::kAnySize, &control(), place);
  pair_lanes_.emplace(pair, &lane);
  return lane;
}

std::string Communicator::pair_name(uint32_t source, uint32_t destination, uint64_t tag, bool copies) const {
  return std::to_string(source) + "->" + std::to_string(destination) + " tag " + std::to_string(tag) +
         (copies ? " sm_free" : "");
}

}  // namespace starling
