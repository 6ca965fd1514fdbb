// A peer's GPU memory, opened for this rank's GPU: by its address in the same process, by IPC handle else.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/called_thread.h"
#include "machine/cuda/export.h"
#include "machine/cuda/memory.h"
#include "machine/cuda/registered_memory.h"
#include "machine/place.h"

namespace starling::cuda {

// A peer's registered buffers, opened by a thread of their own: an opening is a call of the driver, which may
// stand behind one of the program's.
class OpenedBuffers {
 public:
  // Throws Error.
  OpenedBuffers(int device, RegistrationTable& theirs, Place& place);
  // Closes them; that waits until our daemon has left.
  ~OpenedBuffers();
  OpenedBuffers(const OpenedBuffers&) = delete;
  OpenedBuffers& operator=(const OpenedBuffers&) = delete;

  OpenedTable* table() const { return table_; }
  void look() {
    if (registrations_->has_news()) thread_->call(0);
  }
  std::string refusal() const { return registrations_->refusal(); }
  // As PeerMemory::reach().
  std::optional<CopyTarget> reach(uint64_t address, uint16_t number);

 private:
  Place& place_;
  PeerHandles handles_;
  OpenedTable* table_;  // the GPU's memory
  OpenedRegistration* told_;  // the host's
  std::unique_ptr<PeerRegistrations> registrations_;
  std::unique_ptr<CalledThread> thread_;
};

class ImportedMemory final : public PeerMemory {
 public:
  // Throws Error(unsupported) if the GPUs cannot reach each other. `place` outlives it.
  ImportedMemory(int device, std::shared_ptr<cpu::PeerArena> peer, Place& place);
  // Unmaps; that waits until our daemon has left.
  ~ImportedMemory() override;

  std::byte* at(uint64_t offset) override;
  bool reaches(uint64_t offset) override;
  bool can_open() const override { return true; }
  // Its process can ask this one for descriptors, and this one it.
  bool exchanges_descriptors() const;
  bool can_copy() const override { return same_process_ || !same_device_; }
  void open_buffers() override;
  OpenedTable* opened() const override { return buffers() == nullptr ? nullptr : buffers()->table(); }
  void look_for_buffers() override {
    if (buffers() != nullptr) buffers()->look();
  }
  std::string refusal() const override { return buffers() == nullptr ? "" : buffers()->refusal(); }
  std::optional<CopyTarget> reach(uint64_t address, uint16_t number) override;

 private:
  struct Mapped {
    std::byte* base = nullptr;
    std::shared_ptr<Chunk> chunk;  // same process
  };
  // Acquire: pairs with the release in open_buffers().
  OpenedBuffers* buffers() const { return buffers_.load(std::memory_order_acquire); }
  Mapped map(uint64_t index);
  void map_all();
  bool is_mapped(uint64_t offset);
  void leave();

  const int device_;
  std::shared_ptr<cpu::PeerArena> peer_;
  DeviceExport* export_;
  Place& place_;
  bool same_process_;
  bool same_device_;
  std::atomic<OpenedBuffers*> buffers_{nullptr};  // null: none of the owner's are read by their registrations
  std::mutex opening_;  // by one thread
  std::mutex mapping_;  // likewise
  std::mutex mutex_;  // guards the next three
  std::vector<Mapped> mapped_;
  std::unique_ptr<CalledThread> mapper_;  // of what its owner's memory has grown by since it was attached
  bool failed_ = false;  // then at() says how
};

}  // namespace starling::cuda
