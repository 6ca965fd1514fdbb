// A plan in memory: the parts of all ranks, verified, immutable (wire/plan.h has the bytes of one part).
//
// Plans come from generate() (plan/generate.h), from text (plan/text.h), from files (plan/file.h) or from a
// PlanBuilder (plan/builder.h). Whatever the way, a Plan that exists has passed the verifier (plan/verify.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "plan/postcondition.h"
#include "wire/plan.h"

namespace starling {

class Plan {
 public:
  Plan(Plan&&) = default;
  Plan& operator=(Plan&&) = default;
  Plan(const Plan&) = delete;  // daemons hold pointers into a plan; share it by shared_ptr (plan/cache.h)
  Plan& operator=(const Plan&) = delete;

  const std::string& name() const { return name_; }
  Collective collective() const { return header(0)->collective; }
  std::uint32_t rank_count() const { return static_cast<std::uint32_t>(offsets_.size()) - 1; }
  std::uint32_t root() const { return header(0)->root; }
  bool in_place() const { return header(0)->in_place != 0; }
  Protocol protocol() const { return header(0)->protocol; }
  std::uint64_t hash() const { return header(0)->hash; }

  // Of a custom collective; none: a file or text of version 1, which says nothing of the result.
  const std::optional<Postcondition>& postcondition() const { return postcondition_; }

  // Largest number of blocks that any rank uses.
  std::uint32_t block_count() const;

  // On some rank blocks wait for others of their own operation. Then any block may be what another waits for.
  bool crosses_blocks() const { return crosses_blocks_; }

  // The bytes of one rank's part: 8-byte aligned; the address stays while the plan lives, moved or not.
  std::span<const std::byte> part(std::uint32_t rank) const;
  const PlanHeader* header(std::uint32_t rank) const {
    STARLING_ASSERT(rank < rank_count(), "a rank that the plan does not have");
    return reinterpret_cast<const PlanHeader*>(words_.data() + offsets_[rank]);
  }
  PlanView view(std::uint32_t rank) const { return PlanView{header(rank)}; }

  // Parts that came from elsewhere: verified, and compared with every fact that their headers claim. Throws
  // Error(invalid_argument) that names the first violation.
  static Plan from_parts(std::string name, std::span<const std::span<const std::byte>> parts,
                         std::optional<Postcondition> postcondition = std::nullopt);

 private:
  friend class PlanBuilder;
  Plan(std::string name, std::vector<std::uint64_t> words, std::vector<std::size_t> offsets,
       std::optional<Postcondition> postcondition)
      : name_(std::move(name)),
        words_(std::move(words)),
        offsets_(std::move(offsets)),
        postcondition_(std::move(postcondition)) {}

  void seal();

  std::string name_;
  std::vector<std::uint64_t> words_;  // all parts, one after the other
  std::vector<std::size_t> offsets_;  // in words; rank r is [offsets_[r], offsets_[r + 1])
  std::optional<Postcondition> postcondition_;
  bool crosses_blocks_ = false;
};

// What a plan is made for.
struct PlanRequest {
  Collective collective = Collective::kAllReduce;
  std::uint32_t rank_count = 1;
  std::uint32_t root = 0;
  std::uint32_t block_count = 1;
  bool in_place = false;
  // Of algorithms that know nodes, where their name does not say it; it divides the ranks. 0: as few as can
  // be.
  std::uint32_t node_count = 0;
  // The rank at each place of the algorithm: neighbours there are neighbours, and nodes follow each other.
  // Empty: as numbered. A permutation of the ranks.
  std::vector<std::uint16_t> order = {};

  friend auto operator<=>(const PlanRequest&, const PlanRequest&) = default;
};

}  // namespace starling
