// A GPU's traits over memory of the host, for tests of lanes; counts what would be the GPU's.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "machine/cpu/place.h"

namespace starling {

inline constexpr uint32_t kBlocks = 32;
inline constexpr uint32_t kGpuSlotBytes = 1 << 17;

class GpuLike final : public Place {
 public:
  explicit GpuLike(cpu::Arena& arena) : host_(arena, {}) {}

  const PlaceTraits& traits() const override {
    static constexpr PlaceTraits kTraits{.direct = false,
                                         .notifies = false,
                                         .streams = true,
                                         .lane_depth = kGpuLaneDepth,
                                         .default_blocks = kBlocks,
                                         .lane_limit = 64,
                                         .slot_bytes_limit = kGpuSlotBytes,
                                         .packet_bytes_limit = 8192,
                                         .pull_bytes = 1 << 20,
                                         .trace_capacity = 0};
    return kTraits;
  }
  std::string name() const override { return "gpu-like"; }
  std::byte* allocate(uint64_t bytes) override { return host_.allocate(bytes); }
  void release(std::byte* memory, uint64_t bytes) override { host_.release(memory, bytes); }
  std::byte* allocate_shared(uint64_t bytes) override {
    shared_bytes += bytes;
    return host_.allocate(bytes);
  }
  void release_shared(std::byte* memory, uint64_t bytes) override {
    shared_bytes -= bytes;
    host_.release(memory, bytes);
  }
  uint64_t allocate_exported(uint64_t bytes) override {
    exported_bytes += bytes;
    return host_.allocate_exported(bytes);
  }
  void release_exported(uint64_t offset, uint64_t bytes) override { host_.release_exported(offset, bytes); }
  std::byte* exported(uint64_t offset) const override { return host_.exported(offset); }
  Pool make_pool(uint64_t) override { return {}; }
  void write(void* to, const void* from, uint64_t bytes) override {
    host_.write(to, from, bytes);
    ++written_;
  }
  uint64_t written() const override { return written_; }
  uint64_t arrived() const override { return is_late ? 0 : written_; }
  void flush() override {}
  void read(void* to, const void* from, uint64_t bytes) const override { host_.read(to, from, bytes); }
  std::unique_ptr<PeerMemory> attach(const std::shared_ptr<cpu::PeerArena>& peer) override {
    return host_.attach(peer);
  }
  bool check_buffer(const void*, const char*) const override { return true; }
  void check_pulled(const void*) const override {}
  std::unique_ptr<Executor> start(const DaemonStart&) override { return nullptr; }

  bool is_late = false;  // nothing that was written has arrived
  std::atomic<uint64_t> shared_bytes{0};
  uint64_t exported_bytes = 0;

 private:
  cpu::CpuPlace host_;
  uint64_t written_ = 0;
};

}  // namespace starling
