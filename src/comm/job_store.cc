#include "comm/job_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "machine/cpu/arena.h"
#include "machine/cpu/futex.h"

namespace starling {
namespace {

constexpr const char* kFolder = "/dev/shm/";
constexpr const char* kArenaPrefix = "starling.";
constexpr const char* kDraft = ".draft";
constexpr uint64_t kRivalNs = 2'000'000'000;  // a killed process may take so long to be gone
constexpr const char* kRivalRemedy =
    "give every job a STARLING_JOB (or launcher's run id) of its own, and every process a rank of its own";

struct Entry {
  std::string name;
  std::string owner;  // its segment, without the prefix
  uint64_t number = 0;
};

std::string user_prefix() { return "starling-job." + std::to_string(getuid()) + "."; }

// Entries whose names begin with `prefix`; drafts only if wanted. `fields`: dots between prefix and owner.
std::vector<Entry> entries_of(const std::string& prefix, int fields, bool drafts) {
  std::vector<Entry> entries;
  DIR* folder = opendir(kFolder);
  if (folder == nullptr) return entries;
  while (const dirent* file = readdir(folder)) {
    Entry entry{.name = file->d_name, .owner = {}};
    if (entry.name.rfind(prefix, 0) != 0) continue;
    std::string rest = entry.name.substr(prefix.size());
    if (rest.ends_with(kDraft)) {
      if (!drafts) continue;
      rest.resize(rest.size() - std::string(kDraft).size());
    }
    size_t begin = 0;
    for (int skipped = 0; skipped < fields && begin != std::string::npos; ++skipped)
      begin = rest.find('.', begin) == std::string::npos ? std::string::npos : rest.find('.', begin) + 1;
    const size_t dot = rest.rfind('.');
    if (begin == std::string::npos || dot == std::string::npos || dot <= begin) continue;
    entry.owner = rest.substr(begin, dot - begin);
    std::from_chars(rest.data() + dot + 1, rest.data() + rest.size(), entry.number);
    entries.push_back(std::move(entry));
  }
  closedir(folder);
  return entries;
}

// When it was written; equal times are ordered by name, so that everybody sees the same order.
std::pair<int64_t, std::string> age_of(const Entry& entry) {
  struct stat status{};
  if (stat((kFolder + entry.name).c_str(), &status) != 0) return {INT64_MAX, entry.name};
  return {int64_t(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec, entry.name};
}

void pause_shortly() {
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}

class JobStore final : public Store {
 public:
  JobStore(std::string prefix, const std::string& arena)
      : prefix_(std::move(prefix)), owner_(arena.substr(std::string(kArenaPrefix).size())) {}

  ~JobStore() override {
    for (const auto& [key, entry] : own_) unlink((kFolder + entry.name).c_str());
  }

  void set(const std::string& key, const std::string& value) override {
    withdraw(key);
    const Entry entry{stem_of(key) + owner_ + "." + std::to_string(written_), owner_, written_};
    ++written_;
    write_file(entry.name, value);
    own_[key] = entry;
    refuse_rivals(key, entry);
  }

  std::optional<std::string> get(const std::string& key, int64_t timeout_ns) override {
    const uint64_t start = cpu::monotonic_ns();
    for (;;) {
      const std::vector<Entry> live = live_entries(key);
      const bool one_owner = std::all_of(live.begin(), live.end(),
                                         [&](const Entry& entry) { return entry.owner == live[0].owner; });
      if (!live.empty() && one_owner) {
        const Entry& newest = *std::max_element(
            live.begin(), live.end(), [](const Entry& a, const Entry& b) { return a.number < b.number; });
        if (auto value = read_file(newest.name)) return value;
      }
      const uint64_t now = cpu::monotonic_ns();
      if (one_owner)
        rivals_since_ = 0;
      else if (rivals_since_ == 0)
        rivals_since_ = now;
      else if (now - rivals_since_ > 2 * kRivalNs)  // they settle it between them, see refuse_rivals()
        throw Error(Code::mismatch, "two live processes have set " + key, kRivalRemedy);
      if (now - start > uint64_t(timeout_ns)) return std::nullopt;
      pause_shortly();
    }
  }

  void claim(const std::string& key) override { set(key, ""); }

  void withdraw(const std::string& key) override {
    const auto found = own_.find(key);
    if (found == own_.end()) return;
    unlink((kFolder + found->second.name).c_str());
    own_.erase(found);
  }

  bool holds(const std::string& key) override { return !live_entries(key).empty(); }
  int64_t patience_ns() const override { return 50'000'000; }

 private:
  std::string stem_of(const std::string& key) const { return prefix_ + std::to_string(hash64(key)) + "."; }

  std::vector<Entry> live_entries(const std::string& key) const {
    std::vector<Entry> entries = entries_of(stem_of(key), 0, false);
    std::erase_if(entries, [&](const Entry& entry) {
      return entry.owner != owner_ && !cpu::arena_alive(kArenaPrefix + entry.owner);
    });
    return entries;
  }

  // Two jobs of one name, or two processes of one rank: the younger one is told. What a killed process has
  // set counts until the kernel has taken its lock away.
  void refuse_rivals(const std::string& key, const Entry& own) {
    const auto own_age = age_of(own);
    for (const uint64_t start = cpu::monotonic_ns();; pause_shortly()) {
      const std::vector<Entry> live = live_entries(key);
      if (std::none_of(live.begin(), live.end(),
                       [&](const Entry& entry) { return entry.owner != owner_ && age_of(entry) < own_age; }))
        return;
      if (cpu::monotonic_ns() - start < kRivalNs) continue;
      withdraw(key);
      throw Error(Code::mismatch,
                  "another live process has set " + key +
                      " for this job: another job of this name runs or is being " +
                      "started, or two processes have one rank",
                  kRivalRemedy);
    }
  }

  static void write_file(const std::string& name, const std::string& value) {
    const std::string path = kFolder + name;
    const std::string draft = path + kDraft;
    const int fd = open(draft.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) throw system_error("cannot write " + draft, "check that /dev/shm is there and has space");
    const ssize_t written = write(fd, value.data(), value.size());
    close(fd);
    // Renamed when whole: a reader sees all of it or nothing.
    if (written == ssize_t(value.size()) && rename(draft.c_str(), path.c_str()) == 0) return;
    const Error error = system_error("cannot write " + path, "make /dev/shm larger (docker: --shm-size)");
    unlink(draft.c_str());
    throw error;
  }

  static std::optional<std::string> read_file(const std::string& name) {
    const int fd = open((kFolder + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return std::nullopt;
    char buffer[4096];
    const ssize_t bytes = read(fd, buffer, sizeof buffer);
    close(fd);
    return bytes < 0 ? std::nullopt : std::optional(std::string(buffer, size_t(bytes)));
  }

  const std::string prefix_;
  const std::string owner_;
  std::map<std::string, Entry> own_;  // by key
  uint64_t written_ = first_number();
  uint64_t rivals_since_ = 0;

  // Stores of one rank follow each other: their numbers go on.
  static uint64_t first_number() { return cpu::monotonic_ns(); }
};

}  // namespace

std::unique_ptr<Store> job_store(const std::string& job, const std::string& arena) {
  return std::make_unique<JobStore>(user_prefix() + std::to_string(hash64(job)) + ".", arena);
}

uint32_t remove_stale_job_files() {
  uint32_t removed = 0;
  // Between user and owner there are the job and the key.
  for (const Entry& entry : entries_of(user_prefix(), 2, true)) {
    if (cpu::arena_alive(kArenaPrefix + entry.owner)) continue;
    removed += unlink((kFolder + entry.name).c_str()) == 0;
  }
  if (removed > 0) log(LogLevel::info, "removed ", removed, " meeting files of dead jobs");
  return removed;
}

}  // namespace starling
