// Which operations copy engines move, and their lanes (docs/design/0020-sm-free.md).
#include <algorithm>

#include "comm/communicator.h"
#include "comm/transfers.h"

namespace starling {

// Its own stream copies, and nobody else has a part in it. Not what would be scaled, or has no stream.
bool Communicator::goes_alone(const starling_operation& call, const Capture& capture) const {
  if (size() != 1 || !context_.on_gpu() || capture || call.algorithm != nullptr) return false;
  if (call.start == STARLING_START_NOW || uint32_t(call.data_type) >= kDataTypeCount) return false;
  switch (call.kind) {
    case STARLING_ALL_REDUCE:
    case STARLING_REDUCE_SCATTER:
    case STARLING_REDUCE: return call.reduce_op != STARLING_PREMUL_SUM;
    case STARLING_ALL_TO_ALL: return true;
    default: return only_moves(call) && !is_message(call);
  }
}

// A graph captures kernels, and who names an algorithm means its plan.
bool Communicator::goes_by_copies(const starling_operation& call, const Capture& capture) const {
  if (size() == 1) return goes_alone(call, capture);
  if (sm_free_ == SmFree::kNever || capture || call.algorithm != nullptr) return false;
  if (uint32_t(call.data_type) >= kDataTypeCount || !only_moves(call)) return false;
  const bool message = call.kind == STARLING_SEND || call.kind == STARLING_RECV;
  if (message ? call.peer == int32_t(rank_) : across_hosts_) return false;
  if (sm_free_ == SmFree::kAlways) return true;
  return moved_bytes(call, size()) >= (message ? kSmFreeBytes : kSmFreeCollectiveBytes);
}

// Of the plan that was chosen nothing counts but its hash, which is in the signature.
void Communicator::lower_to_copies(Lowered& lowered, uint32_t rank, const std::vector<Member>& members) {
  lowered.by_copies = true;
  lowered.opens = std::any_of(members.begin(), members.end(), [](const Member& member) {
    return member.peer.memory != nullptr && member.peer.memory->opened() != nullptr;
  });
  lowered.offered = {};
  if (!lowered.opens) return;
  for (const Transfer& receive : transfers_of(lowered, rank, uint32_t(members.size())).receives)
    if (receive.bytes > 0)
      lowered.offered.of[1].end = std::max(lowered.offered.of[1].end, receive.to + receive.bytes);
}

HostLane& Communicator::copy_lane(const char* name) {
  if (const auto found = copy_lanes_.find(name); found != copy_lanes_.end()) return *found->second;
  HostLane& lane = context_.copy_lane(remember(key_of(key_, std::string("copies/") + name)),
                                      std::string(name) + (size() == 1 ? " alone" : " sm_free"), rank_,
                                      members_, &control(), {flight_group_, -1, -1});
  copy_lanes_.emplace(name, &lane);
  return lane;
}

}  // namespace starling
