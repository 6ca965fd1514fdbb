#include "monitor/watcher.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "base/error.h"
#include "base/thread.h"
#include "machine/cpu/futex.h"

namespace starling::monitor {
namespace {

constexpr uint64_t kLongestWaitNs = 5'000'000'000;  // for a segment that was refused

}  // namespace

Watcher::Watcher(const WatcherOptions& options) : options_(options) {
  {
    std::lock_guard lock(mutex_);
    search(cpu::monotonic_ns());
  }
  thread_ = start_thread("st-watcher", [this] { run(); });
}

Watcher::~Watcher() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ending_changed_.notify_all();
  thread_.join();
}

void Watcher::run() {
  std::unique_lock lock(mutex_);
  uint64_t next_search = 0;
  while (!ending_) {
    const uint64_t now = cpu::monotonic_ns();
    if (now >= next_search) {
      next_search = now + options_.search_ns;
      search(now);
    }
    bool paths = false;
    for (auto& [name, watched] : watched_) {
      if (watched.gone_since_ns != 0) continue;
      watched.watch->follow();
      paths |= watched.watch->has_paths();
    }
    // Without paths there is nothing that could be missed.
    ending_changed_.wait_for(lock, std::chrono::nanoseconds(paths ? options_.follow_ns : options_.search_ns));
  }
}

void Watcher::search(uint64_t now_ns) {
  const std::vector<std::string> names = cpu::arena_names();
  for (const std::string& name : names) {
    if (watched_.contains(name)) continue;
    if (const auto refused = refused_.find(name);
        refused != refused_.end() && now_ns < refused->second.next_ns)
      continue;
    try {
      auto watch = std::make_unique<Watch>(name, options_.watch);
      if (!watch->alive()) continue;  // of a job that ended long ago
      watch->follow();
      watched_[name].watch = std::move(watch);
      refused_.erase(name);
    } catch (const Error&) {
      Refused& refused = refused_[name];
      refused.wait_ns = std::max(options_.search_ns, std::min(2 * refused.wait_ns, kLongestWaitNs));
      refused.next_ns = now_ns + refused.wait_ns;
    }
  }
  std::erase_if(refused_, [&](const auto& entry) {
    return !std::binary_search(names.begin(), names.end(), entry.first);
  });
  for (auto& [name, watched] : watched_) {
    if (watched.gone_since_ns != 0 || watched.watch->alive()) continue;
    watched.watch->follow();  // its last transfers
    watched.gone_since_ns = now_ns;
  }
  std::erase_if(watched_, [&](const auto& entry) {
    const uint64_t since = entry.second.gone_since_ns;
    return since != 0 && now_ns - since > options_.remember_ns;
  });
}

std::vector<RankView> Watcher::look() {
  std::lock_guard lock(mutex_);
  const uint64_t now = cpu::monotonic_ns();
  std::vector<RankView> views;
  for (const auto& [name, watched] : watched_) views.push_back(watched.watch->look(now));
  const auto place = [](const RankView& view) {
    return std::tie(view.job, view.job_high, view.job_low, view.rank, view.segment);
  };
  std::sort(views.begin(), views.end(),
            [&](const RankView& a, const RankView& b) { return place(a) < place(b); });
  return views;
}

std::vector<Watcher::Samples> Watcher::take() {
  std::lock_guard lock(mutex_);
  std::vector<Samples> all;
  for (auto& [name, watched] : watched_) {
    const auto samples = watched.watch->take_samples();
    auto anomalies = watched.watch->take_anomalies();
    if (samples.empty() && anomalies.empty()) continue;
    all.push_back({name, {samples.begin(), samples.end()}, {anomalies.begin(), anomalies.end()}});
  }
  return all;
}

}  // namespace starling::monitor
