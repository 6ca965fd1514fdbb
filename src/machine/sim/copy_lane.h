// What a lane of copies (docs/design/0020-sm-free.md) has on one rank in place of connectors: the words of
// streams, the offers of peers, and a board on which ranks see what the others mean. As comm/copies.cc and
// comm/matching.cc have it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "machine/sim/machine.h"
#include "machine/sim/program.h"
#include "wire/copies.h"
#include "wire/handover.h"

namespace starling::sim {

class CopyLane {
 public:
  void build(World& world, const Options& options, const LaneSpec& spec);

  Handover* handover() { return handover_; }
  uint64_t* mark(uint64_t sequence) { return &marks_[sequence % kCopyDepth]; }
  // Of what `sender` sends to this rank.
  CopyOffer* offer(uint64_t sequence, uint32_t sender) {
    return &offers_[sequence % kCopyDepth * size_ + sender];
  }

  // Of an operation that is submitted: a stream marks it; it means something else than on other ranks.
  void note(uint64_t index, bool on_stream, bool differs);
  bool on_stream(uint64_t index) const { return notes_[index % notes_.size()].on_stream; }
  // Before the proxy has it: this rank's board, and then a look at the peer's. False: they do not match.
  void post(SimMachine& host, uint64_t index, uint64_t sequence);
  bool matches(SimMachine& host, uint64_t sequence, const CopyLane& peer) const;

  // Words that have several writers; after all is built.
  void share_words(Memory& memory);
  std::string describe(const void* address) const;

 private:
  struct Note {
    bool on_stream, differs;
  };
  static constexpr uint32_t kBoard = 2 * kCopyDepth;

  uint32_t size_ = 0;
  Handover* handover_ = nullptr;
  uint64_t* marks_ = nullptr;  // [kCopyDepth]; writers: streams
  CopyOffer* offers_ = nullptr;  // [kCopyDepth][size]
  uint64_t* board_ = nullptr;  // [kBoard]: (s + 1) << 1, and a bit of what is meant
  std::vector<Note> notes_;
};

}  // namespace starling::sim
