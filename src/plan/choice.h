// Which algorithm, with how many blocks, for an operation: a table by collective, ranks and size.
#pragma once
#include <cstdint>
#include <string_view>

#include "wire/types.h"

namespace starling {

struct ChoiceRequest {
  Collective collective = Collective::kAllReduce;
  std::uint32_t rank_count = 1;
  // Of the larger of a rank's two buffers, parts of all ranks included (nccl-tests' size): all_reduce of
  // `count` elements and all_gather of count / ranks elements each have the same. Equal on all ranks;
  // v-variants sum up.
  std::uint64_t bytes = 0;
  DataType data_type = DataType::kFloat32;
  std::uint32_t block_limit = 1;  // blocks of the daemon
  bool on_gpu = false;
  bool pulls = false;  // blocks can read peers' buffers
};

struct Choice {
  std::string_view algorithm;
  std::uint32_t block_count;
};

// A pure function of the request: every rank comes to the same choice.
Choice choose(const ChoiceRequest& request);

}  // namespace starling
