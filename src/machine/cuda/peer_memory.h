// A peer's GPU memory, opened for this rank's GPU: by its address in the same process, by IPC handle else.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "machine/cuda/export.h"
#include "machine/cuda/memory.h"
#include "machine/place.h"

namespace starling::cuda {

class ImportedMemory final : public PeerMemory {
 public:
  // Throws Error(unsupported) if the GPUs cannot reach each other.
  ImportedMemory(int device, std::shared_ptr<cpu::PeerArena> peer);
  // Unmaps; that waits until our daemon has left.
  ~ImportedMemory() override;

  std::byte* at(uint64_t offset) override;

 private:
  struct Mapped {
    std::byte* base = nullptr;
    std::shared_ptr<Chunk> chunk;  // same process
  };
  void map(uint64_t index);
  void map_all();
  void leave();

  const int device_;
  std::shared_ptr<cpu::PeerArena> peer_;
  DeviceExport* export_;
  bool same_process_;
  std::mutex mutex_;
  std::vector<Mapped> mapped_;
};

}  // namespace starling::cuda
