#include "monitor/watch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace starling::monitor {
namespace {

constexpr size_t kMostAnomalies = 4096;  // that wait to be taken; the oldest go first
// A TCP receiver may keep to itself that the last transfers of many came, until it is asked.
constexpr uint64_t kUnheardNs = 400'000'000;

uint64_t acquire(const uint64_t& word) {
  return std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_acquire);
}
uint64_t relaxed(const uint64_t& word) {
  return std::atomic_ref(const_cast<uint64_t&>(word)).load(std::memory_order_relaxed);
}
LinkKind link_of(const PathRing& ring) {
  return std::atomic_ref(const_cast<LinkKind&>(ring.link)).load(std::memory_order_relaxed);
}

template <size_t N>
std::string text_of(const char (&text)[N]) {
  return {text, strnlen(text, N)};
}

// Of another process: words of one writer each, whole but of no one moment. The blocks' stores are plain, so
// ThreadSanitizer is told to look away.
__attribute__((no_sanitize("thread"))) void add(BlockCounters& sum, const BlockCounters& block) {
  const auto* from = reinterpret_cast<const volatile uint64_t*>(&block);
  auto* to = reinterpret_cast<uint64_t*>(&sum);
  const uint64_t peak = sum.queue_peak;
  for (size_t w = 0; w < sizeof block / sizeof(uint64_t); ++w) to[w] += from[w];
  sum.queue_peak = std::max(peak, sum.queue_peak - peak);
}

// waiting_version is odd while the text is written (wire/arena.h); the same protocol as among peers.
std::string waiting_text(const ArenaHeader& header) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    const uint64_t before = acquire(header.waiting_version);
    char text[sizeof header.waiting_text];
    for (size_t k = 0; k < sizeof text; ++k)
      text[k] = std::atomic_ref(const_cast<char&>(header.waiting_text[k])).load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);  // the text before the second look
    if (before % 2 == 0 && relaxed(header.waiting_version) == before) return text_of(text);
  }
  return "";
}

const MonitorShared* shared_of(const cpu::ArenaView& view) {
  // Acquire: pairs with the release in publish_rank().
  const uint64_t offset = acquire(view.header().monitor_offset);
  const auto* shared = offset == 0 ? nullptr : view.at<MonitorShared>(offset);
  if (shared == nullptr || shared->version != kMonitorVersion)
    throw Error(Code::peer_failed, "the shared segment " + view.name() + " has nothing for watchers",
                "it is not a rank's, or of another version of Starling");
  return shared;
}

}  // namespace

Watch::Watch(const std::string& segment, const WatchOptions& options)
    : view_(segment), options_(options), shared_(shared_of(view_)) {
  find_paths();
}

// The list grows at its head; rings are never freed while the rank lives.
void Watch::find_paths() {
  // Acquire: pairs with the release in add_path().
  const uint64_t newest = acquire(shared_->first_path);
  AnomalyOptions anomaly = options_.anomaly;
  anomaly.window = options_.window ? options_.window : uint32_t(shared_->window);
  anomaly.window = std::clamp<uint32_t>(anomaly.window, 1, kLargestWindow);
  for (uint64_t offset = newest; offset != 0 && offset != newest_path_;) {
    const auto* ring = view_.at<PathRing>(offset);
    if (ring == nullptr) break;
    paths_.push_back({offset, PathFollower(*ring, anomaly)});
    offset = ring->next;
  }
  newest_path_ = newest;
}

void Watch::follow() {
  find_paths();
  for (Path& path : paths_) follow(path);
}

void Watch::follow(Path& path) {
  TransferRecord record;
  std::optional<Anomaly> ended;
  while (path.follower.next(record, ended)) {
    if (ended) {
      if (anomalies_.size() == kMostAnomalies) anomalies_.pop_front();
      anomalies_.push_back({path.offset, *ended});
    }
    if (options_.kept_samples == 0) continue;
    if (samples_.size() == options_.kept_samples) samples_.pop_front();
    samples_.push_back({path.offset, record, path.follower.detector().sample()});
  }
}

std::deque<PathSample> Watch::take_samples() { return std::exchange(samples_, {}); }

std::deque<PathAnomaly> Watch::take_anomalies() { return std::exchange(anomalies_, {}); }

PathView Watch::look(const Path& path, uint64_t now_ns) const {
  const AnomalyDetector& detector = path.follower.detector();
  const PathRing& ring = path.follower.ring();
  PathView view;
  static_cast<PathLosses&>(view) = path.follower.losses();
  view.ring_offset = path.offset;
  view.peer = ring.peer;
  view.path = ring.path;
  view.link = link_of(ring);
  view.name = text_of(ring.name);
  view.transfers = relaxed(ring.written);
  view.bytes = relaxed(ring.bytes);
  view.left_bytes = relaxed(ring.left_bytes);
  view.straight_bytes = relaxed(ring.straight_bytes);
  view.copied_bytes = relaxed(ring.copied_bytes);
  const uint64_t since = relaxed(ring.waiting_since_ns);
  view.waiting_ns = since != 0 && now_ns > since ? now_ns - since : 0;
  view.closed = relaxed(ring.closed);
  view.missed = path.follower.missed();
  view.window = detector.sample();
  // What lies in the ring unread says more than that it is old.
  const bool behind = path.follower.position() != view.transfers;
  const bool heard = view.link != LinkKind::kTcp || view.left_bytes == 0 || view.waiting_ns > kUnheardNs;
  view.current = behind || !heard || path.follower.was_closed()
                     ? detector.current()
                     : detector.look(now_ns, since, view.left_bytes);
  if (view.current) view.add(*view.current);
  // It is over; the next record will end it.
  if (path.follower.was_closed()) view.current.reset();
  return view;
}

OperationView Watch::operation_at(uint64_t lane_offset, uint32_t board_size, uint64_t sequence) const {
  OperationView view;
  const auto* board = view_.at<Signature>(lane_offset + sizeof(LaneShared), board_size);
  if (board == nullptr || board_size == 0) return view;
  const Signature& entry = board[sequence % board_size];
  // Acquire: pairs with the release of `position` in post_signature(). 0: not on the device yet.
  if (acquire(entry.position) != sequence + 1) return view;
  Signature copy{};
  for (size_t w = 1; w < sizeof copy / sizeof(uint64_t); ++w)
    reinterpret_cast<uint64_t*>(&copy)[w] = relaxed(reinterpret_cast<const uint64_t*>(&entry)[w]);
  std::atomic_thread_fence(std::memory_order_acquire);  // the words before the second look
  if (relaxed(entry.position) != sequence + 1) return view;
  return {true, copy.collective, copy.data_type, copy.reduce_op, copy.root, copy.count, copy.deadline_ns};
}

std::optional<LaneView> Watch::lane_at(uint64_t offset) const {
  const auto* lane = view_.at<LaneShared>(offset);
  if (lane == nullptr || lane->size == 0) return std::nullopt;
  LaneView view;
  view.key_offset = offset;
  view.name = text_of(lane->name);
  view.rank = lane->rank;
  view.size = lane->size;
  // In this order: completed <= submitted.
  view.completed = acquire(lane->completed);
  view.submitted = acquire(lane->submitted);
  view.fault = fault_kind(acquire(lane->fault));
  // Control lanes carry no operations.
  if (lane->channel_count == 0 && view.fault == FaultKind::kNone) return std::nullopt;
  if (view.completed < view.submitted) view.oldest = operation_at(offset, lane->board_size, view.completed);
  return view;
}

RankView Watch::look(uint64_t now_ns) const {
  RankView view;
  const ArenaHeader& header = view_.header();
  view.segment = view_.name();
  view.state = view_.left_in_order() ? RankState::kLeft
               : view_.alive()       ? RankState::kAlive
                                     : RankState::kDied;
  view.pid = header.pid;
  view.device = text_of(shared_->device);
  view.window = shared_->window;
  // Acquire: pairs with the release in publish_group().
  view.joined = acquire(shared_->joined) == 1;
  if (view.joined) {
    view.job = text_of(shared_->job);
    view.job_high = shared_->job_high;
    view.job_low = shared_->job_low;
    view.rank = shared_->rank;
    view.size = shared_->size;
  }
  view.waiting = waiting_text(header);
  view.counted = shared_->counters_offset != 0;
  for (uint64_t b = 0; view.counted && b < shared_->block_count; ++b)
    if (const auto* block = view_.at<BlockCounters>(shared_->counters_offset + b * shared_->block_stride))
      add(view.counters, *block);
  for (const uint64_t offset : view_.lanes())
    if (auto lane = lane_at(offset)) view.lanes.push_back(std::move(*lane));
  std::sort(view.lanes.begin(), view.lanes.end(),
            [](const LaneView& a, const LaneView& b) { return a.name < b.name; });
  for (const auto& path : paths_) view.paths.push_back(look(path, now_ns));
  std::sort(view.paths.begin(), view.paths.end(), [](const PathView& a, const PathView& b) {
    return std::pair(a.peer, a.path) < std::pair(b.peer, b.path);
  });
  return view;
}

}  // namespace starling::monitor
