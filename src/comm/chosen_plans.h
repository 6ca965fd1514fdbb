// What was chosen for earlier calls of a communicator: programs repeat them, and to choose, and to find the
// plan by its name, takes longer than to run a small one.
#pragma once
#include <cstdint>
#include <map>
#include <memory>

#include "plan/plan.h"

namespace starling {

// All that a choice depends on, by a table or among the built-in plans, but what is the communicator's.
struct CallShape {
  Collective collective;
  uint32_t size;  // of the group: 2 in the lane of a pair
  uint32_t root;
  bool in_place;
  bool unequal_parts;
  bool pulls;
  bool by_address;
  bool across_hosts;
  DataType data_type;
  uint64_t choice_bytes;
  uint32_t block_limit;
  uint32_t channel_limit;
  auto operator<=>(const CallShape&) const = default;
};

// Not thread-safe: its communicator's lock guards it.
class ChosenPlans {
 public:
  // Null: none was chosen yet.
  std::shared_ptr<const Plan> find(const CallShape& call) const {
    const auto found = plans_.find(call);
    return found == plans_.end() ? nullptr : found->second;
  }
  void add(const CallShape& call, std::shared_ptr<const Plan> plan) {
    if (plans_.size() >= kMost) plans_.clear();  // sizes that never come again
    plans_.emplace(call, std::move(plan));
  }

  // The communicator follows another table from now on.
  void clear() { plans_.clear(); }

 private:
  static constexpr size_t kMost = 1024;
  std::map<CallShape, std::shared_ptr<const Plan>> plans_;
};

}  // namespace starling
