#include "plan/cache.h"

#include "plan/generate.h"

namespace starling {

// The plan is made outside the lock: a large one takes milliseconds, and others must not wait for it. Two
// threads that come first together make it twice; both use the one that was stored.
std::shared_ptr<const Plan> PlanCache::get(std::string_view algorithm, const PlanRequest& request) {
  const Key key{std::string(algorithm), request};
  {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
  }
  auto made = std::make_shared<const Plan>(generate(algorithm, request));
  const std::lock_guard lock(mutex_);
  return plans_.try_emplace(key, std::move(made)).first->second;
}

std::size_t PlanCache::size() const {
  const std::lock_guard lock(mutex_);
  return plans_.size();
}

}  // namespace starling
