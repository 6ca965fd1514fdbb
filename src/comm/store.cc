#include "comm/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "machine/cpu/futex.h"

namespace starling {
namespace {

class UserStore final : public Store {
 public:
  explicit UserStore(const starling_store& functions) : functions_(functions) {}

  void set(const std::string& key, const std::string& value) override {
    if (functions_.set(functions_.user, key.c_str(), value.data(), value.size()) != 0)
      throw Error(Code::system, "the store refused to set " + key, "see the store's own error");
  }

  std::string get(const std::string& key, int64_t timeout_ns) override {
    std::vector<char> buffer(4096);
    size_t bytes = buffer.size();
    if (functions_.get(functions_.user, key.c_str(), buffer.data(), &bytes, timeout_ns) != 0)
      throw Error(Code::timeout, "no value of key " + key + " in the store within the timeout",
                  "check that all ranks started and use the same group name and size");
    return std::string(buffer.data(), bytes);
  }

 private:
  starling_store functions_;
};

class JobStore final : public Store {
 public:
  explicit JobStore(std::string prefix) : prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override {
    const std::string path = path_of(key);
    const std::string draft = path + "." + std::to_string(getpid());
    const int fd = open(draft.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) throw system_error("cannot write " + draft, "check the space in /dev/shm");
    const ssize_t written = write(fd, value.data(), value.size());
    close(fd);
    // Renamed when whole: a reader sees all of it or nothing.
    if (written != ssize_t(value.size()) || rename(draft.c_str(), path.c_str()) != 0)
      throw system_error("cannot write " + path, "check the space in /dev/shm");
  }

  std::string get(const std::string& key, int64_t timeout_ns) override {
    const std::string path = path_of(key);
    const uint64_t start = cpu::monotonic_ns();
    for (;;) {
      const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd >= 0) {
        char buffer[4096];
        const ssize_t bytes = read(fd, buffer, sizeof buffer);
        close(fd);
        if (bytes >= 0) return std::string(buffer, size_t(bytes));
      }
      if (cpu::monotonic_ns() - start > uint64_t(timeout_ns))
        throw Error(Code::timeout, "rank did not appear: no file " + path,
                    "check that all ranks run on this host with the same STARLING_JOB");
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }

  bool wants_removal() const override { return true; }
  void remove(const std::string& key) override { unlink(path_of(key).c_str()); }

 private:
  std::string path_of(const std::string& key) const { return prefix_ + std::to_string(hash64(key)); }

  std::string prefix_;
};

}  // namespace

std::unique_ptr<Store> user_store(const starling_store& functions) {
  if (functions.set == nullptr || functions.get == nullptr)
    throw Error(Code::invalid_argument, "starling_store has a null function", "set both set and get");
  return std::make_unique<UserStore>(functions);
}

std::unique_ptr<Store> job_store(const std::string& job) {
  return std::make_unique<JobStore>("/dev/shm/starling-job." + std::to_string(getuid()) + "." +
                                    std::to_string(hash64(job)) + ".");
}

}  // namespace starling
