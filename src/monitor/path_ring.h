// Both sides of a path's ring (wire/monitor.h): the proxy writes a record at each completion, whoever is
// curious reads, and neither waits for the other.
//
//   writer   fence (release), words of record k, relaxed ... written := k + 1 (release)
//   reader   w := written (acquire), words of record k < w, relaxed, fence (acquire), written again: not k's
//   place yet?
// What is under way is said by two words that are renewed at each post and completion; each is whole, both
// are of no one moment.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "base/assert.h"
#include "wire/monitor.h"

namespace starling::monitor {

using RecordWords = std::array<uint64_t, sizeof(TransferRecord) / sizeof(uint64_t)>;

// Transfers posted on a path and not completed: a link's send queue is no deeper.
inline constexpr uint32_t kMostUnderWay = 256;

// The proxy's side, of one path in one incarnation after the other. On the path of a transfer it costs the
// caller's looks at the clock (a post's, a report's or completion's) and a record.
class PathRecorder {
 public:
  explicit PathRecorder(PathRing& ring) : ring_(ring), written_(ring.written) {}

  void posted(uint64_t now_ns, uint64_t bytes, uint64_t sequence = 0) {
    STARLING_ASSERT(under_way() < kMostUnderWay, "a path has no more transfers under way than this");
    under_way_[posted_++ % kMostUnderWay] = {now_ns, bytes, sequence, 0};
    left_bytes_ += bytes;
    say_what_is_left();
  }

  void went(uint64_t straight_bytes, uint64_t copied_bytes) {
    store(ring_.straight_bytes, straight_bytes_ += straight_bytes);
    store(ring_.copied_bytes, copied_bytes_ += copied_bytes);
  }

  uint64_t under_way() const { return posted_ - completed_; }
  // Number of the oldest under way; there is one.
  uint64_t oldest() const { return under_way_[completed_ % kMostUnderWay].sequence; }

  // Of the oldest under way: paths complete in order. The time may be a guess (a report says for how long it
  // was held): never before the post, nor before the last completion.
  void completed(uint64_t at_ns) {
    STARLING_ASSERT(completed_ < posted_, "a transfer is posted before it is completed");
    const UnderWay& transfer = under_way_[completed_++ % kMostUnderWay];
    left_bytes_ -= transfer.bytes;
    store(ring_.bytes, bytes_ += transfer.bytes);
    newest_ns_ = std::max({at_ns, newest_ns_, transfer.posted_ns});
    write({transfer.posted_ns, newest_ns_, word32(transfer.bytes), word32(left_bytes_), ring_.link,
           uint32_t(closed_)});
    say_what_is_left();
  }

  // Of that one, which may have overtaken others: a path of several queue pairs keeps order on each. Its
  // record comes behind theirs, and not before them. One that is not under way is not recorded: there was no
  // room for it.
  void completed(uint64_t sequence, uint64_t at_ns) {
    uint64_t number = completed_;
    while (number < posted_ && under_way_[number % kMostUnderWay].sequence != sequence) ++number;
    if (number == posted_) return;
    under_way_[number % kMostUnderWay].completed_ns = at_ns;
    while (under_way() > 0 && under_way_[completed_ % kMostUnderWay].completed_ns != 0)
      completed(under_way_[completed_ % kMostUnderWay].completed_ns);
  }

  // What carries the path from now on. Records say it too; here it is for who looks before one comes.
  void opened(LinkKind kind) { std::atomic_ref(ring_.link).store(kind, std::memory_order_relaxed); }

  // The path was closed: what was under way will not complete on it.
  void closed() {
    completed_ = posted_;
    left_bytes_ = 0;
    store(ring_.closed, ++closed_);
    say_what_is_left();
  }

 private:
  struct UnderWay {
    uint64_t posted_ns;
    uint64_t bytes;
    uint64_t sequence;
    uint64_t completed_ns;  // 0: it is not
  };

  void write(const TransferRecord& record) {
    TransferRecord& place = ring_.records[written_ % kPathRecords];
    // Release, with the fence in PathReader: who sees a word below also sees the `written` before it, and so
    // knows that this place is being written again.
    std::atomic_thread_fence(std::memory_order_release);
    const auto words = std::bit_cast<RecordWords>(record);
    for (size_t w = 0; w < words.size(); ++w) store(reinterpret_cast<uint64_t*>(&place)[w], words[w]);
    // Release: the record before the count; pairs with the acquire in PathReader.
    std::atomic_ref(ring_.written).store(++written_, std::memory_order_release);
  }
  void say_what_is_left() {
    store(ring_.left_bytes, left_bytes_);
    store(ring_.waiting_since_ns, under_way() == 0 ? 0 : under_way_[completed_ % kMostUnderWay].posted_ns);
  }
  static uint32_t word32(uint64_t value) { return uint32_t(std::min<uint64_t>(value, ~uint32_t(0))); }
  static void store(uint64_t& word, uint64_t value) {
    std::atomic_ref(word).store(value, std::memory_order_relaxed);
  }

  PathRing& ring_;
  uint64_t written_;
  uint64_t posted_ = 0, completed_ = 0;
  uint64_t left_bytes_ = 0;
  uint64_t bytes_ = 0;
  uint64_t straight_bytes_ = 0, copied_bytes_ = 0;
  uint64_t closed_ = 0;
  uint64_t newest_ns_ = 0;
  UnderWay under_way_[kMostUnderWay];
};

// A reader's place in a ring. It may come and go, and sees each record once unless it was overtaken.
class PathReader {
 public:
  explicit PathReader(const PathRing& ring) : ring_(const_cast<PathRing&>(ring)) {}

  // The next record. False: there is none yet.
  bool next(TransferRecord& record) {
    while (copy_next(record))
      if (take()) return true;
    return false;
  }

  // The two halves of next(): copies, and finds out whether the copy is whole.
  bool copy_next(TransferRecord& record) {
    // Acquire: pairs with the release of `written` in PathRecorder; the records before it are readable.
    const uint64_t written = std::atomic_ref(ring_.written).load(std::memory_order_acquire);
    if (next_ >= written) return false;
    // Of the oldest place the writer may have begun to write anew.
    if (written - next_ >= kPathRecords) skip_to(written - kPathRecords + 1);
    auto* place = reinterpret_cast<uint64_t*>(&ring_.records[next_ % kPathRecords]);
    RecordWords words;
    for (size_t w = 0; w < words.size(); ++w) words[w] = load(place[w]);
    record = std::bit_cast<TransferRecord>(words);
    return true;
  }
  bool take() {
    // Acquire: pairs with the release fence in PathRecorder. If a word of the copy is already that of record
    // next_ + kPathRecords, then `written` is at least that number here.
    std::atomic_thread_fence(std::memory_order_acquire);
    const uint64_t written = std::atomic_ref(ring_.written).load(std::memory_order_relaxed);
    if (written - next_ >= kPathRecords) return false;
    ++next_;
    return true;
  }

  // Begins with what the ring has: what came before nobody wanted.
  void begin() {
    const uint64_t written = std::atomic_ref(ring_.written).load(std::memory_order_relaxed);
    if (written - next_ >= kPathRecords) next_ = written - kPathRecords + 1;
  }

  // Leaves out all but the newest, where there are more.
  void skip_to_newest(uint64_t count) {
    const uint64_t written = std::atomic_ref(ring_.written).load(std::memory_order_relaxed);
    if (written - next_ > count) skip_to(written - count);
  }

  uint64_t position() const { return next_; }  // number of the record that comes next
  uint64_t missed() const { return missed_; }  // records that were overwritten before they were read

 private:
  void skip_to(uint64_t number) {
    missed_ += number - next_;
    next_ = number;
  }
  static uint64_t load(uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_relaxed); }

  PathRing& ring_;  // only read; C++20 has no atomic_ref of const
  uint64_t next_ = 0;
  uint64_t missed_ = 0;
};

}  // namespace starling::monitor
