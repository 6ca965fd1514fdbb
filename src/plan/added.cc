#include "plan/added.h"

#include <cstring>

#include "base/error.h"
#include "plan/geometry.h"
#include "plan/verify.h"

namespace starling {
namespace {

std::string text_of(const PlanUse& use) {
  const CollectiveTraits& traits = traits_of(use.collective);
  std::string text = std::string(traits.name) + " over " + std::to_string(use.rank_count) + " ranks" +
                     (use.in_place ? ", in place" : ", out of place");
  if (traits.rooted) text += ", root " + std::to_string(use.root);
  return text;
}

// What the verifier says of the same instructions when input and output are one buffer.
Verdict verdict_in_place(const Plan& plan) {
  std::vector<std::vector<std::uint64_t>> parts;
  std::vector<PlanView> views;
  for (std::uint32_t rank = 0; rank < plan.rank_count(); ++rank) {
    const auto part = plan.part(rank);
    std::vector<std::uint64_t>& words = parts.emplace_back(part.size() / sizeof(std::uint64_t));
    std::memcpy(words.data(), part.data(), part.size());
    auto* header = reinterpret_cast<PlanHeader*>(words.data());
    header->in_place = 1;
    views.push_back({header});
  }
  return verify(views);
}

// A message has 16 bytes of each chunk at least, in a lane of the smallest slots, or packets, too.
void check_width(const Plan& plan) {
  const std::uint32_t widest = plan.protocol() == Protocol::kPackets ? 64 : 256;
  const std::uint32_t chunks = plan.header(0)->largest_chunks;
  if (chunks <= widest) return;
  throw Error(Code::unsupported,
              "plan '" + plan.name() + "' moves " + std::to_string(chunks) +
                  " chunks at once; a message has room for " + std::to_string(widest),
              "move fewer chunks in one operation of the program");
}

PlanUse use_of(const Plan& plan) {
  return {plan.collective(), plan.rank_count(), plan.root(), plan.in_place()};
}

}  // namespace

void check_rooted(const Plan& plan) {
  if (!traits_of(plan.collective()).rooted) return;
  const std::string what = "plan '" + plan.name() + "' of " + std::string(traits_of(plan.collective()).name);
  if (plan.in_place())
    throw Error(Code::invalid_argument, what + " is written for one buffer",
                "compile it out of place: the root may pass one buffer or two");
  const Verdict verdict = verdict_in_place(plan);
  if (verdict.right()) return;
  throw Error(Code::invalid_argument,
              what + " is wrong if the root passes one buffer: " + verdict.violations.front().describe(),
              "read a chunk of the input before its place in the output is written");
}

void check_slots(const Plan& plan) {
  const std::uint32_t slots = plan.header(0)->minimum_slots;
  if (slots <= kLaneSlots) return;
  throw Error(Code::unsupported,
              "plan '" + plan.name() + "' needs " + std::to_string(slots) +
                  " slots on a connection to finish; lanes have " + std::to_string(kLaneSlots),
              "compile its program with slots=" + std::to_string(kLaneSlots) +
                  ", or let ranks receive between the sends that cross");
}

void check_fits_lanes(const Plan& plan) {
  check_slots(plan);
  check_width(plan);
}

bool AddedPlans::Entry::serves(const PlanUse& use) const {
  return plan->collective() == use.collective && plan->rank_count() == use.rank_count &&
         plan->root() == use.root && (use.is_empty || plan->in_place() == use.in_place);
}

void AddedPlans::add(std::shared_ptr<const Plan> plan, const SizeRange& sizes) {
  const PlanUse use = use_of(*plan);
  check_rooted(*plan);
  check_fits_lanes(*plan);
  for (const Entry& entry : entries_) {
    if (entry.plan->name() != plan->name() || !entry.serves(use)) continue;
    throw Error(Code::invalid_argument,
                "a plan named '" + plan->name() + "' for " + text_of(use) + " was added before",
                "give each plan a name of its own");
  }
  entries_.push_back({std::move(plan), sizes});
}

std::shared_ptr<const Plan> AddedPlans::named(std::string_view name, const PlanUse& use) const {
  const Entry* other = nullptr;
  for (const Entry& entry : entries_) {
    if (entry.plan->name() != name) continue;
    if (entry.serves(use)) return entry.plan;
    other = &entry;
  }
  if (other == nullptr) return nullptr;
  throw Error(Code::invalid_argument,
              "plan '" + std::string(name) + "' is for " + text_of(use_of(*other->plan)) + "; this call is " +
                  text_of(use),
              "compile the program for this use, and add that plan under the same name");
}

std::shared_ptr<const Plan> AddedPlans::chosen(const PlanUse& use, std::uint64_t bytes) const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (bytes < entry->sizes.smallest || bytes > entry->sizes.largest || !entry->serves(use)) continue;
    if (use.unequal_parts && entry->plan->header(0)->uniform_only != 0) continue;
    return entry->plan;
  }
  return nullptr;
}

}  // namespace starling
