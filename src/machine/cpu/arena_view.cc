#include "machine/cpu/arena_view.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"

namespace starling::cpu {
namespace {

// Pairs with the release of whoever publishes what the word leads to (arena.cc, monitor/publish.cc).
template <class T>
T acquire(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}

Error not_there(const std::string& name) {
  return Error(Code::peer_failed, "there is no shared segment " + name + " of this version to look at",
               "its rank has ended, is another user's, or runs another version of Starling");
}

}  // namespace

ArenaView::ArenaView(const std::string& name) : name_(name), mapping_(own_mapping(name)) {
  if (mapping_ != nullptr) {
    header_ = mapping_->header;
    bytes_ = mapping_->bytes;
    return;
  }
  if (is_of_this_process(name)) throw not_there(name);  // it has just ended
  fd_ = shm_open(("/" + name).c_str(), O_RDONLY | O_CLOEXEC, 0);
  struct stat status{};
  if (fd_ < 0 || fstat(fd_, &status) != 0 || uint64_t(status.st_size) < sizeof(ArenaHeader)) {
    if (fd_ >= 0) close(fd_);
    throw not_there(name);
  }
  bytes_ = uint64_t(status.st_size);
  void* base = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (base == MAP_FAILED) {
    const Error error = system_error("cannot map the shared segment " + name, "see 'ulimit -v'");
    close(fd_);
    throw error;
  }
  header_ = static_cast<const ArenaHeader*>(base);
  // Acquire: pairs with the release of `magic` in Arena; after it the header is readable.
  if (acquire(header_->magic) != kArenaMagic) {
    munmap(base, bytes_);
    close(fd_);
    throw not_there(name);
  }
}

ArenaView::~ArenaView() {
  if (fd_ < 0) return;
  munmap(const_cast<ArenaHeader*>(header_), bytes_);
  close(fd_);
}

bool ArenaView::left_in_order() const { return acquire(header_->closed) != 0; }

bool ArenaView::alive() const {
  if (left_in_order()) return false;
  if (fd_ < 0) return true;
  struct flock lock{};
  lock.l_type = F_RDLCK;  // the owner's is a write lock: it would be in the way
  lock.l_whence = SEEK_SET;
  return fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// Looking at a hole through the mapping would fill it with a page: so only where there is data.
std::vector<uint64_t> ArenaView::lanes() const {
  std::vector<uint64_t> offsets;
  const uint64_t capacity = header_->directory_capacity;
  const uint64_t begin = header_->directory_offset;
  const auto* entries = at<DirectoryEntry>(begin, capacity);
  if (entries == nullptr) return offsets;
  const auto look = [&](uint64_t from, uint64_t to) {
    for (uint64_t e = (from - begin) / sizeof(DirectoryEntry);
         e < std::min(capacity, (to - begin) / sizeof(DirectoryEntry)); ++e)
      // Acquire: pairs with the releases in publish() and unpublish(); after it the region is readable.
      if (const uint64_t offset = acquire(entries[e].offset); offset > kRemovedLane)
        offsets.push_back(offset);
  };
  const uint64_t end = begin + capacity * sizeof(DirectoryEntry);
  if (fd_ < 0) {
    look(begin, end);
    return offsets;
  }
  for (uint64_t at = begin; at < end;) {
    const off_t data = lseek(fd_, off_t(at), SEEK_DATA);
    if (data < 0 || uint64_t(data) >= end) break;
    const off_t hole = lseek(fd_, data, SEEK_HOLE);
    const uint64_t stop = hole < 0 ? end : std::min<uint64_t>(uint64_t(hole), end);
    look(std::max<uint64_t>(uint64_t(data), begin), stop);
    at = stop;
  }
  return offsets;
}

std::vector<std::string> arena_names() {
  std::vector<std::string> names;
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder))
    if (is_arena_name(entry->d_name)) names.push_back(entry->d_name);
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace starling::cpu
