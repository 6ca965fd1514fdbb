// A rank's shared segment on the CPU machine: POSIX shared memory, sparse, mapped by every peer of the host.
//
// The owner holds a record lock on the file for as long as it lives: the kernel lets go of it when the
// process dies, however it dies. So peers see a death without signals or heartbeats, and whoever starts later
// can tell the segments of dead jobs and remove them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "machine/cpu/process_nonce.h"
#include "machine/cpu/removed_at_death.h"
#include "wire/arena.h"

namespace starling::cpu {

// The owner's mapping; ranks that are threads of its process share it, so it lives as long as any of them.
struct Mapping {
  ArenaHeader* header;
  uint64_t bytes;
  uint64_t nonce = process_nonce();  // in this process's own memory (machine/cpu/process_memory.h)
  Mapping(ArenaHeader* base, uint64_t size) : header(base), bytes(size) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
};

class Arena {
 public:
  struct Sizes {
    uint64_t bytes;
  };

  // Creates the segment of this rank. Throws Error(system) with the remedy when /dev/shm refuses.
  explicit Arena(const Sizes& sizes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const std::string& name() const { return name_; }
  ArenaHeader* header() const { return header_; }
  std::byte* at(uint64_t offset) const { return reinterpret_cast<std::byte*>(header_) + offset; }
  uint64_t offset_of(const void* p) const { return uint64_t(static_cast<const std::byte*>(p) - at(0)); }

  // Zeroed, page aligned. Throws Error(exhausted).
  uint64_t allocate(uint64_t bytes);
  // Gives the pages back to the system.
  void release(uint64_t offset, uint64_t bytes);

  void publish(uint64_t key_low, uint64_t key_high, uint64_t offset);
  // No effect if another region has been published under the key since.
  void unpublish(uint64_t key_low, uint64_t key_high, uint64_t offset);

  uint64_t used_bytes() const;
  // Of the file system, for all segments together.
  uint64_t free_bytes() const;

 private:
  void create_file();
  DirectoryEntry* find(uint64_t key_low, uint64_t key_high);

  std::string name_;
  int fd_ = -1;
  std::optional<RemovedAtDeath> removed_at_death_;
  std::shared_ptr<Mapping> mapping_;
  uint64_t bytes_ = 0;
  ArenaHeader* header_ = nullptr;
  mutable std::mutex mutex_;
  uint64_t next_ = 0;
  std::multimap<uint64_t, uint64_t> free_;  // bytes -> offset
};

// A peer's segment, seen from this process.
class PeerArena {
 public:
  // Throws Error(peer_failed) if there is none of that name.
  explicit PeerArena(const std::string& name);
  ~PeerArena();
  PeerArena(const PeerArena&) = delete;
  PeerArena& operator=(const PeerArena&) = delete;

  const std::string& name() const { return name_; }
  ArenaHeader* header() const { return header_; }
  std::byte* at(uint64_t offset) const { return reinterpret_cast<std::byte*>(header_) + offset; }

  // Null: the peer has no lane of this key (yet).
  LaneShared* find_lane(uint64_t key_low, uint64_t key_high) const;

  // False once the owner died or left.
  bool alive() const;
  bool left_in_order() const;
  // A shadow's (link/carry/shadow.h): no path to its rank lives.
  bool lost() const;
  // Removes the name of a dead owner's segment; mappings stay valid.
  void remove_name() const;

 private:
  std::string name_;
  int fd_ = -1;
  std::optional<RemovedAtDeath> removed_at_death_;  // if its owner has died
  bool same_process_ = false;  // uses the owner's mapping: one byte has one address
  std::shared_ptr<Mapping> mapping_;
  ArenaHeader* header_ = nullptr;
};

bool is_arena_name(const std::string& name);
// Made by this process, not by the one that it was forked from.
bool is_of_this_process(const std::string& name);
// The owner's mapping, if a rank of this process owns the segment; else null.
std::shared_ptr<Mapping> own_mapping(const std::string& name);

// Whether the owner of the segment of this name lives: false also if there is none.
bool arena_alive(const std::string& name);

// Removes the segments of processes that are gone. Returns how many.
uint32_t remove_stale_arenas();

}  // namespace starling::cpu
