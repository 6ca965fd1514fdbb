// Do all ranks mean the same operation at one position of a lane? (contract, point 6)
//
// Each rank writes what it is about to do on its board, fences, and reads the boards of its peers. Of two
// ranks that do different things the later one, at least, sees it, before it moves a byte; it then breaks the
// lane on every rank. A rank that was ahead and had finished learns of it at its next call in the lane.
#pragma once
#include <optional>
#include <string>

#include "comm/lane.h"

namespace starling {

// Says how many operations this rank has submitted to the lane; what any-source receives look for.
void post_call(HostLane& lane);
// Have all peers called the operation, as far as is known?
bool was_called_by_all(const HostLane& lane, uint64_t sequence);
// Peers need not wait for this rank before they begin the operation (LaneShared::arrived).
void post_arrival(HostLane& lane, uint64_t sequence);
bool have_all_arrived(const HostLane& lane, uint64_t sequence);

// Writes the board of this rank.
void post_signature(HostLane& lane, const Flight& flight);

// Compares with the peers that are there. The text names ranks, position and both sides. `begins`: the
// operation has sent nothing yet, so a peer that is long past its position never wanted a message of it.
std::optional<std::string> find_mismatch(const HostLane& lane, const Flight& flight, bool begins);

std::string describe(const HostLane& lane, const Signature& signature);

struct Fault {
  FaultKind kind = FaultKind::kNone;
  std::string text;
  uint64_t sequence = 0;
};

// Breaks the lane here and on all peers that are there, and wakes them. The first fault of a rank stays;
// there is one here when this returns.
void break_lane(HostLane& lane, FaultKind kind, uint64_t sequence, const std::string& text);

// A fault that a peer has and we have not yet is taken over first.
bool is_broken(HostLane& lane);
// kNone while the lane is whole. As is_broken(), with the text.
Fault fault_of(HostLane& lane);
// Only what this rank or a peer wrote into our own region: cheap, and needs no lock once the lane is open.
bool is_told_broken(const HostLane& lane);
Fault told_fault(const HostLane& lane);

starling_status status_of(FaultKind kind);

}  // namespace starling
