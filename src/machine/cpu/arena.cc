#include "machine/cpu/arena.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <random>

#include "base/error.h"
#include "base/log.h"

namespace starling::cpu {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kDirectoryCapacity = 1 << 17;  // twice the lanes that a daemon can hold; sparse
constexpr const char* kPrefix = "starling.";
constexpr const char* kSpaceRemedy =
    "make /dev/shm larger (docker: --shm-size), or set STARLING_POOL_BYTES and STARLING_ARENA_BYTES lower";

constexpr const char* kFolderRemedy =
    "mount a tmpfs at /dev/shm that this user may write to (mount -t tmpfs tmpfs /dev/shm; docker: "
    "--ipc=host, or "
    "--tmpfs /dev/shm)";
// A touched page that does not fit is a SIGBUS, not an error; so we look before. What is not allocated at
// once can be gone when it is touched: then at least it began with room to spare.
constexpr uint64_t kLeastFree = uint64_t(1) << 20;

uint64_t page_up(uint64_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

bool lock_whole_file(int fd) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_SETLK, &lock) == 0;
}

bool locked_by_other_process(int fd) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::string nonce_text() {
  char text[32];
  std::snprintf(text, sizeof text, "%016" PRIx64, process_nonce());
  return text;
}

std::atomic_ref<uint64_t> atomic(uint64_t& word) { return std::atomic_ref<uint64_t>(word); }

uint64_t slot_in_directory(uint64_t key_low, uint64_t probe, uint64_t capacity) {
  return (key_low + probe) & (capacity - 1);
}

// ftruncate() beyond it is a signal (SIGXFSZ), not an error.
void check_file_limit(uint64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur)
    return;
  throw Error(
      Code::system,
      "the shared segment needs files of " + std::to_string(bytes) +
          " bytes (sparse), and this process may have " + std::to_string(limit.rlim_cur),
      "lift the limit on the size of files (ulimit -f unlimited), or set STARLING_ARENA_BYTES to at most " +
          std::to_string(limit.rlim_cur));
}

// The arenas of this process by name: what /dev/shm is between processes, this is inside one. Ranks that are
// threads share the owner's mapping; they must not open the file, since closing it would drop the owner's
// lock.
struct OwnArenas {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Mapping>> mappings;
};
OwnArenas& own_arenas() {
  static OwnArenas arenas;
  return arenas;
}

}  // namespace

uint64_t process_nonce() {
  // A constant of the process; a forked child gets its own through the pid.
  static const uint64_t seed = [] {
    std::random_device random;
    return (uint64_t(random()) << 32) | random();
  }();
  return seed ^ (uint64_t(getpid()) << 20);
}

bool is_arena_name(const std::string& name) { return name.rfind(kPrefix, 0) == 0; }

bool is_of_this_process(const std::string& name) { return name.rfind(kPrefix + nonce_text(), 0) == 0; }

std::shared_ptr<Mapping> own_mapping(const std::string& name) {
  std::lock_guard lock(own_arenas().mutex);
  const auto own = own_arenas().mappings.find(name);
  // The list of a forked process has its parent's, too.
  return is_of_this_process(name) && own != own_arenas().mappings.end() ? own->second.lock() : nullptr;
}

Arena::Arena(const Sizes& sizes) : bytes_(page_up(sizes.bytes)) {
  check_file_limit(bytes_);
  create_file();
  if (ftruncate(fd_, off_t(bytes_)) != 0) {
    const Error error = system_error("cannot set up the shared segment /dev/shm/" + name_, kSpaceRemedy);
    shm_unlink(("/" + name_).c_str());
    close(fd_);
    throw error;
  }
  if (free_bytes() < kLeastFree) {
    const Error error(Code::exhausted, "/dev/shm has " + std::to_string(free_bytes() >> 10) + " KiB left",
                      kSpaceRemedy);
    shm_unlink(("/" + name_).c_str());
    close(fd_);
    throw error;
  }
  void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (base == MAP_FAILED) {
    const Error error = system_error("cannot map " + std::to_string(bytes_) + " bytes of address space",
                                     "allow the process more address space (ulimit -v), or set "
                                     "STARLING_ARENA_BYTES lower");
    shm_unlink(("/" + name_).c_str());
    close(fd_);
    throw error;
  }
  header_ = static_cast<ArenaHeader*>(base);
  header_->bytes = bytes_;
  header_->process_nonce = process_nonce();
  header_->pid = uint32_t(getpid());
  header_->directory_offset = page_up(sizeof(ArenaHeader));
  header_->directory_capacity = kDirectoryCapacity;
  next_ = page_up(header_->directory_offset + kDirectoryCapacity * sizeof(DirectoryEntry));
  mapping_ = std::make_shared<Mapping>(header_, bytes_);
  header_->nonce_address = uint64_t(&mapping_->nonce);
  // Release: the header before the magic that says it is there; pairs with the acquire in PeerArena.
  atomic(header_->magic).store(kArenaMagic, std::memory_order_release);
  std::lock_guard lock(own_arenas().mutex);
  own_arenas().mappings[name_] = mapping_;
}

// Between its name and its lock a file looks like one of a dead process. So whoever removes files locks them
// first, and we look, once the lock is ours, whether the file still has its name.
void Arena::create_file() {
  static std::atomic<uint32_t> count{0};  // numbers the segments of this process; names must differ
  for (struct stat status{};;) {
    name_ = kPrefix + nonce_text() + "." + std::to_string(count.fetch_add(1));
    fd_ = shm_open(("/" + name_).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0) {
      const bool full = errno == ENOSPC || errno == ENOMEM;
      throw system_error("cannot create the shared segment /dev/shm/" + name_,
                         full ? kSpaceRemedy : kFolderRemedy);
    }
    if (lock_whole_file(fd_) && fstat(fd_, &status) == 0 && status.st_nlink > 0) {
      removed_at_death_.emplace(fd_);
      return;
    }
    close(fd_);  // somebody is about to remove it, or has
  }
}

Arena::~Arena() {
  {
    std::lock_guard lock(own_arenas().mutex);
    own_arenas().mappings.erase(name_);
  }
  // Release: before the lock goes; pairs with the acquire in left_in_order().
  std::atomic_ref<uint32_t>(header_->closed).store(1, std::memory_order_release);
  shm_unlink(("/" + name_).c_str());
  removed_at_death_.reset();
  close(fd_);
}

uint64_t Arena::free_bytes() const {
  struct statvfs status{};
  return fstatvfs(fd_, &status) == 0 ? uint64_t(status.f_bavail) * status.f_frsize : 0;
}

Mapping::~Mapping() { munmap(header, bytes); }

uint64_t Arena::allocate(uint64_t bytes) {
  bytes = page_up(bytes);
  std::lock_guard lock(mutex_);
  // Exact fits only: lanes come in few sizes, and regions are sparse.
  if (auto found = free_.find(bytes); found != free_.end()) {
    const uint64_t offset = found->second;
    free_.erase(found);
    return offset;
  }
  if (next_ + bytes > bytes_)
    throw Error(Code::exhausted, "the shared segment of this rank has no address space left",
                "set STARLING_ARENA_BYTES higher (it is sparse: only what is used takes memory)");
  if (const uint64_t left = free_bytes(); left < bytes)
    throw Error(Code::exhausted,
                "/dev/shm has " + std::to_string(left >> 10) + " KiB left, where " +
                    std::to_string(bytes >> 10) + " KiB are needed",
                kSpaceRemedy);
  const uint64_t offset = next_;
  next_ += bytes;
  return offset;
}

void Arena::release(uint64_t offset, uint64_t bytes) {
  bytes = page_up(bytes);
  // Punching a hole frees the pages and leaves zeros for the next user.
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(offset), off_t(bytes));
  std::lock_guard lock(mutex_);
  free_.emplace(bytes, offset);
}

DirectoryEntry* Arena::find(uint64_t key_low, uint64_t key_high) {
  auto* entries = reinterpret_cast<DirectoryEntry*>(at(header_->directory_offset));
  for (uint64_t probe = 0; probe < kDirectoryCapacity; ++probe) {
    DirectoryEntry& entry = entries[slot_in_directory(key_low, probe, kDirectoryCapacity)];
    if (entry.offset == 0) return &entry;
    if (entry.key_low == key_low && entry.key_high == key_high) return &entry;
  }
  throw Error(Code::exhausted, "the lane directory is full", "destroy communicators that are not used");
}

void Arena::publish(uint64_t key_low, uint64_t key_high, uint64_t offset) {
  std::lock_guard lock(mutex_);
  DirectoryEntry* entry = find(key_low, key_high);
  atomic(entry->key_low).store(key_low, std::memory_order_relaxed);
  atomic(entry->key_high).store(key_high, std::memory_order_relaxed);
  // Release: key and lane region before the offset; pairs with the acquire in find_lane().
  atomic(entry->offset).store(offset, std::memory_order_release);
}

void Arena::unpublish(uint64_t key_low, uint64_t key_high, uint64_t offset) {
  std::lock_guard lock(mutex_);
  DirectoryEntry* entry = find(key_low, key_high);
  // Release: pairs with the acquire in find_lane().
  if (entry->offset == offset) atomic(entry->offset).store(kRemovedLane, std::memory_order_release);
}

uint64_t Arena::used_bytes() const {
  struct stat status{};
  return fstat(fd_, &status) == 0 ? uint64_t(status.st_blocks) * 512 : 0;
}

PeerArena::PeerArena(const std::string& name) : name_(name) {
  if (mapping_ = own_mapping(name); mapping_ != nullptr) {
    header_ = mapping_->header;
    same_process_ = true;
    return;
  }
  fd_ = shm_open(("/" + name).c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (fd_ < 0)
    throw Error(Code::peer_failed, "the shared segment " + name + " of a peer is not there",
                "ranks must run on one host, share /dev/shm, and stay alive while others join");
  struct stat status{};
  fstat(fd_, &status);
  const uint64_t bytes = uint64_t(status.st_size);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (base == MAP_FAILED) {
    close(fd_);
    throw system_error("cannot map the shared segment of a peer",
                       "allow the process more address space (ulimit -v), or set STARLING_ARENA_BYTES lower");
  }
  mapping_ = std::make_shared<Mapping>(static_cast<ArenaHeader*>(base), bytes);
  header_ = mapping_->header;
  // Acquire: pairs with the release of `magic` in Arena; after it the header is readable.
  if (atomic(header_->magic).load(std::memory_order_acquire) != kArenaMagic) {
    close(fd_);
    throw Error(Code::peer_failed, "the shared segment " + name + " is not one of this version",
                "use the same version of Starling on all ranks");
  }
  removed_at_death_.emplace(fd_);
}

// Nobody may have waited for a peer that died: then its segment's name is still there. With the lock in our
// hands it has no owner.
PeerArena::~PeerArena() {
  if (same_process_) return;
  if (!left_in_order() && lock_whole_file(fd_)) remove_name();
  removed_at_death_.reset();
  close(fd_);
}

LaneShared* PeerArena::find_lane(uint64_t key_low, uint64_t key_high) const {
  auto* entries = reinterpret_cast<DirectoryEntry*>(at(header_->directory_offset));
  const uint64_t capacity = header_->directory_capacity;
  for (uint64_t probe = 0; probe < capacity; ++probe) {
    DirectoryEntry& entry = entries[slot_in_directory(key_low, probe, capacity)];
    // Acquire: pairs with the releases in publish() and unpublish(); after it key and region are readable.
    const uint64_t offset = atomic(entry.offset).load(std::memory_order_acquire);
    if (offset == 0) return nullptr;
    if (atomic(entry.key_low).load(std::memory_order_relaxed) == key_low &&
        atomic(entry.key_high).load(std::memory_order_relaxed) == key_high)
      return offset == kRemovedLane ? nullptr : reinterpret_cast<LaneShared*>(at(offset));
  }
  return nullptr;
}

bool PeerArena::alive() const {
  if (left_in_order() || lost()) return false;
  return same_process_ || locked_by_other_process(fd_);
}

bool PeerArena::left_in_order() const {
  // Acquire: pairs with the release in ~Arena().
  return std::atomic_ref<uint32_t>(header_->closed).load(std::memory_order_acquire) == 1;
}

bool PeerArena::lost() const {
  // Acquire: pairs with the release in Shadow::close().
  return std::atomic_ref<uint32_t>(header_->closed).load(std::memory_order_acquire) == 2;
}

void PeerArena::remove_name() const { shm_unlink(("/" + name_).c_str()); }

bool arena_alive(const std::string& name) {
  {
    std::lock_guard lock(own_arenas().mutex);
    if (is_of_this_process(name) && own_arenas().mappings.count(name) != 0) return true;
  }
  // Opening and closing a segment of our own would drop its lock; what is not in the list has ended.
  if (is_of_this_process(name)) return false;
  const int fd = shm_open(("/" + name).c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool locked = locked_by_other_process(fd);
  close(fd);
  return locked;
}

uint32_t remove_stale_arenas() {
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) return 0;
  const std::string own = kPrefix + nonce_text();
  uint32_t removed = 0;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    // As in arena_alive().
    if (name.rfind(kPrefix, 0) != 0 || name.rfind(own, 0) == 0) continue;
    const int fd = shm_open(("/" + name).c_str(), O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) continue;  // another user's
    // With the lock in our hands nobody owns it, and who is just making it will see that the name is gone.
    if (lock_whole_file(fd)) {
      shm_unlink(("/" + name).c_str());
      ++removed;
    }
    close(fd);
  }
  closedir(folder);
  if (removed > 0) log(LogLevel::info, "removed ", removed, " shared segments of dead jobs");
  return removed;
}

}  // namespace starling::cpu
