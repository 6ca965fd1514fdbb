// The collectives that are measured on GPUs: how large their buffers are, what lies in them, and how
// Starling is called for them. NCCL: nccl_rank.h.
#pragma once
#include <cuda_bf16.h>

#include <array>
#include <string>

#include "gpu_ranks.h"

namespace gpu_bench {

enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll, kSendRecv };
inline constexpr std::array<const char*, 7> kKindNames = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv"};
inline constexpr int kRoot = 0;

enum class Type { kFloat32, kBFloat16 };
inline size_t bytes_of(Type type) { return type == Type::kFloat32 ? 4 : 2; }

// One call of one rank. `count`: elements of a rank's part, as in starling.h. send_recv: to the next rank,
// from the one before.
struct Call {
  Kind kind;
  Type type;
  bool in_place;
  size_t count;
  int rank, ranks;
  std::byte* input;
  std::byte* output;

  size_t input_count() const {
    return kind == Kind::kReduceScatter || kind == Kind::kAllToAll ? size_t(ranks) * count : count;
  }
  size_t output_count() const {
    return kind == Kind::kAllGather || kind == Kind::kAllToAll ? size_t(ranks) * count : count;
  }
  bool has_result() const { return kind != Kind::kReduce || rank == kRoot; }
  int next() const { return (rank + 1) % ranks; }
  int before() const { return (rank + ranks - 1) % ranks; }
};

// Buffers of `bytes` each, of which a call uses what it needs.
inline Call make_call(Kind kind, Type type, bool in_place, size_t bytes, int rank, int ranks,
                      std::byte* first, std::byte* second) {
  const bool split = kind == Kind::kAllGather || kind == Kind::kReduceScatter || kind == Kind::kAllToAll;
  const size_t parts = split ? size_t(ranks) : 1;
  const size_t count = std::max<size_t>(bytes / (bytes_of(type) * parts), 1);
  Call call{kind, type, in_place, count, rank, ranks, first, in_place ? first : second};
  const size_t mine = size_t(rank) * count * bytes_of(type);
  if (in_place && kind == Kind::kAllGather) call.input += mine;
  if (in_place && kind == Kind::kReduceScatter) call.output += mine;
  return call;
}

// ---- what lies in the buffers -----------------------------------------------------------------------------

// Small integers: their sums are exact in every type.
__host__ __device__ inline int input_value(int rank, size_t element) { return rank + 1 + int(element % 7); }

__host__ __device__ inline int output_value(Kind kind, int rank, int ranks, size_t count, size_t element) {
  const auto sum = [&](size_t at) { return ranks * (ranks + 1) / 2 + ranks * int(at % 7); };
  switch (kind) {
    case Kind::kAllReduce:
    case Kind::kReduce: return sum(element);
    case Kind::kReduceScatter: return sum(size_t(rank) * count + element);
    case Kind::kBroadcast: return input_value(kRoot, element);
    case Kind::kAllGather: return input_value(int(element / count), element % count);
    case Kind::kAllToAll: return input_value(int(element / count), size_t(rank) * count + element % count);
    case Kind::kSendRecv: return input_value((rank + ranks - 1) % ranks, element);
  }
  return 0;
}

template <class T>
__global__ void fill(T* to, size_t count, int rank, bool poison) {
  for (size_t k = blockIdx.x * size_t(blockDim.x) + threadIdx.x; k < count;
       k += size_t(gridDim.x) * blockDim.x)
    to[k] = T(float(poison ? -1 : input_value(rank, k)));
}
template <class T>
__global__ void compare(const T* seen, Kind kind, int rank, int ranks, size_t count, size_t elements,
                        unsigned long long* wrong) {
  for (size_t k = blockIdx.x * size_t(blockDim.x) + threadIdx.x; k < elements;
       k += size_t(gridDim.x) * blockDim.x)
    if (float(seen[k]) != float(output_value(kind, rank, ranks, count, k))) atomicAdd(wrong, 1ull);
}

// The output first: in place the input lies in it.
template <class T>
void fill_buffers_of(const Call& call, cudaStream_t stream) {
  const bool apart = !call.in_place || call.kind == Kind::kAllGather;
  if (apart)
    fill<<<132, 512, 0, stream>>>(reinterpret_cast<T*>(call.output), call.output_count(), call.rank, true);
  fill<<<132, 512, 0, stream>>>(reinterpret_cast<T*>(call.input), call.input_count(), call.rank, false);
}
inline void fill_buffers(const Call& call, cudaStream_t stream) {
  if (call.type == Type::kFloat32)
    fill_buffers_of<float>(call, stream);
  else
    fill_buffers_of<__nv_bfloat16>(call, stream);
}

// Adds the elements that are not as they should be to *wrong, which is the GPU's.
inline void compare_output(const Call& call, unsigned long long* wrong, cudaStream_t stream) {
  if (!call.has_result()) return;
  const auto run = [&]<class T>(const T* output) {
    compare<<<132, 512, 0, stream>>>(output, call.kind, call.rank, call.ranks, call.count,
                                     call.output_count(), wrong);
  };
  if (call.type == Type::kFloat32)
    run(reinterpret_cast<const float*>(call.output));
  else
    run(reinterpret_cast<const __nv_bfloat16*>(call.output));
}

// ---- Starling ---------------------------------------------------------------------------------------------

inline starling_operation operation_of(const Call& call, starling_start start, cudaStream_t stream) {
  static constexpr std::array<starling_collective, 7> kKinds = {
      STARLING_ALL_REDUCE, STARLING_ALL_GATHER, STARLING_REDUCE_SCATTER, STARLING_BROADCAST, STARLING_REDUCE,
      STARLING_ALL_TO_ALL, STARLING_SEND};
  starling_operation op{};
  op.struct_bytes = sizeof op;
  op.kind = kKinds[size_t(call.kind)];
  op.input = call.input;
  op.output = call.output;
  op.count = call.count;
  op.data_type = call.type == Type::kFloat32 ? STARLING_FLOAT32 : STARLING_BFLOAT16;
  op.root = kRoot;
  op.peer = call.next();
  op.start = start;
  op.stream = stream;
  op.timeout_ns = 20'000'000'000;
  return op;
}
inline starling_operation receive_of(const Call& call, starling_start start, cudaStream_t stream) {
  starling_operation op = operation_of(call, start, stream);
  op.kind = STARLING_RECV;
  op.peer = call.before();
  return op;
}

class Starling {
 public:
  Starling(const Member& member, cudaStream_t stream) : comm_(member.comm), stream_(stream) {}

  // Behind the stream's work; what comes behind it in the stream sees the result. `algorithm`: null, or one
  // by its name.
  void on_stream(const Call& call, const char* algorithm) {
    starling_operation op = operation_of(call, STARLING_START_HOLD_STREAM, stream_);
    op.algorithm = algorithm;
    if (call.kind != Kind::kSendRecv) return ok(starling_submit(comm_, &op, nullptr), "submit");
    // A send must not stand before the receive that its peer waits for.
    starling_operation both[] = {op, receive_of(call, STARLING_START_HOLD_STREAM, stream_)};
    both[1].algorithm = algorithm;
    ok(starling_submit_together(comm_, both, 2, nullptr), "submit");
  }

  // From the call to the moment when the CPU knows that the result is there.
  void on_cpu(const Call& call) {
    const starling_operation op = operation_of(call, STARLING_START_NOW, nullptr);
    starling_request* requests[2] = {nullptr, nullptr};
    ok(starling_submit(comm_, &op, &requests[0]), "submit");
    if (call.kind == Kind::kSendRecv) {
      const starling_operation receive = receive_of(call, STARLING_START_NOW, nullptr);
      ok(starling_submit(comm_, &receive, &requests[1]), "submit");
    }
    for (starling_request* request : requests) {
      if (request == nullptr) continue;
      ok(starling_wait(request, 20'000'000'000), "wait");
      starling_request_free(request);
    }
  }

 private:
  starling_comm* comm_;
  cudaStream_t stream_;
};

}  // namespace gpu_bench
