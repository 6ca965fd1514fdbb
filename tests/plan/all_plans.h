// Every built-in algorithm over a range of ranks, blocks, roots and in-place: what the tests of this folder
// sweep.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "plan/generate.h"
#include "plan/geometry.h"

namespace starling {

struct BuiltIn {
  std::string_view algorithm;
  PlanRequest request;

  // Parts of others, through scratch: where the ranks can be put on nodes of several.
  bool passes_parts_on() const {
    bool has_nodes = false;
    for (std::uint32_t d = 2; d < request.rank_count; ++d)
      has_nodes = has_nodes || request.rank_count % d == 0;
    return (algorithm == "two_step" || algorithm == "three_step") && has_nodes;
  }
  std::string name() const {
    return std::string(traits_of(request.collective).name) + " " + std::string(algorithm) + ", ranks " +
           std::to_string(request.rank_count) + ", root " + std::to_string(request.root) + ", blocks " +
           std::to_string(request.block_count) + (request.in_place ? ", in place" : "");
  }
};

// Many ranks run the same code as few, only more of it: sanitizers, slow as they are, see the few.
#ifdef STARLING_SANITIZED
constexpr std::uint32_t kMostRanks = 8;
#else
constexpr std::uint32_t kMostRanks = UINT32_MAX;
#endif

inline std::vector<BuiltIn> built_ins(const std::vector<std::uint32_t>& rank_counts,
                                      const std::vector<std::uint32_t>& block_counts) {
  std::vector<BuiltIn> all;
  for (std::uint32_t c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    for (const std::string_view algorithm : algorithms_for(collective)) {
      for (const std::uint32_t ranks : rank_counts) {
        if (ranks > kMostRanks || !algorithm_takes(algorithm, collective, ranks)) continue;
        for (std::uint32_t root = 0; root < (traits_of(collective).rooted ? ranks : 1);
             root += ranks > 8 ? 7 : 1) {
          for (const std::uint32_t blocks : block_counts) {
            for (const bool in_place : {false, true}) {
              all.push_back({algorithm, {collective, ranks, root, blocks, in_place}});
            }
          }
        }
      }
    }
  }
  return all;
}

}  // namespace starling
