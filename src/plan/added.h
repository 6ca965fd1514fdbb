// Plans that a user has added to a communicator: run by name, or chosen by size before the built-in ones.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <starling/plan.h>

#include "plan/plan.h"

namespace starling {

// Of each connector's own, in every lane. What the pool lends makes a pipe deeper, never possible
// (wire/connector.h), so a plan that needs more would stand for ever.
inline constexpr std::uint32_t kLaneSlots = STARLING_LANE_SLOTS;

// Sizes for which a plan is chosen by itself, in bytes as ChoiceRequest counts them, both ends included.
struct SizeRange {
  std::uint64_t smallest = 1;
  std::uint64_t largest = 0;  // less than `smallest`: only by name
};

// What a call needs of a plan. Which rank is the root, and whether it works in place, are the plan's own.
struct PlanUse {
  Collective collective = Collective::kAllReduce;
  std::uint32_t rank_count = 1;
  std::uint32_t root = 0;
  bool in_place = false;
  bool unequal_parts = false;
  bool is_empty = false;  // of no bytes: whether its buffers are one says nothing
};

// Throws Error(invalid_argument) if the plan is of a rooted collective and not right both in place and out of
// place: only the root knows which it is, and every rank runs the same plan.
void check_rooted(const Plan& plan);

// Throws Error(unsupported) if the plan needs more slots than lanes have.
void check_slots(const Plan& plan);

// The same, and if it moves more chunks at once than a message has room for.
void check_fits_lanes(const Plan& plan);

// Not thread-safe: its communicator's lock guards it.
class AddedPlans {
 public:
  // Throws Error(invalid_argument) if there is one of its name for the same use; or if the plan of a rooted
  // collective is not right both in place and out of place. Throws Error(unsupported) if it does not fit
  // lanes.
  void add(std::shared_ptr<const Plan> plan, const SizeRange& sizes);

  bool empty() const { return entries_.empty(); }

  // Null: no plan has the name. Throws Error(invalid_argument) if one has, but for another use.
  std::shared_ptr<const Plan> named(std::string_view name, const PlanUse& use) const;

  // Of the plans for this size the one that was added last; null: none. Alike on all ranks if they added
  // alike.
  std::shared_ptr<const Plan> chosen(const PlanUse& use, std::uint64_t bytes) const;

 private:
  struct Entry {
    std::shared_ptr<const Plan> plan;
    SizeRange sizes;

    bool serves(const PlanUse& use) const;
  };

  std::vector<Entry> entries_;
};

}  // namespace starling
