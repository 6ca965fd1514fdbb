// What both ends of a flow do alike with one path: ask, hear the answer, close.
#pragma once
#include "link/flow.h"
#include "link/link.h"

namespace starling::link {

inline PathSet bit(uint32_t path) { return PathSet(1u << path); }

inline bool is_open(const PathEnd& path) {
  return path.condition == PathCondition::kProbing || path.condition == PathCondition::kUp;
}

// The paths in this condition.
inline PathSet paths_that_are(const PathEnd (&paths)[kMaxPaths], PathCondition condition) {
  PathSet set = 0;
  for (uint32_t p = 0; p < kMaxPaths; ++p)
    if (paths[p].condition == condition) set |= bit(p);
  return set;
}

// Asks the peer to answer on this path, unless it was asked already.
inline void probe(Link& link, PathEnd& path, uint32_t p) {
  if (path.asked) return;
  path.asked = 1;
  if (++path.probe == 0) ++path.probe;
  LinkMessage message{};
  message.kind = uint32_t(LinkMessageKind::kProbe);
  message.probe = path.probe;
  link.send(p, message);
  link.arm(Timer::kProbe, p, 0);
}

// Whether this is the answer to the probe under way.
inline bool hear_answer(Link& link, PathEnd& path, uint32_t p, uint32_t number) {
  if (!path.asked || number != path.probe) return false;
  path.asked = 0;
  link.disarm(Timer::kProbe, p);
  return true;
}

// Of a completion that blames no path: whether it is believed, as one of kMostBlamed with nothing `done` in
// between. Fewer may be the device's own fault, or a dying peer's, whose memory goes before its queue pairs;
// what cannot be done at all fails again on the next path.
inline bool is_believed(uint64_t& blamed_at, uint32_t& blamed, uint64_t done) {
  if (blamed_at != done) blamed = 0;
  blamed_at = done;
  return ++blamed >= kMostBlamed;
}

// From now on nothing is put on the path; `closed` will follow, unless it is closed already.
inline void leave(Link& link, PathEnd& path, uint32_t p, FailureCause cause, bool closed) {
  if (path.asked) link.disarm(Timer::kProbe, p);
  path.asked = 0;
  path.answered = 0;
  // That it cannot be opened again does not say what it died of.
  if (cause != FailureCause::kOpen || path.cause == FailureCause::kNone) path.cause = cause;
  if (path.failures < kMostFailures) ++path.failures;
  path.condition = closed ? PathCondition::kClosed : PathCondition::kClosing;
  if (closed)
    path.outstanding = 0;
  else
    link.close(p);
}

}  // namespace starling::link
