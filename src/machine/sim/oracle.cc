#include "machine/sim/oracle.h"

#include <cstring>

#include "base/assert.h"
#include "base/hash.h"
#include "plan/geometry.h"

namespace starling::sim {
namespace {

uint64_t groups_of(const CallSpec& call, BufferKind buffer, uint32_t rank) {
  const PlanHeader* header = call.plan->header(rank);
  if (!Geometry::of(*header).exists(buffer, rank)) return 0;
  return buffer == BufferKind::kInput ? header->input_groups : header->output_groups;
}

// Small enough that sums of all ranks are exact in every type, or wrap alike.
template <class T>
T value_at(uint32_t base, uint32_t index) {
  const uint32_t bits = (base + index * 2654435761u) ^ (base >> 7);
  if constexpr (sizeof(T) == 1)
    return T((bits >> 20) & 0x7f);
  else
    return T((bits >> 9) & 0xffff);
}

template <class Visit>
void with_type(DataType type, Visit&& visit) {
  switch (type) {
    case DataType::kInt32: return visit(int32_t());
    case DataType::kUint8: return visit(uint8_t());
    case DataType::kInt64: return visit(int64_t());
    case DataType::kFloat32: return visit(float());
    default: STARLING_ASSERT(false, "the simulator's programs use other types");
  }
}

struct Inputs {
  const LaneSpec& lane;
  const CallSpec& call;
  uint64_t seed;

  uint32_t base(uint32_t rank) const { return uint32_t(hash_combine(seed, rank)); }

  // Group `group` of the rank's input.
  template <class T>
  void copy(uint32_t rank, uint64_t group, T* to) const {
    each(rank, group, to, [](T, T v) { return v; });
  }

  // What users get: avg divides what the type made of the sum, premul_sum rounds each product to the type.
  template <class T>
  void reduce(uint64_t group, T* to) const {
    const uint32_t ranks = uint32_t(lane.ranks.size());
    const auto scaled = [this](uint32_t r) {
      return [factor = call.factor(r)](T v) { return T(double(v) * factor); };
    };
    if (call.reduce_op == ReduceOp::kPremulSum)
      each(0, group, to, [of = scaled(0)](T, T v) { return of(v); });
    else
      copy(0, group, to);
    for (uint32_t r = 1; r < ranks; ++r) switch (call.reduce_op) {
        case ReduceOp::kSum:
        case ReduceOp::kAvg: each(r, group, to, [](T a, T b) { return T(a + b); }); break;
        case ReduceOp::kPremulSum:
          each(r, group, to, [of = scaled(r)](T a, T b) { return T(a + of(b)); });
          break;
        case ReduceOp::kMax: each(r, group, to, [](T a, T b) { return a > b ? a : b; }); break;
        case ReduceOp::kMin: each(r, group, to, [](T a, T b) { return a < b ? a : b; }); break;
        default: STARLING_ASSERT(false, "the simulator's programs use other reductions");
      }
    if (call.reduce_op == ReduceOp::kAvg)
      for (uint64_t e = 0; e < call.count; ++e) to[e] = T(to[e] / T(ranks));
  }

 private:
  // A loop that the compiler makes vectors of: it counts in 32 bits, and all it needs is local.
  template <class T, class Op>
  void each(uint32_t rank, uint64_t group, T* to, Op op) const {
    const uint32_t b = base(rank), n = uint32_t(call.count), first = uint32_t(group * call.count);
    for (uint32_t e = 0; e < n; ++e) to[e] = op(to[e], value_at<T>(b, first + e));
  }
};

}  // namespace

uint64_t Oracle::group_bytes() const { return call->count * data_type_bytes(call->data_type); }

uint64_t Oracle::input_bytes(uint32_t rank) const {
  return groups_of(*call, BufferKind::kInput, rank) * group_bytes();
}

uint64_t Oracle::output_bytes(uint32_t rank) const {
  return groups_of(*call, BufferKind::kOutput, rank) * group_bytes();
}

bool Oracle::knows(uint32_t rank) const {
  if (call->plan->collective() != Collective::kCustom) return true;
  const uint64_t groups = call->plan->header(rank)->output_groups;
  for (uint64_t g = 0; g < groups; ++g)
    if (rank * groups + g >= call->origins.size() || call->origins[rank * groups + g].empty()) return false;
  return true;
}

void Oracle::fill_input(uint32_t rank, std::byte* to) const {
  const uint64_t groups = groups_of(*call, BufferKind::kInput, rank);
  const Inputs inputs{*lane, *call, seed};
  with_type(call->data_type, [&]<class T>(T) {
    for (uint64_t g = 0; g < groups; ++g) inputs.copy(rank, g, reinterpret_cast<T*>(to) + g * call->count);
  });
}

template <class T>
void Oracle::add_origins(uint32_t rank, T* out) const {
  const Inputs inputs{*lane, *call, seed};
  const uint64_t groups = call->plan->header(rank)->output_groups;
  std::vector<T> part(call->count);
  for (uint64_t g = 0; g < groups; ++g) {
    T* to = out + g * call->count;
    std::fill(to, to + call->count, T());
    for (const GroupSource& source : call->origins[rank * groups + g]) {
      inputs.copy(source.rank, source.group, part.data());
      for (uint64_t e = 0; e < call->count; ++e) to[e] = T(to[e] + part[e]);
    }
  }
}

void Oracle::expected_output(uint32_t rank, std::byte* to) const {
  const uint32_t size = uint32_t(lane->ranks.size());
  const uint32_t root = call->plan->root();
  const Inputs inputs{*lane, *call, seed};
  if (output_bytes(rank) == 0) return;
  with_type(call->data_type, [&]<class T>(T) {
    T* out = reinterpret_cast<T*>(to);
    switch (call->plan->collective()) {
      case Collective::kAllReduce:
      case Collective::kReduce: return inputs.reduce(0, out);
      case Collective::kReduceScatter: return inputs.reduce(rank, out);
      case Collective::kBroadcast: return inputs.copy(root, 0, out);
      case Collective::kScatter: return inputs.copy(root, rank, out);
      case Collective::kSendRecv: return inputs.copy(0, 0, out);
      case Collective::kAllGather:
      case Collective::kGather:
        for (uint32_t g = 0; g < size; ++g) inputs.copy(g, 0, out + g * call->count);
        return;
      case Collective::kAllToAll:
        for (uint32_t g = 0; g < size; ++g) inputs.copy(g, rank, out + g * call->count);
        return;
      case Collective::kCustom: return add_origins(rank, out);
      default: STARLING_ASSERT(false, "a collective that the simulator does not know");
    }
  });
}

}  // namespace starling::sim
