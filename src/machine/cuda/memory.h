// A rank's GPU memory and pinned host memory: large pieces from the driver, small ones from those.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/quick_mutex.h"
#include "machine/cpu/arena.h"
#include "machine/cuda/export.h"

namespace starling::cuda {

// One allocation of the driver. Shared by the owner and by ranks of the same process that reach into it.
struct Chunk {
  Chunk(int device, uint64_t size);
  ~Chunk();
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  const int device;
  const uint64_t bytes;
  std::byte* base = nullptr;
  bool keep = false;  // a peer process may have it mapped still: it stays until this process ends
};

// Null if no rank of this process has a chunk at that address.
std::shared_ptr<Chunk> find_chunk(uint64_t address);

// Pieces that are given back are handed out again for the same size.
class FreeLists {
 public:
  std::byte* take(uint64_t bytes);
  void give(std::byte* piece, uint64_t bytes) { free_.emplace(bytes, piece); }

 private:
  std::multimap<uint64_t, std::byte*> free_;
};

class DeviceMemory {
 public:
  DeviceMemory(int device, cpu::Arena& arena);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // 256-byte aligned; content as the last user left it.
  std::byte* allocate(uint64_t bytes);
  // So that allocate() calls no driver, for as much as a lane takes. Under no lock that others need.
  void make_room();
  // Of the driver, or where that has no more, of what was had from it before. Lives as long as this; null:
  // there is not so much. Peers do not reach it by an offset.
  std::byte* slab(uint64_t bytes);
  void release(std::byte* memory, uint64_t bytes);
  DeviceExport& exports() const { return *export_; }
  uint64_t offset_of(const std::byte* memory) const;
  std::byte* at(uint64_t offset) const;

 private:
  std::shared_ptr<Chunk> new_chunk(uint64_t bytes) const;
  void keep_spare(std::shared_ptr<Chunk> fresh);
  void adopt(std::shared_ptr<Chunk> chunk);
  void note_room(uint64_t taken);

  const int device_;
  DeviceExport* export_;  // in the segment
  std::atomic<bool> low_{true};
  mutable QuickMutex mutex_;  // guards all below
  std::shared_ptr<Chunk> spare_;  // the next one
  uint64_t largest_ = 0;  // piece so far
  std::vector<std::shared_ptr<Chunk>> chunks_;
  std::vector<std::unique_ptr<Chunk>> slabs_;
  uint64_t used_ = 0;  // of the last chunk
  FreeLists free_;
};

class PinnedMemory {
 public:
  ~PinnedMemory();
  explicit PinnedMemory(int device) : device_(device) {}
  // Zeroed, 64-byte aligned, readable by every GPU of the process.
  std::byte* allocate(uint64_t bytes);
  void release(std::byte* memory, uint64_t bytes);
  // As DeviceMemory's.
  void make_room();

 private:
  std::byte* new_piece(uint64_t bytes) const;
  void keep_spare(std::byte* fresh, uint64_t bytes);
  std::byte* take(uint64_t bytes);

  const int device_;
  std::atomic<bool> low_{true};
  QuickMutex mutex_;  // guards all below
  std::byte* spare_ = nullptr;  // the next one
  uint64_t spare_bytes_ = 0;
  std::vector<std::byte*> pieces_;
  uint64_t used_ = 0;
  uint64_t last_bytes_ = 0;
  FreeLists free_;
};

}  // namespace starling::cuda
