#include "monitor/flight_paths.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <optional>
#include <type_traits>
#include <vector>

namespace starling::monitor {
namespace {

template <class T>
T value_in(const T& word) {
  return std::atomic_ref(const_cast<T&>(word)).load(std::memory_order_relaxed);
}
template <class T>
void put(T& to, std::type_identity_t<T> value) {
  std::atomic_ref(to).store(value, std::memory_order_relaxed);
}

using SampleWords = std::array<uint64_t, sizeof(FlightSample) / sizeof(uint64_t)>;

}  // namespace

void FlightPaths::follow(uint64_t now_ns) {
  if (now_ns < next_ns_) return;
  next_ns_ = now_ns + kBetweenLooksNs;
  find_paths();
  for (Path& path : paths_) follow(path, now_ns);
}

// The list grows at its head; rings are never freed while the rank lives.
void FlightPaths::find_paths() {
  // Acquire: pairs with the release in publish_rank(), then with that in add_path().
  const uint64_t offset = std::atomic_ref(arena_.header()->monitor_offset).load(std::memory_order_acquire);
  if (offset == 0) return;
  auto* shared = reinterpret_cast<MonitorShared*>(arena_.at(offset));
  const uint64_t newest = std::atomic_ref(shared->first_path).load(std::memory_order_acquire);
  if (newest == newest_ring_) return;
  std::vector<const PathRing*> rings;
  for (uint64_t at = newest; at != 0 && at != newest_ring_; at = rings.back()->next)
    rings.push_back(reinterpret_cast<const PathRing*>(arena_.at(at)));
  newest_ring_ = newest;
  AnomalyOptions options;
  options.window = std::clamp<uint32_t>(uint32_t(shared->window), 1, kLargestWindow);
  for (auto ring = rings.rbegin(); ring != rings.rend(); ++ring) {
    const uint32_t index = uint32_t(paths_.size());
    if (index == kFlightPaths) return;
    FlightPath& entry = record_.paths[index];
    put(entry.peer, (*ring)->peer);
    put(entry.path, (*ring)->path);
    for (size_t k = 0; k < sizeof entry.name; ++k) put(entry.name[k], (*ring)->name[k]);
    // Release: what the path is before the count.
    std::atomic_ref(record_.header.path_count).store(index + 1, std::memory_order_release);
    paths_.push_back({PathFollower(**ring, options), entry});
  }
}

void FlightPaths::follow(Path& path, uint64_t now_ns) {
  FlightSample sample{};
  uint64_t missed = path.follower.missed();
  path.follower.skip_to_newest(kMostRecords);
  TransferRecord record;
  std::optional<Anomaly> ended;
  // Bounded, should records come faster than they are read.
  for (uint64_t k = 0; k < kPathRecords && path.follower.next(record, ended); ++k) {
    if (path.end_ns == 0 || path.follower.missed() != missed) {
      missed = path.follower.missed();
      sample = {};
      path.end_ns = record.posted_ns;
    }
    if (sample.transfers == 0) sample.begin_ns = path.end_ns;
    sample.busy_ns += record.completed_ns - std::max(record.posted_ns, path.end_ns);
    sample.bytes += record.bytes;
    ++sample.transfers;
    path.end_ns = record.completed_ns;
  }
  const PathRing& ring = path.follower.ring();
  FlightPath& entry = path.entry;
  put(entry.link, std::atomic_ref(const_cast<LinkKind&>(ring.link)).load(std::memory_order_relaxed));
  put(entry.seen_ns, now_ns);
  put(entry.left_bytes, value_in(ring.left_bytes));
  put(entry.waiting_since_ns, value_in(ring.waiting_since_ns));
  put(entry.transfers, value_in(ring.written));
  put(entry.bytes, value_in(ring.bytes));
  put(entry.closed, value_in(ring.closed));
  if (sample.transfers == 0) return;
  const AnomalyDetector& detector = path.follower.detector();
  uint64_t lost_ns = path.follower.losses().slow_ns;
  if (detector.current() && detector.current()->cause == Cause::kNetwork)
    lost_ns += detector.current()->lost_ns;
  sample.end_ns = path.end_ns;
  sample.lost_ns = lost_ns - path.lost_ns;  // what was lost stays so: current ones become ended ones
  sample.usual_bytes_per_second = uint64_t(detector.usual_bytes_per_second());
  sample.window_bytes_per_second = uint64_t(detector.sample().bytes_per_second());
  path.lost_ns = lost_ns;
  write(entry, sample);
}

void FlightPaths::write(FlightPath& entry, const FlightSample& sample) {
  const uint64_t number = entry.written;
  auto* place = reinterpret_cast<uint64_t*>(&entry.samples[number % kFlightSamples]);
  const auto words = std::bit_cast<SampleWords>(sample);
  // Release, for who takes the file twice: a word below is in no copy whose `written` is older than this
  // place.
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t w = 0; w < words.size(); ++w) put(place[w], words[w]);
  // Release: the sample before the count.
  std::atomic_ref(entry.written).store(number + 1, std::memory_order_release);
}

}  // namespace starling::monitor
