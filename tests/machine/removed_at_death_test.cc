// Goal: a process that exits without a word, or that a signal ends, leaves no name in /dev/shm, takes that of
// a dead peer along, and lets those of the living be. Method: processes that make segments and see each
// other's.
#include "machine/cpu/removed_at_death.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "machine/cpu/arena.h"

namespace starling::cpu {
namespace {

class Process {
 public:
  // `work` calls its argument with what it has to say, once.
  explicit Process(const std::function<void(const std::function<void(const std::string&)>&)>& work) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      work([&](const std::string& text) {
        if (write(ends[1], text.data(), text.size()) != ssize_t(text.size())) _exit(1);
        close(ends[1]);
      });
      std::exit(0);
    }
    close(ends[1]);
    char buffer[128];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said_.append(buffer, size_t(n));
    close(ends[0]);
  }
  ~Process() { ended_by(SIGKILL); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const std::string& said() const { return said_; }
  // The signal that ended it, or 0.
  int ended_by(int signal) {
    if (pid_ == 0) return 0;
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  pid_t pid_ = 0;
  std::string said_;
};

bool is_there(const std::string& name) { return access(("/dev/shm/" + name).c_str(), F_OK) == 0; }

void own_segment(const std::function<void(const std::string&)>& say, bool stays) {
  static Arena* const kArena = new Arena({1 << 24});  // nobody destroys it
  say(kArena->name());
  while (stays) pause();
}

TEST(RemovedAtDeath, OnExit) {
  Process process([](const auto& say) { own_segment(say, false); });
  EXPECT_EQ(process.ended_by(0), 0);
  ASSERT_TRUE(is_arena_name(process.said()));
  EXPECT_FALSE(is_there(process.said()));
}

TEST(RemovedAtDeath, OnSignals) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    Process process([](const auto& say) { own_segment(say, true); });
    EXPECT_TRUE(is_there(process.said()));
    EXPECT_EQ(process.ended_by(signal), signal);
    EXPECT_FALSE(is_there(process.said()));
  }
}

TEST(RemovedAtDeath, OfDeadPeersOnly) {
  for (const bool dead : {false, true}) {
    Process peer([](const auto& say) { own_segment(say, true); });
    Process process([&](const auto& say) {
      static auto* const kSeen = new PeerArena(peer.said());
      say(kSeen->name());
      for (;;) pause();
    });
    ASSERT_EQ(process.said(), peer.said());
    if (dead) {
      EXPECT_EQ(peer.ended_by(SIGKILL), SIGKILL);
    }
    EXPECT_TRUE(is_there(peer.said()));
    EXPECT_EQ(process.ended_by(SIGTERM), SIGTERM);
    EXPECT_EQ(is_there(peer.said()), !dead);
    peer.ended_by(SIGTERM);
  }
}

TEST(RemovedAtDeath, NotOnSignalsThatTheProgramIgnores) {
  Process process([](const auto& say) {
    std::signal(SIGTERM, SIG_IGN);
    own_segment([](const std::string&) {}, false);
    std::raise(SIGTERM);
    say("goes on");
  });
  EXPECT_EQ(process.said(), "goes on");
  EXPECT_EQ(process.ended_by(0), 0);
}

// A forked process ends without its parent's segments.
TEST(RemovedAtDeath, NotOfTheParent) {
  const Arena arena({1 << 24});
  for (const bool exits : {false, true}) {
    Process child([&](const auto& say) {
      say("up");
      while (!exits) pause();
    });
    EXPECT_EQ(child.ended_by(exits ? 0 : SIGTERM), exits ? 0 : SIGTERM);
    EXPECT_TRUE(is_there(arena.name()));
  }
}

}  // namespace
}  // namespace starling::cpu
