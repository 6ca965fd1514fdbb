// A rank's segment as a watcher sees it: read only, and nothing is disturbed. It removes no names, takes no
// locks, and leaves pages alone that the owner has not touched.
#pragma once
#include <string>
#include <vector>

#include "machine/cpu/arena.h"

namespace starling::cpu {

class ArenaView {
 public:
  // Throws Error(peer_failed) if there is no segment of that name, or not one of this version.
  explicit ArenaView(const std::string& name);
  ~ArenaView();
  ArenaView(const ArenaView&) = delete;
  ArenaView& operator=(const ArenaView&) = delete;

  const std::string& name() const { return name_; }
  const ArenaHeader& header() const { return *header_; }
  uint64_t bytes() const { return bytes_; }
  // Null if [offset, offset + size) is not inside: what a dying process wrote need not make sense.
  template <class T>
  const T* at(uint64_t offset, uint64_t count = 1) const {
    const uint64_t size = sizeof(T) * count;
    if (offset % alignof(T) != 0 || offset > bytes_ || size > bytes_ - offset) return nullptr;
    return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(header_) + offset);
  }

  // Whether the owner lives, has left in order, or died.
  bool alive() const;
  bool left_in_order() const;

  // Offsets of the lane regions in the directory, in the order of their places.
  std::vector<uint64_t> lanes() const;

 private:
  std::string name_;
  int fd_ = -1;  // -1: of this process, where closing a file would drop the owner's lock
  std::shared_ptr<Mapping> mapping_;  // of this process
  const ArenaHeader* header_ = nullptr;
  uint64_t bytes_ = 0;
};

// Names of all segments in /dev/shm that this user may read, those of this process too.
std::vector<std::string> arena_names();

}  // namespace starling::cpu
