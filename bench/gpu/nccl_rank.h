// One rank of NCCL, in one of its modes:
//
//   default     buffers of cudaMalloc, as PyTorch's
//   registered  buffers of ncclMemAlloc, told to the communicator (ncclCommRegister)
//   symmetric   the same in windows that all ranks register (ncclCommWindowRegister, NCCL_WIN_COLL_SYMMETRIC)
//   zero_cta    symmetric, and a communicator whose policy is to take no multiprocessor: copy engines move
//   what
//               needs no sum. Other collectives run kernels there, as in symmetric: not measured
//
// A mode lacks something where this NCCL is older, or the machine does not let it: `missing` says what.
// NVLink multicast stays off in all of them (NCCL_NVLS_ENABLE=0, which the program sets before NCCL is
// loaded).
#pragma once
#include <climits>

#include "collectives.h"

namespace gpu_bench {

enum class NcclMode { kDefault, kRegistered, kSymmetric, kZeroCta };
inline constexpr std::array<const char*, 4> kNcclModeNames = {"default", "registered", "symmetric",
                                                              "zero_cta"};

// The leading part of ncclConfig_t as 2.28 has it; NCCL reads as much as `size` says, so a newer one takes
// it.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 22800;
  int blocking = INT_MIN, cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN, traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN, cta_policy = INT_MIN, shrink_share = INT_MIN, nvls_ctas = INT_MIN;
  int channels_per_net_peer = INT_MIN, nvlink_centric_sched = INT_MIN;
};
static_assert(sizeof(NcclConfig) == 80);

class NcclRank {
 public:
  static constexpr int kZeroCtaFrom = 22800;  // NCCL_CTA_POLICY_ZERO

  // All ranks at once, as with every NCCL communicator.
  NcclRank(const Nccl& nccl, const Nccl::UniqueId& id, int rank, int ranks, cudaStream_t stream,
           NcclMode mode = NcclMode::kDefault)
      : nccl_(nccl), stream_(stream), mode_(mode) {
    NcclConfig config;
    config.cta_policy = 2;  // NCCL_CTA_POLICY_ZERO
    if (mode == NcclMode::kZeroCta)
      success(nccl_.init_rank_config(&comm_, ranks, id, rank, &config), "ncclCommInitRankConfig");
    else
      success(nccl_.init_rank(&comm_, ranks, id, rank), "ncclCommInitRank");
  }

  // What this NCCL lacks for the mode; null: nothing. The same on all ranks.
  static const char* missing(const Nccl& nccl, NcclMode mode) {
    if (mode == NcclMode::kDefault) return nullptr;
    if (nccl.mem_alloc == nullptr) return "ncclMemAlloc";
    if (mode == NcclMode::kRegistered) return nccl.comm_register == nullptr ? "ncclCommRegister" : nullptr;
    if (nccl.window_register == nullptr) return "ncclCommWindowRegister";
    if (mode == NcclMode::kSymmetric) return nullptr;
    if (nccl.init_rank_config == nullptr) return "ncclCommInitRankConfig";
    return nccl.version < kZeroCtaFrom ? "NCCL_CTA_POLICY_ZERO (from 2.28 on)" : nullptr;
  }

  // A buffer of the mode, all ranks at once: to register a window is a collective call. Null: this rank
  // cannot have one, and `why` says so.
  std::byte* allocate(size_t bytes, std::string& why) {
    void* buffer = nullptr;
    if (mode_ == NcclMode::kDefault) {
      cuda(cudaMalloc(&buffer, bytes), "cudaMalloc");
      return static_cast<std::byte*>(buffer);
    }
    bytes = (bytes + kWindowBytes - 1) / kWindowBytes * kWindowBytes;
    success(nccl_.mem_alloc(&buffer, bytes), "ncclMemAlloc");
    void* handle = nullptr;
    const bool window = mode_ != NcclMode::kRegistered;
    const int status = window ? nccl_.window_register(comm_, buffer, bytes, &handle, kSymmetricWindow)
                              : nccl_.comm_register(comm_, buffer, bytes, &handle);
    if (status != 0) why = failed(window ? "ncclCommWindowRegister" : "ncclCommRegister", status);
    // It succeeds without a handle where the machine's memory cannot be registered so.
    if (handle == nullptr && why.empty()) why = "NCCL registered nothing";
    return why.empty() ? static_cast<std::byte*>(buffer) : nullptr;
  }

  static bool can(const Call& call, NcclMode mode = NcclMode::kDefault) {
    if (call.in_place && call.kind == Kind::kAllToAll) return false;
    return mode != NcclMode::kZeroCta || call.kind == Kind::kAllGather || call.kind == Kind::kAllToAll;
  }

  void on_stream(const Call& call) {
    const int type = call.type == Type::kFloat32 ? 7 : 9;
    constexpr int kSum = 0;
    success(
        [&] {
          switch (call.kind) {
            case Kind::kAllReduce:
              return nccl_.all_reduce(call.input, call.output, call.count, type, kSum, comm_, stream_);
            case Kind::kAllGather:
              return nccl_.all_gather(call.input, call.output, call.count, type, comm_, stream_);
            case Kind::kReduceScatter:
              return nccl_.reduce_scatter(call.input, call.output, call.count, type, kSum, comm_, stream_);
            case Kind::kBroadcast:
              return nccl_.broadcast(call.input, call.output, call.count, type, kRoot, comm_, stream_);
            case Kind::kReduce:
              return nccl_.reduce(call.input, call.output, call.count, type, kSum, kRoot, comm_, stream_);
            case Kind::kAllToAll: return all_to_all(call, type);
            case Kind::kSendRecv: return send_receive(call, type);
          }
          return 1;
        }(),
        kKindNames[size_t(call.kind)]);
  }

 private:
  static std::string failed(const char* what, int status) {
    return std::string(what) + ": status " + std::to_string(status);
  }
  static void success(int status, const char* what) {
    if (status != 0) die("NCCL", failed(what, status).c_str());
  }
  int send_receive(const Call& call, int type) {
    nccl_.group_start();
    nccl_.send(call.input, call.count, type, call.next(), comm_, stream_);
    nccl_.receive(call.output, call.count, type, call.before(), comm_, stream_);
    return nccl_.group_end();
  }
  int all_to_all(const Call& call, int type) {
    if (nccl_.all_to_all != nullptr)
      return nccl_.all_to_all(call.input, call.output, call.count, type, comm_, stream_);
    const size_t part = call.count * bytes_of(call.type);
    nccl_.group_start();
    for (int peer = 0; peer < call.ranks; ++peer) {
      nccl_.send(call.input + size_t(peer) * part, call.count, type, peer, comm_, stream_);
      nccl_.receive(call.output + size_t(peer) * part, call.count, type, peer, comm_, stream_);
    }
    return nccl_.group_end();
  }

  static constexpr size_t kWindowBytes = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT
  static constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC

  const Nccl& nccl_;
  cudaStream_t stream_;
  const NcclMode mode_;
  Nccl::Comm comm_ = nullptr;
};

}  // namespace gpu_bench
