// Throughput of a path over its last transfers (ICCL §3.4): their bytes, by the time from the first one's
// post to the last one's completion. A single transfer's own time says little: it shares the path with those
// posted before it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "wire/monitor.h"

namespace starling::monitor {

inline constexpr uint32_t kDefaultWindow = 8;
inline constexpr uint32_t kLargestWindow = 1024;

struct WindowSample {
  uint64_t first_posted_ns;
  uint64_t last_completed_ns;
  uint64_t bytes;
  uint64_t
      starved_ns;  // of that time, with nothing under way: the path waited for its user, not the user for it
  uint64_t left_bytes;  // under way when the last one completed
  uint32_t transfers;  // fewer than the window at the beginning

  uint64_t span_ns() const { return std::max<uint64_t>(last_completed_ns - first_posted_ns, 1); }
  double bytes_per_second() const { return double(bytes) * 1e9 / double(span_ns()); }
  // Of the path alone: what it carried while it had something to carry.
  double busy_bytes_per_second() const {
    return double(bytes) * 1e9 / double(std::max<uint64_t>(span_ns() - starved_ns, 1));
  }
};

// Not for several threads. Records come in the order of completion, which is that of posting.
class Window {
 public:
  // Size: transfers, 1 to kLargestWindow. Small ones follow every tremor, large ones smooth over what
  // happened.
  explicit Window(uint32_t size = kDefaultWindow) : entries_(size) {
    if (size == 0 || size > kLargestWindow)
      throw Error(Code::invalid_argument, "a window of " + std::to_string(size) + " transfers",
                  "use 1 to " + std::to_string(kLargestWindow));
  }

  WindowSample push(const TransferRecord& record) {
    const uint64_t size = entries_.size();
    if (count_ >= size) leave(entries_[count_ % size]);
    Entry& entry = entries_[count_ % size];
    entry = {record,
             count_ > 0 && record.posted_ns > last_completed_ns_ ? record.posted_ns - last_completed_ns_ : 0};
    bytes_ += record.bytes;
    gaps_ns_ += entry.gap_ns;
    last_completed_ns_ = record.completed_ns;
    ++count_;
    const uint32_t held = uint32_t(std::min(count_, size));
    const Entry& first = entries_[(count_ - held) % size];
    // The gap before the first one lies outside.
    return {first.record.posted_ns,  record.completed_ns, bytes_,
            gaps_ns_ - first.gap_ns, record.left_bytes,   held};
  }

  // Records are missing: it begins anew.
  void restart() {
    count_ = 0;
    bytes_ = gaps_ns_ = 0;
  }

 private:
  struct Entry {
    TransferRecord record;
    uint64_t gap_ns;  // before its post, with nothing under way
  };

  void leave(const Entry& entry) {
    bytes_ -= entry.record.bytes;
    gaps_ns_ -= entry.gap_ns;
  }

  std::vector<Entry> entries_;
  uint64_t count_ = 0;
  uint64_t bytes_ = 0;
  uint64_t gaps_ns_ = 0;
  uint64_t last_completed_ns_ = 0;
};

}  // namespace starling::monitor
