// The CPU as a place: the daemon works on the host's own memory, and exported memory lies in the rank's
// segment.
#pragma once
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "machine/cpu/machine.h"
#include "machine/place.h"

namespace starling::cpu {

class CpuPlace : public Place {
 public:
  // network_slots: for tests.
  CpuPlace(Arena& arena, const WaitPolicy& waiting, bool network_slots = false)
      : arena_(arena), waiting_(waiting), network_slots_(network_slots) {}

  const PlaceTraits& traits() const override;
  std::string name() const override { return "cpu"; }

  std::byte* allocate(uint64_t bytes) override;
  void release(std::byte* memory, uint64_t bytes) override;
  std::byte* allocate_shared(uint64_t bytes) override { return allocate(bytes); }
  void release_shared(std::byte* memory, uint64_t bytes) override { release(memory, bytes); }
  bool has_network_slots() override { return network_slots_; }
  // Mapped twice: where devices know it nothing can be read or written once it is sealed, as if it were a
  // GPU's.
  NetworkSlots allocate_for_network(uint64_t bytes) override;
  void seal(NetworkSlots& slots, uint64_t bytes) override;
  void release_for_network(const NetworkSlots& slots, uint64_t bytes) override;
  uint64_t allocate_exported(uint64_t bytes) override { return arena_.allocate(bytes); }
  void release_exported(uint64_t offset, uint64_t bytes) override { arena_.release(offset, bytes); }
  std::byte* exported(uint64_t offset) const override { return arena_.at(offset); }
  Pool make_pool(uint64_t bytes) override;

  void write(void* to, const void* from, uint64_t bytes) override;
  void flush() override {}
  void read(void* to, const void* from, uint64_t bytes) const override;

  std::unique_ptr<PeerMemory> attach(const std::shared_ptr<PeerArena>& peer) override;
  bool check_buffer(const void*, const char*) const override { return true; }
  void check_pulled(const void*) const override {}
  std::unique_ptr<Executor> start(const DaemonStart& start) override;
  std::unique_ptr<CopyEngine> make_copy_engine() override;

 private:
  // calloc: pages exist once touched.
  struct Free {
    void operator()(std::byte* p) const { ::free(p); }
  };

  Arena& arena_;
  WaitPolicy waiting_;
  const bool network_slots_;
  std::mutex mutex_;
  std::unordered_map<std::byte*, std::unique_ptr<std::byte, Free>> memory_;
};

}  // namespace starling::cpu
