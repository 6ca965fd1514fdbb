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

  struct Shelved {
    const PlanHeader* header = nullptr;
    uint64_t written = 0;  // Place::written() then: it is there when so much has arrived
  };

  // The part of `rank`, readable by the daemon as long as the shelf lives, or the caller keeps the plan.
  Shelved get(const std::shared_ptr<const Plan>& plan, uint32_t rank) {
    const PlanHeader* header = plan->header(rank);
    if (place_.traits().direct) return {header, 0};
    Shelved& copy = copies_[header];
    if (copy.header != nullptr) return copy;
    const auto part = plan->part(rank);
    std::byte* memory = place_.allocate_unwritten(part.size());
    place_.write(memory, part.data(), part.size());
    kept_.push_back(plan);  // its address is the key
    return copy = {reinterpret_cast<const PlanHeader*>(memory), place_.written()};
  }

 private:
  Place& place_;
  std::map<const PlanHeader*, Shelved> copies_;
  std::vector<std::shared_ptr<const Plan>> kept_;
};

}  // namespace starling
