// The element types, reductions and collectives that plans, operations and the C API share.
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

// Values are part of the plan file format and of the C API (starling.h mirrors them).
enum class DataType : uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt16 = 2,
  kUint16 = 3,
  kInt32 = 4,
  kUint32 = 5,
  kInt64 = 6,
  kUint64 = 7,
  kFloat16 = 8,
  kBfloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
  kBool = 12,
};
inline constexpr uint32_t kDataTypeCount = 13;

enum class ReduceOp : uint8_t {
  kSum = 0,
  kProd = 1,
  kMin = 2,
  kMax = 3,
  kAvg = 4,        // a sum; the instruction flagged kFinal divides by the number of ranks
  kPremulSum = 5,  // every read of the input buffer is multiplied by the operation's scalar
  kBand = 6,
  kBor = 7,
  kBxor = 8,
};
inline constexpr uint32_t kReduceOpCount = 9;

enum class Collective : uint8_t {
  kAllReduce = 0,
  kAllGather = 1,
  kReduceScatter = 2,
  kBroadcast = 3,
  kReduce = 4,
  kAllToAll = 5,
  kGather = 6,
  kScatter = 7,
  kSendRecv = 8,  // rank 0 of the pair lane sends, rank 1 receives
  kBarrier = 9,
  kCustom = 10,
};
inline constexpr uint32_t kCollectiveCount = 11;

// Messages that are put, on one connection in one tile, at most: their places are told when the tile begins.
inline constexpr uint32_t kMaxLent = 16;

STARLING_HOST_DEVICE constexpr uint32_t data_type_bytes(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool: return 1;
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBfloat16: return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32: return 4;
    default: return 8;
  }
}

}  // namespace starling
