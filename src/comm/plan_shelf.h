// Plans where the daemon reads them: on the host itself, or copied once into the place's memory.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "machine/place.h"
#include "plan/plan.h"

namespace starling {

class PlanShelf {
 public:
  explicit PlanShelf(Place& place) : place_(place) {}

  // The part of `rank`, readable by the daemon as long as the shelf lives, or the caller keeps the plan.
  const PlanHeader* get(const std::shared_ptr<const Plan>& plan, uint32_t rank) {
    const PlanHeader* header = plan->header(rank);
    if (place_.traits().direct) return header;
    const PlanHeader*& copy = copies_[header];
    if (copy != nullptr) return copy;
    const auto part = plan->part(rank);
    std::byte* memory = place_.allocate(part.size());
    place_.write(memory, part.data(), part.size());
    kept_.push_back(plan);  // its address is the key
    return copy = reinterpret_cast<const PlanHeader*>(memory);
  }

 private:
  Place& place_;
  std::map<const PlanHeader*, const PlanHeader*> copies_;
  std::vector<std::shared_ptr<const Plan>> kept_;
};

}  // namespace starling
