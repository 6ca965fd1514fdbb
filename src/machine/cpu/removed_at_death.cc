#include "machine/cpu/removed_at_death.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace starling::cpu {
namespace {

constexpr int kMostFiles = 1024;  // those beyond are as after SIGKILL
constexpr const char* kPathPrefix = "/dev/shm/starling";
constexpr std::array kSignals = {SIGHUP, SIGINT, SIGTERM};

// What a signal handler can reach: pid << 32 | fd + 1, or 0. The pid, because a forked process has a copy.
std::array<std::atomic<uint64_t>, kMostFiles> files;

// Only calls that are safe in a signal handler. The path comes from the kernel: a number that another thread
// has just given to a file of the program's never costs that file its name.
void remove_name_of(int fd) {
  char link[32] = "/proc/self/fd/";
  char digits[12];
  size_t count = 0;
  for (int rest = fd; rest > 0 || count == 0; rest /= 10) digits[count++] = char('0' + rest % 10);
  for (size_t at = std::strlen(link); count > 0; ++at) link[at] = digits[--count];
  char path[256];
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (std::strncmp(path, kPathPrefix, std::strlen(kPathPrefix)) == 0 && fcntl(fd, F_SETLK, &lock) == 0)
    unlink(path);
}

void remove_all_names() {
  for (const auto& file : files) {
    // Acquire: pairs with the release in RemovedAtDeath(): the file is open.
    const uint64_t value = file.load(std::memory_order_acquire);
    if (value >> 32 == uint64_t(getpid())) remove_name_of(int(uint32_t(value)) - 1);
  }
}

void remove_all(int signal) {
  const int error = errno;
  remove_all_names();
  errno = error;
  std::signal(signal, SIG_DFL);
  raise(signal);  // ends the process when this returns
}

// Which signals call remove_all(): those that would end the process.
struct Handlers {
  void install() const {
    for (const int signal : kSignals) {
      struct sigaction now{};
      if (sigaction(signal, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 ||
          now.sa_handler != SIG_DFL)
        continue;
      struct sigaction own{};
      own.sa_handler = remove_all;
      sigfillset(&own.sa_mask);
      sigaction(signal, &own, nullptr);
    }
  }
  // The process exits, or the library is unloaded before.
  ~Handlers() {
    remove_all_names();
    for (const int signal : kSignals) {
      struct sigaction now{};
      if (sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
          now.sa_handler == remove_all)
        std::signal(signal, SIG_DFL);
    }
  }
};

}  // namespace

RemovedAtDeath::RemovedAtDeath(int fd) {
  const uint64_t value = uint64_t(getpid()) << 32 | uint32_t(fd + 1);
  for (int place = 0; place < kMostFiles && place_ < 0; ++place) {
    uint64_t free = 0;
    // Release: after the file was opened; pairs with the acquire in remove_all().
    if (files[size_t(place)].compare_exchange_strong(free, value, std::memory_order_release,
                                                     std::memory_order_relaxed))
      place_ = place;
  }
  static const Handlers handlers;
  handlers.install();
}

RemovedAtDeath::~RemovedAtDeath() {
  if (place_ >= 0) files[size_t(place_)].store(0, std::memory_order_relaxed);
}

}  // namespace starling::cpu
