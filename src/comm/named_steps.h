// The steps of an operation whose messages between hosts need no slots: what a rank may say of its buffers to
// its links, decided from its own plan and buffers alone (docs/design/0014, From buffer to buffer).
//
//   a source is lent      no other step of this rank writes there: what the link reads until the message is
//   taken
//                         is what was posted
//   a place is told       no other step of this rank reads or writes there: what comes early, before the
//   blocks
//                         have begun even, is in nobody's way
//
// Buffers are compared by address, so that it does not matter whether input and output are one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/operation.h"

namespace starling {

// On one connection. Of what the operation's messages there are its own are those number `before`, and each
// `stride` further; each lies at the end of the one before.
struct NamedStep {
  bool sends;
  uint16_t peer;
  uint16_t channel;
  BufferKind buffer;
  uint64_t before;
  uint64_t stride;
  uint64_t messages;
  std::byte* at;
  uint64_t bytes;  // of all
};

// Does one of them write in a buffer where the other reads or writes? Looked at from the first byte that a
// plan touches of a kind to the last.
bool conflict(const Operation& a, const Operation& b);

class NamedSteps {
 public:
  // carried: by peer, is it on another host? Of an operation that is bound, tiles and all.
  void find(const Operation& op, const std::vector<bool>& carried);

  // For the operation (wire/operation.h): which of its steps name their sources, and that places were told.
  uint16_t hints() const { return hints_; }
  // Those, and where messages are wanted: in the order of the plan.
  const std::vector<NamedStep>& steps() const { return steps_; }

 private:
  struct Touch {
    std::byte* begin;
    std::byte* end;
    bool writes;
    uint32_t instruction;  // of the plan
  };
  void find_touches(const Operation& op);
  void judge_touches();
  uint16_t safe_hints(const Operation& op, const std::vector<bool>& carried) const;
  void add(const Operation& op, const BlockPlan& block, uint32_t n, bool sends);

  uint16_t hints_ = 0;
  std::vector<NamedStep> steps_;
  std::vector<Touch> touches_;
  // By instruction of the plan: others write where it reads or writes; or touch it at all.
  std::vector<bool> written_by_others_;
  std::vector<bool> touched_by_others_;
};

}  // namespace starling
