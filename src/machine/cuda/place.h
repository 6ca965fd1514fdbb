// One GPU as a place: the daemon is a kernel, its memory the GPU's, and the host writes to it by
// copies that nothing of the program holds up.
#pragma once
#include <array>
#include <atomic>
#include <optional>
#include <string>

#include "machine/cuda/host_copies.h"
#include "machine/cuda/memory.h"
#include "machine/cuda/registered_memory.h"
#include "machine/place.h"
#include "machine/registered/bounces.h"

namespace starling::cuda {

class CudaPlace final : public Place {
 public:
  CudaPlace(int device, cpu::Arena& arena);
  CudaPlace(const CudaPlace&) = delete;
  CudaPlace& operator=(const CudaPlace&) = delete;

  const PlaceTraits& traits() const override;
  std::string name() const override { return "cuda:" + std::to_string(device_); }
  std::string bus_address() const override;

  std::byte* allocate(uint64_t bytes) override;
  std::byte* allocate_unwritten(uint64_t bytes) override { return memory_.allocate(bytes); }
  void release(std::byte* memory, uint64_t bytes) override { memory_.release(memory, bytes); }
  std::byte* allocate_shared(uint64_t bytes) override;
  void make_room() override;
  void release_shared(std::byte* memory, uint64_t bytes) override { pinned_.release(memory, bytes); }
  bool has_network_slots() override;
  NetworkSlots allocate_for_network(uint64_t bytes) override;
  void seal(NetworkSlots& slots, uint64_t bytes) override;
  void release_for_network(const NetworkSlots& slots, uint64_t bytes) override;
  uint64_t allocate_exported(uint64_t bytes) override { return memory_.offset_of(allocate(bytes)); }
  void release_exported(uint64_t offset, uint64_t bytes) override {
    memory_.release(exported(offset), bytes);
  }
  std::byte* exported(uint64_t offset) const override { return memory_.at(offset); }
  Pool make_pool(uint64_t bytes) override;

  void write(void* to, const void* from, uint64_t bytes) override { copies_.write(to, from, bytes); }
  uint64_t written() const override { return copies_.asked(); }
  uint64_t arrived() const override { return copies_.arrived(); }
  void await(uint64_t written) override { copies_.await(written); }
  void flush() override { copies_.flush(); }
  std::string failure() const override { return copies_.failure(); }
  void read(void* to, const void* from, uint64_t bytes) const override { copies_.read(to, from, bytes); }
  std::shared_ptr<const PendingRead> begin_read(const void* from, uint64_t bytes) const override {
    return copies_.begin_read(from, bytes);
  }

  std::unique_ptr<PeerMemory> attach(const std::shared_ptr<cpu::PeerArena>& peer) override;
  bool check_buffer(const void* memory, const char* name) const override;
  void check_pulled(const void* memory) const override;
  uint16_t registration_of(const void* memory, uint64_t bytes, bool must) override {
    return registrations_.number_of(memory, must ? Need::kMust : Need::kMay, bytes);
  }
  std::byte* take_opened(uint64_t bytes, uint16_t& registration) override;
  void give_opened(std::byte* memory, uint64_t bytes) override { bounces_.give(memory, bytes); }
  std::byte* take_bounce(uint64_t bytes, uint16_t& registration) override;
  void try_buffer(const void* memory) override {
    if (!allocations_.can_open(memory)) bounced_.store(true, std::memory_order_relaxed);
  }
  bool has_bounced() const override { return bounced_.load(std::memory_order_relaxed); }
  std::unique_ptr<Executor> start(const DaemonStart& start) override;
  std::unique_ptr<CopyEngine> make_copy_engine() override;

 private:
  const int device_;
  cpu::Arena& arena_;
  DeviceMemory memory_;
  Bounces bounces_{[this](uint64_t bytes) { return memory_.slab(bytes); }};
  PinnedMemory pinned_;
  std::optional<bool> has_network_slots_;
  mutable HostCopies copies_;
  DriverAllocations allocations_;
  OwnRegistrations registrations_;
  mutable std::atomic<bool> warned_{false};
  std::atomic<bool> bounced_{false};
  // Allocations of this GPU, each at its number's place: programs use the same ones again and again.
  mutable std::array<std::atomic<uint64_t>, 256> checked_{};
};

}  // namespace starling::cuda
