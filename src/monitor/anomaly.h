// Finds out from a path's records when it was slower than it uses to be, and whether the network or its user
// was to blame. Pure: no clock, no path; fed with records in the order of completion.
//
// Each transfer keeps the path busy for a while: from its post, or from the completion of the one before it
// if that came later. What was usual for transfers of its size, alone on the path or behind others, is the
// path's history. A window of transfers is compared with what history expects of the same transfers:
//
//   network   it kept the path busy for `slow` times as long: bytes were under way and went slowly
//   starved   nothing was under way for `slow` times as long as the window should have taken
//   neither   what differs is within `least_ns`, or within some times of how much windows differ anyway
//
// So larger or fewer transfers, whose raw throughput is another, are no anomaly. Windows that are off teach
// the history little: it follows a change that stays, but slowly.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "monitor/window.h"
#include "wire/monitor.h"

namespace starling::monitor {

enum class Cause : uint32_t { kNone = 0, kNetwork = 1, kStarved = 2 };

struct AnomalyOptions {
  uint32_t window = kDefaultWindow;
  double slow = 2;
  uint64_t least_ns = 20'000;
};

// A time in which all windows were off for one cause.
struct Anomaly {
  Cause cause;
  uint64_t begin_ns;  // completion of the last transfer that was as usual
  uint64_t end_ns;    // completion of the last one in a window that was off
  uint64_t lost_ns;   // how much longer it took than usual; starved: how long nothing was under way
  uint64_t left_bytes;  // most that was under way
  double usual_bytes_per_second;  // of the worst window's transfers
  double bytes_per_second;        // what that window had
};

class AnomalyDetector {
 public:
  explicit AnomalyDetector(const AnomalyOptions& options = {})
      : options_(options), entries_(options.window), window_(options.window) {}

  // An anomaly that ended before this record.
  std::optional<Anomaly> push(const TransferRecord& record) {
    const WindowSample sample = window_.push(record);
    const Entry entry = entry_of(record);
    remember(entry);
    const Judgement judgement = judge();
    learn(entry, judgement);
    last_completed_ns_ = record.completed_ns;
    sample_ = sample;
    return follow(record, entry, sample, judgement);
  }

  // Records are missing, or the path was closed: what history says stays, the window does not.
  void restart() {
    window_.restart();
    count_ = 0;
    last_completed_ns_ = 0;
    current_.reset();
  }

  const WindowSample& sample() const { return sample_; }
  // Of the last window's transfers, by history; 0: it is too short.
  double usual_bytes_per_second() const { return usual_bytes_per_second_; }
  // Goes on, as of the last record.
  const std::optional<Anomaly>& current() const { return current_; }

  // Between records, at `now_ns`: the oldest of `left_bytes` under way was posted at `waiting_since_ns`. A
  // transfer that does not complete has no record yet, and a path that has nothing to do makes none.
  std::optional<Anomaly> look(uint64_t now_ns, uint64_t waiting_since_ns, uint64_t left_bytes) const {
    const bool busy = left_bytes > 0 && waiting_since_ns > 0;
    const uint64_t since = std::max(busy ? waiting_since_ns : 0, last_completed_ns_);
    if (last_completed_ns_ == 0 || now_ns <= since || !is_known()) return current_;
    const double waited_ns = double(now_ns - since);
    const double usual_ns = std::max(usual_window_ns_, 1.0);
    if (waited_ns <= options_.slow * usual_ns || waited_ns - usual_ns < tolerance_ns()) return current_;
    if (current_ && (current_->cause == Cause::kNetwork) == busy) {
      Anomaly longer = *current_;
      longer.end_ns = now_ns;
      longer.lost_ns += uint64_t(waited_ns);
      return longer;
    }
    return Anomaly{busy ? Cause::kNetwork : Cause::kStarved,
                   since,
                   now_ns,
                   uint64_t(waited_ns),
                   left_bytes,
                   usual_bytes_per_second_,
                   0};
  }

 private:
  static constexpr uint32_t kSizeClasses = 64;
  static constexpr uint32_t kLeastLessons = 16;  // before a class of transfers is known
  static constexpr double kLesson = 1.0 / 32, kOddLesson = 1.0 / 65536;
  static constexpr double kMostOfUsual = 4;  // a lesson is cut there: one standstill teaches no more
  static constexpr double kDeviations = 5;   // of windows, that are no anomaly

  // A mean that outliers move little.
  struct Usual {
    double ns = 0;
    uint32_t lessons = 0;
    void learn(double value_ns, bool odd) {
      if (lessons < kLeastLessons) {
        ns += (value_ns - ns) / ++lessons;
        return;
      }
      ns += (std::min(value_ns, std::max(kMostOfUsual * ns, 1.0)) - ns) * (odd ? kOddLesson : kLesson);
    }
    bool known() const { return lessons >= kLeastLessons; }
  };

  struct Entry {
    double busy_ns;
    double gap_ns;  // before its post, with nothing under way
    uint32_t kind;  // of its history
  };

  struct Judgement {
    Cause cause = Cause::kNone;
    bool known = false;  // history knows all kinds of transfers in the window
    double usual_ns = 0;
    double busy_ns = 0;
  };

  Entry entry_of(const TransferRecord& record) const {
    const bool alone = record.posted_ns >= last_completed_ns_;
    const uint64_t since = std::max(record.posted_ns, last_completed_ns_);
    const uint64_t busy = record.completed_ns > since ? record.completed_ns - since : 0;
    const uint64_t gap = alone && last_completed_ns_ > 0 ? record.posted_ns - last_completed_ns_ : 0;
    return {double(busy), double(gap), 2 * uint32_t(std::bit_width(record.bytes) % kSizeClasses) + alone};
  }

  void remember(const Entry& entry) { entries_[count_++ % entries_.size()] = entry; }

  Judgement judge() const {
    Judgement judgement;
    if (count_ < entries_.size()) return judgement;
    judgement.known = true;
    double gaps_ns = 0;
    for (const Entry& entry : entries_) {
      // What is new here is taken as it comes: no evidence of anything.
      const bool known = usual_[entry.kind].known();
      judgement.known &= known;
      judgement.usual_ns += known ? usual_[entry.kind].ns : entry.busy_ns;
      judgement.busy_ns += entry.busy_ns;
      gaps_ns += entry.gap_ns;
    }
    const double least = std::max(judgement.usual_ns, 1.0);
    const auto off = [&](double ns, double usual_ns) {
      return ns > options_.slow * least && ns - usual_ns > tolerance_ns();
    };
    if (off(judgement.busy_ns, judgement.usual_ns))
      judgement.cause = Cause::kNetwork;
    else if (off(gaps_ns, 0))
      judgement.cause = Cause::kStarved;
    return judgement;
  }

  double tolerance_ns() const { return std::max(double(options_.least_ns), kDeviations * deviation_.ns); }
  bool is_known() const { return deviation_.known(); }

  void learn(const Entry& entry, const Judgement& judgement) {
    const bool odd = judgement.cause == Cause::kNetwork;
    usual_[entry.kind].learn(entry.busy_ns, odd);
    if (!judgement.known) return;
    if (!odd) {
      usual_window_ns_ = judgement.usual_ns;
      usual_bytes_per_second_ = double(window_bytes_) * 1e9 / std::max(judgement.usual_ns, 1.0);
    }
    deviation_.learn(std::abs(judgement.busy_ns - judgement.usual_ns), odd);
  }

  std::optional<Anomaly> follow(const TransferRecord& record, const Entry& entry, const WindowSample& sample,
                                const Judgement& judgement) {
    std::optional<Anomaly> ended;
    window_bytes_ = sample.bytes;
    if (current_ && current_->cause != judgement.cause) {
      ended = current_;
      current_.reset();
    }
    if (judgement.cause == Cause::kNone) {
      last_usual_ns_ = record.completed_ns;
      return ended;
    }
    const bool network = judgement.cause == Cause::kNetwork;
    const double usual = double(sample.bytes) * 1e9 / std::max(judgement.usual_ns, 1.0);
    const double seen =
        network ? double(sample.bytes) * 1e9 / std::max(judgement.busy_ns, 1.0) : sample.bytes_per_second();
    if (!current_) {
      const double lost = network ? judgement.busy_ns - judgement.usual_ns : double(sample.starved_ns);
      current_ = Anomaly{judgement.cause,
                         std::min(last_usual_ns_, record.completed_ns),
                         record.completed_ns,
                         uint64_t(lost),
                         record.left_bytes,
                         usual,
                         seen};
      return ended;
    }
    current_->end_ns = record.completed_ns;
    current_->lost_ns +=
        uint64_t(network ? std::max(entry.busy_ns - usual_[entry.kind].ns, 0.0) : entry.gap_ns);
    current_->left_bytes = std::max<uint64_t>(current_->left_bytes, record.left_bytes);
    if (seen / usual < current_->bytes_per_second / current_->usual_bytes_per_second) {
      current_->usual_bytes_per_second = usual;
      current_->bytes_per_second = seen;
    }
    return ended;
  }

  AnomalyOptions options_;
  std::vector<Entry> entries_;
  Window window_;
  WindowSample sample_{};
  uint64_t count_ = 0;
  uint64_t last_completed_ns_ = 0;
  uint64_t last_usual_ns_ = 0;
  uint64_t window_bytes_ = 0;
  Usual usual_[2 * kSizeClasses];
  Usual deviation_;
  double usual_window_ns_ = 0;
  double usual_bytes_per_second_ = 0;
  std::optional<Anomaly> current_;
};

}  // namespace starling::monitor
