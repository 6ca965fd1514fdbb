// What was found for earlier calls of a communicator: programs repeat them, and to choose, to find the plan
// by its name, and to go through its instructions for what peers touch takes longer than to run a small one.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "plan/plan.h"

namespace starling {

// Bytes of a buffer, counted from its beginning.
struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;  // behind the last one; 0: there are none
};

// What peers touch of a rank's input and of its output.
struct Offer {
  Extent of[2];
};

// All that a choice and, of equal parts, the offer depend on, but what is the communicator's.
struct CallShape {
  Collective collective;
  uint32_t rank;  // 0 or 1 in the lane of a pair
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

struct Chosen {
  std::shared_ptr<const Plan> plan;
  std::optional<Offer> offer;  // none: not looked for yet
};

// Not thread-safe: its communicator's lock guards it.
class ChosenPlans {
 public:
  // Null: none was chosen yet. Until the next add() or clear().
  Chosen* find(const CallShape& call) {
    const auto found = plans_.find(call);
    return found == plans_.end() ? nullptr : &found->second;
  }
  Chosen* add(const CallShape& call, std::shared_ptr<const Plan> plan) {
    if (plans_.size() >= kMost) plans_.clear();  // sizes that never come again
    return &(plans_[call] = {std::move(plan), std::nullopt});
  }

  // The communicator follows another table from now on.
  void clear() { plans_.clear(); }

 private:
  static constexpr size_t kMost = 1024;
  std::map<CallShape, Chosen> plans_;
};

}  // namespace starling
