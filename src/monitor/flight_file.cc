#include "monitor/flight_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "machine/cpu/arena.h"
#include "machine/cpu/futex.h"

namespace starling::monitor {
namespace {

constexpr const char* kFolder = "/dev/shm/";
constexpr std::string_view kPrefix = "starling-flight.";
constexpr std::string_view kArenaPrefix = "starling.";
constexpr size_t kKept = 256;
constexpr uint64_t kKeptShare = 16;
constexpr time_t kKeptSeconds = 24 * 3600;
constexpr uint64_t kPage = 4096;

struct Old {
  time_t written;
  uint64_t bytes;
  std::string path;
};

bool is_zero(const std::byte* page, uint64_t bytes) {
  return std::all_of(page, page + bytes, [](std::byte b) { return b == std::byte{0}; });
}

// Pages that were never touched stay holes.
bool write_sparse(int fd, const std::byte* from, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += kPage) {
    const uint64_t part = std::min(kPage, bytes - at);
    if (!is_zero(from + at, part) && pwrite(fd, from + at, part, off_t(at)) != ssize_t(part)) return false;
  }
  return ftruncate(fd, off_t(bytes)) == 0;
}

// The first zero ends it; what comes from shared memory need not have one.
std::string text_of(const char* text, size_t bytes) { return {text, strnlen(text, bytes)}; }

// `replaces`: a copy that is there already; else that one stays.
void write_copy(const FlightRecord& copy, const std::string& folder, bool replaces) {
  const std::string arena = text_of(copy.header.arena, sizeof copy.header.arena);
  const std::string host = text_of(copy.header.host_name, sizeof copy.header.host_name);
  const std::string rest = arena.rfind(kArenaPrefix, 0) == 0 ? arena.substr(kArenaPrefix.size()) : arena;
  const std::string path = folder + "/" + host + "." + rest + ".flight";
  if (!replaces && access(path.c_str(), F_OK) == 0) return;
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw system_error("cannot make the folder " + folder,
                       "set STARLING_FLIGHT_DIR to one that can be written");
  const std::string draft = path + "." + std::to_string(getpid()) + ".draft";
  const int fd = open(draft.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && write_sparse(fd, reinterpret_cast<const std::byte*>(&copy), sizeof copy);
  if (fd >= 0) close(fd);
  // Under its name when whole; link() does not replace.
  const bool named = written && (replaces ? rename(draft.c_str(), path.c_str()) == 0
                                          : ::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const Error error =
      system_error("cannot write " + path, "set STARLING_FLIGHT_DIR to a folder that can be written");
  if (fd >= 0 && !(named && replaces)) unlink(draft.c_str());
  if (!named) throw error;
}

// Word by word, as its owner may be writing: whoever reads the copy judges each entry by its two numbers.
__attribute__((no_sanitize("thread"))) std::unique_ptr<FlightRecord> copy_of(const FlightRecord& record) {
  auto copy = std::make_unique<FlightRecord>();
  const auto* from = reinterpret_cast<const volatile uint64_t*>(&record);
  auto* to = reinterpret_cast<uint64_t*>(copy.get());
  for (size_t word = 0; word < sizeof record / sizeof(uint64_t); ++word) to[word] = from[word];
  copy->header.copied_ns = cpu::monotonic_ns();
  copy->header.copied_by = uint32_t(getpid());
  return copy;
}

}  // namespace

std::string flight_name(const std::string& arena) {
  return std::string(kPrefix) + arena.substr(std::min(arena.size(), kArenaPrefix.size()));
}

FlightFile::FlightFile(const std::string& arena) : path_(kFolder + flight_name(arena)) {
  const int fd = open(path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  struct statvfs space{};
  // A page that does not fit is a SIGBUS: so there must be room for all of it.
  const bool fits = fd >= 0 && fstatvfs(fd, &space) == 0 &&
                    uint64_t(space.f_bavail) * space.f_frsize >= 2 * sizeof(FlightRecord) &&
                    ftruncate(fd, sizeof(FlightRecord)) == 0;
  void* mapped =
      fits ? mmap(nullptr, sizeof(FlightRecord), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (fd >= 0) close(fd);
  if (mapped != MAP_FAILED) {
    record_ = static_cast<FlightRecord*>(mapped);
    shared_ = true;
    return;
  }
  if (fd >= 0) unlink(path_.c_str());
  log(LogLevel::info, "no room for ", path_, ": `starling diagnose` will not see this rank");
  record_ = static_cast<FlightRecord*>(calloc(1, sizeof(FlightRecord)));
  if (record_ == nullptr) throw std::bad_alloc();
}

FlightFile::~FlightFile() {
  if (!shared_) free(record_);
  if (!shared_) return;
  munmap(record_, sizeof(FlightRecord));
  if (!kept_) unlink(path_.c_str());
}

void copy_flight(const FlightRecord& record, const std::string& folder) {
  write_copy(*copy_of(record), folder, true);
}

bool copy_neighbours_flight(const std::string& arena, const std::string& folder) {
  const int fd = open((kFolder + flight_name(arena)).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat status{};
  const bool whole = fstat(fd, &status) == 0 && status.st_size == off_t(sizeof(FlightRecord));
  void* mapped = whole ? mmap(nullptr, sizeof(FlightRecord), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (mapped == MAP_FAILED) return false;
  const auto copy = copy_of(*static_cast<const FlightRecord*>(mapped));
  munmap(mapped, sizeof(FlightRecord));
  if (copy->header.magic != kFlightMagic) return false;
  write_copy(*copy, folder, false);
  return true;
}

void remove_old_flights() {
  DIR* folder = opendir(kFolder);
  if (folder == nullptr) return;
  std::vector<Old> old;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    struct stat status{};
    if (name.rfind(kPrefix, 0) != 0 || stat((kFolder + name).c_str(), &status) != 0) continue;
    if (status.st_uid != geteuid()) continue;
    if (cpu::arena_alive(std::string(kArenaPrefix) + name.substr(kPrefix.size()))) continue;
    old.push_back({status.st_mtim.tv_sec, uint64_t(status.st_blocks) * 512, kFolder + name});
  }
  closedir(folder);
  std::sort(old.begin(), old.end(), [](const Old& a, const Old& b) { return a.written > b.written; });
  struct statvfs space{};
  const bool known = statvfs(kFolder, &space) == 0;
  uint64_t room = known ? uint64_t(space.f_blocks) * space.f_frsize / kKeptShare : 0;
  const time_t now = time(nullptr);
  for (size_t k = 0; k < old.size(); ++k) {
    const bool stays = k < kKept && old[k].bytes <= room && now - old[k].written < kKeptSeconds;
    if (stays)
      room -= old[k].bytes;
    else
      unlink(old[k].path.c_str());
  }
}

}  // namespace starling::monitor
