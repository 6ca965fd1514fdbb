// Where frames lie in a ring of the receiver's memory: the sender writes there by RDMA. Both ends count the
// same frames in the same order, so no position is ever told.
//
//   A frame begins where the one before ended, and at the beginning again where the largest one might not fit
//   any more. The sender writes frame k when nothing lies there that the receiver may still read: a frame is
//   free when its transfer was acknowledged and its completion came.
#pragma once
#include <cstdint>
#include <deque>

namespace starling::link::verbs {

class FrameRing {
 public:
  FrameRing() = default;
  FrameRing(uint64_t bytes, uint64_t most_frame_bytes) : bytes_(bytes), most_(most_frame_bytes) {}

  uint64_t next() const { return at_; }
  void pass(uint64_t frame_bytes) {
    at_ += (frame_bytes + 63) & ~uint64_t{63};
    if (at_ + most_ > bytes_) at_ = 0;
  }

 private:
  uint64_t bytes_ = 0;
  uint64_t most_ = 0;
  uint64_t at_ = 0;
};

// The sender's side: which frames are not free yet.
class FrameQueue {
 public:
  FrameQueue() = default;
  FrameQueue(uint64_t bytes, uint64_t most_frame_bytes) : ring_(bytes, most_frame_bytes) {}

  bool has_room(uint64_t frame_bytes) const {
    if (live_.empty()) return true;
    const uint64_t begin = ring_.next(), oldest = live_.front().begin;
    return begin > oldest || (begin < oldest && begin + frame_bytes <= oldest);
  }
  // Where it goes; has_room() said yes.
  uint64_t add(uint64_t sequence, uint64_t frame_bytes) {
    const uint64_t begin = ring_.next();
    live_.push_back({begin, sequence, false});
    ring_.pass(frame_bytes);
    return begin;
  }
  // Completions come in order.
  void complete_next() {
    for (Frame& frame : live_)
      if (!frame.completed) {
        frame.completed = true;
        return;
      }
  }
  void free_below(uint64_t acked) {
    while (!live_.empty() && live_.front().completed && live_.front().sequence < acked) live_.pop_front();
  }
  uint64_t live() const { return live_.size(); }

 private:
  struct Frame {
    uint64_t begin;
    uint64_t sequence;
    bool completed;
  };
  FrameRing ring_;
  std::deque<Frame> live_;
};

}  // namespace starling::link::verbs
