// Plans by what they are made for: made once, shared, and kept as long as the cache lives.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "plan/plan.h"

namespace starling {

class PlanCache {
 public:
  // Thread-safe. Generates the plan at the first call; throws as generate() does, and then keeps nothing.
  std::shared_ptr<const Plan> get(std::string_view algorithm, const PlanRequest& request);

  std::size_t size() const;

 private:
  using Key = std::pair<std::string, PlanRequest>;

  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Plan>> plans_;
};

}  // namespace starling
