// What has become of a path since somebody looked last: its records through an anomaly detector. For watchers
// and for the flight record. Not for several threads.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

#include "monitor/anomaly.h"
#include "monitor/path_ring.h"

namespace starling::monitor {

// By all anomalies since somebody began to follow.
struct PathLosses {
  uint64_t slow_count = 0;
  uint64_t slow_ns = 0;
  uint64_t starved_count = 0;
  uint64_t starved_ns = 0;

  void add(const Anomaly& anomaly) {
    const bool network = anomaly.cause == Cause::kNetwork;
    ++(network ? slow_count : starved_count);
    (network ? slow_ns : starved_ns) += anomaly.lost_ns;
  }
};

class PathFollower {
 public:
  PathFollower(const PathRing& ring, const AnomalyOptions& options)
      : ring_(ring), reader_(ring), options_(options), detector_(options) {
    reader_.begin();
  }

  // The next record. False: there is none yet. `ended`: an anomaly that was over before it.
  bool next(TransferRecord& record, std::optional<Anomaly>& ended) {
    if (!reader_.next(record)) return false;
    ended.reset();
    if (record.link != link_ || record.incarnation != incarnation_ || reader_.missed() != missed_) {
      ended = detector_.current();  // with what it was of
      // What was usual over sockets says nothing of queue pairs.
      if (record.link != link_)
        detector_ = AnomalyDetector(options_);
      else
        detector_.restart();
      link_ = record.link;
      incarnation_ = record.incarnation;
      missed_ = reader_.missed();
      detector_.push(record);
    } else {
      ended = detector_.push(record);
    }
    if (ended) losses_.add(*ended);
    return true;
  }
  // Leaves out all but the newest.
  void skip_to_newest(uint64_t count) { reader_.skip_to_newest(count); }

  // The path was closed since the last record: what the detector knows goes on no more.
  bool was_closed() const {
    const auto closed = std::atomic_ref(const_cast<uint64_t&>(ring_.closed));
    return uint32_t(closed.load(std::memory_order_relaxed)) != incarnation_;
  }

  const PathRing& ring() const { return ring_; }
  const AnomalyDetector& detector() const { return detector_; }
  uint64_t position() const { return reader_.position(); }
  uint64_t missed() const { return reader_.missed(); }
  // Of anomalies that are over.
  const PathLosses& losses() const { return losses_; }

 private:
  const PathRing& ring_;
  PathReader reader_;
  AnomalyOptions options_;
  AnomalyDetector detector_;
  LinkKind link_{};  // of what the detector knows
  uint32_t incarnation_ = 0;
  uint64_t missed_ = 0;
  PathLosses losses_;
};

}  // namespace starling::monitor
