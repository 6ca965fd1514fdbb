// Messages of a lane of copies whose two ranks are on different hosts
// (docs/design/0014-tcp-between-hosts.md): the rank's proxy for copies is in the place of a block. A copy
// engine moves each piece between the caller's buffer and a slot of the channels (link/carry/channels.h),
// which the links carry.
//
//   sender     its stream has come ─▶ granted? a copy into the slot ─▶ the copy has ended: posted
//   receiver   its stream has come ─▶ posted? a copy out of the slot ─▶ the copy has ended: granted again
//
// Pieces have a slot's length, the last one what is left; both ranks know how many there are, since
// signatures agree. Operations use the channel one after the other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/copy_host.h"
#include "link/carry/channels.h"
#include "machine/cpu/machine.h"
#include "machine/place.h"
#include "wire/doorbell.h"

namespace starling {

// One of a lane, for all its operations. Used by the proxy's thread alone.
class CarriedConnector {
 public:
  // door: of who carries; null: it looks without being rung.
  CarriedConnector(std::shared_ptr<link::carry::Channels> channels, bool sends, Doorbell* door,
                   uint64_t first_sequence)
      : channels_(std::move(channels)), sends_(sends), door_(door), turn_(first_sequence) {}

  uint64_t turn() const { return turn_; }
  void pass_turn() { ++turn_; }
  bool sends() const { return sends_; }
  uint64_t piece_bytes() const { return channels_->shape().slot_bytes; }

  // A slot that the next piece may be copied into, or out of; null: none yet.
  std::byte* next_slot();
  // The copy of the next piece is under way by this ticket.
  void begun(uint64_t ticket, uint32_t bytes);
  // Posts, or grants, what was copied by then. True if anything was.
  bool settle(uint64_t completed);
  uint64_t under_way() const { return begun_ - settled_; }

 private:
  struct Piece {
    uint64_t ticket;
    uint32_t bytes;
  };

  const std::shared_ptr<link::carry::Channels> channels_;
  const bool sends_;
  Doorbell* const door_;
  uint64_t turn_;
  uint64_t begun_ = 0;  // pieces, of all operations
  uint64_t settled_ = 0;
  Piece pieces_[kMaxCredits] = {};
};

// An operation, by one of its two ranks.
struct CarriedCopyJob {
  void* owner;  // the lane
  uint64_t sequence;
  const uint64_t* fault;  // as device::CopyJob's, and the next two
  const uint64_t* mark;
  uint64_t* done;
  std::shared_ptr<CarriedConnector> connector;
  std::byte* buffer;
  uint64_t bytes;
  uint64_t begun_bytes = 0;
  bool begun = false;
  bool failed = false;
};

enum class CarriedStep { kNothing, kProgress, kFinished };

// As device::CopyHost::step(). `given`: the newest ticket of the queue to peers. Throws what the engine does.
CarriedStep step(CarriedCopyJob& job, CopyEngine& engine, uint64_t& given);

}  // namespace starling
