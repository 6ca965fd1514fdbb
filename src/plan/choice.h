// Which algorithm, with how many blocks, for an operation: a table by collective, ranks and size. What was
// measured at the place itself goes before it (plan/table.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "wire/types.h"

namespace starling {

// What an element costs beside its bytes, where that changes the choice. A sum of 16-bit floats is widened
// and rounded: on CPUs two to seven times as long for each byte as any other (Xeon 2.8 GHz, two ranks, 1
// MiB).
enum class TypeClass : std::uint8_t {
  kMoved,  // nothing is reduced: "moved"
  kPlain,  // "plain"
  kHalf,   // float16 and bfloat16: "half"
};

TypeClass type_class(bool reduces, DataType type);
std::string_view type_class_name(TypeClass types);
std::optional<TypeClass> type_class_named(std::string_view name);

struct ChoiceRequest {
  Collective collective = Collective::kAllReduce;
  std::uint32_t rank_count = 1;
  // Of the larger of a rank's two buffers, parts of all ranks included (nccl-tests' size): all_reduce of
  // `count` elements and all_gather of count / ranks elements each have the same. Equal on all ranks;
  // v-variants sum up.
  std::uint64_t bytes = 0;
  DataType data_type = DataType::kFloat32;
  std::uint32_t block_limit = 1;  // blocks of the daemon
  bool in_place = false;
  bool on_gpu = false;
  bool pulls = false;  // blocks can read peers' buffers
  bool one_process = false;  // and address them: all ranks are threads of one
  bool pulling_pays = false;  // between processes, or where a rank waits for one that may not run
  bool pulls_if_faster = false;  // of processes on GPUs: not what goes faster by slots
  bool across_hosts = false;  // the ranks are on several: messages go by slots, also those of GPUs
  bool equal_hosts = false;  // and each has equally many ranks: algorithms that know nodes can be chosen
};

struct Choice {
  std::string_view algorithm;
  std::uint32_t block_count;
};

// A pure function of the request: every rank comes to the same choice.
Choice choose(const ChoiceRequest& request);

}  // namespace starling
