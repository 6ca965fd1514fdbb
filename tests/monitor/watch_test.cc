// Goal: a watcher sees of a rank what its segment says, in this process and in others, follows its paths, and
// tells who lives, who left and who died, without touching pages that the rank has not touched. Method:
// segments made by hand, and a child process that is killed amid its transfers while it is watched.
#include "monitor/watch.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "machine/cpu/futex.h"
#include "monitor/flow_recorder.h"
#include "monitor/publish.h"
#include "monitor/watcher.h"
#include "wire/lane_layout.h"

namespace starling::monitor {
namespace {

constexpr uint64_t kArenaBytes = 64 << 20;
constexpr uint64_t kBoundNs = 200'000'000'000;

template <class Ready>
bool wait_until(Ready&& ready) {
  const uint64_t end = cpu::monotonic_ns() + kBoundNs;
  while (!ready()) {
    if (cpu::monotonic_ns() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A rank's segment with a lane, two blocks and two paths, as contexts and proxies make it.
struct MadeRank {
  cpu::Arena arena{{kArenaBytes}};
  BlockCounters* counters;
  LaneShared* lane;
  std::vector<PathRing*> rings;

  explicit MadeRank(uint32_t rank = 3) {
    counters = reinterpret_cast<BlockCounters*>(arena.at(arena.allocate(2 * sizeof(BlockCounters))));
    counters[0].launches = 1;
    publish_rank(arena, {"cpu", 4, counters, 2, sizeof(BlockCounters)});
    publish_group(arena, {1, 2, "training", rank, 8});
    const LaneShape shape{8, 1, 2, 4096, 0, 16};
    const LaneLayout layout(shape);
    const uint64_t offset = arena.allocate(layout.region_bytes);
    lane = reinterpret_cast<LaneShared*>(arena.at(offset));
    layout.describe(*lane, shape);
    lane->rank = rank;
    std::strcpy(lane->name, "ddp/7");
    arena.publish(11, 12, offset);
    for (uint32_t p = 0; p < 2; ++p)
      rings.push_back(add_path(arena, {5, p, LinkKind::kTcp, "rail" + std::to_string(p)}));
  }
};

TEST(Watch, SeesWhoTheRankIsAndWhatItDoes) {
  MadeRank rank;
  rank.counters[0].parks = 5;
  rank.counters[1].parks = 7;
  rank.counters[0].queue_peak = 3;
  rank.counters[1].queue_peak = 2;
  rank.lane->submitted = 10;
  rank.lane->completed = 8;
  Signature& entry = board_of(rank.lane)[8];
  entry.position = 9;
  entry.collective = Collective::kAllGather;
  entry.count = 1234;
  Watch watch(rank.arena.name(), {});
  const RankView view = watch.look(cpu::monotonic_ns());
  EXPECT_EQ(view.state, RankState::kAlive);
  EXPECT_EQ(view.pid, uint32_t(getpid()));
  EXPECT_EQ(view.device, "cpu");
  EXPECT_EQ(view.job, "training");
  EXPECT_EQ(view.rank, 3u);
  EXPECT_EQ(view.size, 8u);
  EXPECT_TRUE(view.counted);
  EXPECT_EQ(view.counters.parks, 12u);
  EXPECT_EQ(view.counters.queue_peak, 3u);
  ASSERT_EQ(view.lanes.size(), 1u);
  EXPECT_EQ(view.lanes[0].name, "ddp/7");
  EXPECT_EQ(view.lanes[0].submitted, 10u);
  EXPECT_EQ(view.lanes[0].completed, 8u);
  ASSERT_TRUE(view.lanes[0].oldest.known);
  EXPECT_EQ(view.lanes[0].oldest.collective, Collective::kAllGather);
  EXPECT_EQ(view.lanes[0].oldest.count, 1234u);
  entry.position = 0;  // is being written
  EXPECT_FALSE(watch.look(0).lanes[0].oldest.known);
  ASSERT_EQ(view.paths.size(), 2u);
  EXPECT_EQ(view.paths[0].name, "rail0");
  EXPECT_EQ(view.paths[1].peer, 5u);
}

TEST(Watch, TheFirstGroupNamesTheJob) {
  MadeRank rank;
  publish_group(rank.arena, {8, 9, "another", 0, 2});
  EXPECT_EQ(Watch(rank.arena.name(), {}).look(0).job, "training");
}

TEST(Watch, FollowsPathsInWindowsAndNamesTheSlowOne) {
  MadeRank rank;
  Watch watch(rank.arena.name(), {.kept_samples = 100'000});
  FlowRecorder recorder(rank.rings);
  uint64_t now = 1'000'000;
  for (uint64_t k = 0; k < 400; ++k) {
    for (const uint32_t p : {0u, 1u}) recorder.posted(p, 2 * k + p, 65536, now);
    now += 10'000 + (k == 300 ? 500'000 : 0);  // path 0 stands still
    recorder.landed(2 * k, 0b10, now - (k == 300 ? 500'000 : 0));
    recorder.landed(2 * k + 2, 0, now);
    watch.follow();
  }
  const RankView view = watch.look(now);
  EXPECT_EQ(view.window, 4u);
  EXPECT_EQ(view.paths[0].transfers, 400u);
  EXPECT_EQ(view.paths[0].bytes, 400u * 65536);
  EXPECT_EQ(view.paths[0].window.transfers, 4u) << "the rank's own setting";
  EXPECT_EQ(view.paths[0].slow_count, 1u);
  EXPECT_NEAR(double(view.paths[0].slow_ns), 500e3, 50e3);
  EXPECT_EQ(view.paths[1].slow_count, 0u);
  EXPECT_EQ(view.paths[1].starved_count, 1u);
  const auto anomalies = watch.take_anomalies();
  ASSERT_EQ(anomalies.size(), 2u);
  EXPECT_EQ(watch.take_anomalies().size(), 0u);
  EXPECT_EQ(watch.take_samples().size(), 800u);
}

// What was usual over sockets is slow for queue pairs, and the other way round.
TEST(Watch, APathThatQueuePairsCarryHasAHistoryOfItsOwn) {
  MadeRank rank;
  Watch watch(rank.arena.name(), {});
  FlowRecorder recorder(rank.rings);
  uint64_t now = 1'000'000;
  const auto transfers = [&](LinkKind kind, uint64_t each_ns) {
    recorder.closed(0);
    recorder.opened(0, kind);
    for (uint64_t k = 0; k < 200; ++k) {
      recorder.posted(0, k, 65536, now);
      now += each_ns;
      if (kind == LinkKind::kVerbs)
        recorder.completed(0, k, now);
      else
        recorder.landed(k + 1, 0, now);
      watch.follow();
    }
  };
  transfers(LinkKind::kVerbs, 10'000);
  EXPECT_EQ(watch.look(now).paths[0].link, LinkKind::kVerbs);
  EXPECT_EQ(watch.look(now).paths[0].transfers, 200u);
  transfers(LinkKind::kTcp, 100'000);
  EXPECT_EQ(watch.look(now).paths[0].link, LinkKind::kTcp);
  EXPECT_EQ(watch.look(now).paths[0].slow_count, 0u);
  transfers(LinkKind::kTcp, 1'000'000);
  EXPECT_EQ(watch.look(now).paths[0].slow_count, 1u) << "that it knows";
}

// A watcher that comes late finds the records of two incarnations in one ring.
TEST(Watch, RecordsAreJudgedByWhatCarriedThem) {
  MadeRank rank;
  Watch watch(rank.arena.name(), {});
  FlowRecorder recorder(rank.rings);
  uint64_t now = 1'000'000;
  recorder.opened(0, LinkKind::kVerbs);
  for (uint64_t k = 0; k < 300; ++k) {
    recorder.posted(0, k, 65536, now);
    recorder.completed(0, k, now += 10'000);
  }
  watch.follow();
  for (uint64_t k = 300; k < 400; ++k) {
    recorder.posted(0, k, 65536, now);
    recorder.completed(0, k, now += 1'000'000);  // of queue pairs, and slow for them
  }
  recorder.closed(0);
  recorder.opened(0, LinkKind::kTcp);
  for (uint64_t k = 400; k < 500; ++k) {
    recorder.posted(0, k, 65536, now);
    recorder.landed(k + 1, 0, now += 5'000'000);
  }
  watch.follow();
  const PathView path = watch.look(now).paths[0];
  EXPECT_EQ(path.link, LinkKind::kTcp);
  EXPECT_EQ(path.slow_count, 1u) << "of queue pairs, and not of sockets";
  EXPECT_NEAR(double(path.slow_ns), 99e6, 10e6) << "it ended with them";
  EXPECT_FALSE(path.current.has_value());
}

TEST(Watch, AClosedPathIsNeitherSlowNorStarved) {
  MadeRank rank;
  Watch watch(rank.arena.name(), {});
  FlowRecorder recorder(rank.rings);
  uint64_t now = 1'000'000;
  for (uint64_t k = 0; k < 220; ++k) {
    recorder.posted(0, k, 65536, now);
    recorder.landed(k + 1, 0, now += k < 200 ? 10'000 : 200'000);
    watch.follow();
  }
  ASSERT_TRUE(watch.look(now).paths[0].current.has_value());
  recorder.closed(0);
  watch.follow();
  PathView path = watch.look(now += 1'000'000'000).paths[0];
  EXPECT_FALSE(path.current.has_value());
  EXPECT_EQ(path.slow_count, 1u) << "what was lost stays so";
  EXPECT_EQ(path.starved_count, 0u);
  recorder.posted(0, 220, 65536, now);
  recorder.landed(221, 0, now += 10'000);
  watch.follow();
  path = watch.look(now).paths[0];
  EXPECT_EQ(path.slow_count, 1u) << "and is counted once";
}

TEST(Watch, OfTooManyAnomaliesTheOldestGo) {
  constexpr uint64_t kStandstills = 4096, kBetween = 16;  // each is one of path 0, and starves path 1
  MadeRank rank;
  Watch watch(rank.arena.name(), {});
  FlowRecorder recorder(rank.rings);
  uint64_t now = 1'000'000, stood_at = 0;
  for (uint64_t k = 0; k < 200 + kStandstills * kBetween; ++k) {
    const bool stands = k > 200 && k % kBetween == 0;
    if (stands) stood_at = now;
    for (const uint32_t p : {0u, 1u}) recorder.posted(p, 2 * k + p, 65536, now);
    now += 10'000 + (stands ? 500'000 : 0);
    recorder.landed(2 * k, 0b10, now - (stands ? 500'000 : 0));
    recorder.landed(2 * k + 2, 0, now);
    watch.follow();
  }
  ASSERT_GT(watch.look(now).paths[0].slow_count, kStandstills / 2);
  const auto anomalies = watch.take_anomalies();
  EXPECT_EQ(anomalies.size(), 4096u);
  EXPECT_GE(anomalies.back().anomaly.end_ns, stood_at);
}

TEST(Watch, PathsThatComeLaterAreFound) {
  MadeRank rank;
  Watch watch(rank.arena.name(), {});
  add_path(rank.arena, {1, 0, LinkKind::kVerbs, "mlx0"});
  watch.follow();
  const RankView view = watch.look(0);
  ASSERT_EQ(view.paths.size(), 3u);
  EXPECT_EQ(view.paths[0].name, "mlx0");
}

TEST(Watch, SegmentsThatAreNoRanksAreRefused) {
  cpu::Arena shadow({kArenaBytes});
  EXPECT_THROW(Watch(shadow.name(), {}), Error);
  EXPECT_THROW(Watch("starling.none.0", {}), Error);
}

// A process that makes a rank, says its segment's name, and records transfers until it is killed.
class Child {
 public:
  Child() {
    if (pipe(ends_) != 0) return;
    pid_ = fork();
    if (pid_ != 0) {
      char text[128] = {};
      [[maybe_unused]] const ssize_t got = read(ends_[0], text, sizeof text - 1);
      name_ = text;
      return;
    }
    MadeRank rank(6);
    const std::string& name = rank.arena.name();
    [[maybe_unused]] const ssize_t put = write(ends_[1], name.data(), name.size());
    FlowRecorder recorder(rank.rings);
    for (uint64_t k = 0;; ++k) {
      recorder.posted(0, k, 1000, cpu::monotonic_ns());
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      recorder.landed(k + 1, 0, cpu::monotonic_ns());
    }
  }
  ~Child() {
    end();
    for (int end : ends_) close(end);
  }
  void end() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = 0;
  }
  const std::string& name() const { return name_; }

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = 0;
  std::string name_;
};

uint64_t pages_of(const std::string& name) {
  struct stat status{};
  stat(("/dev/shm/" + name).c_str(), &status);
  return uint64_t(status.st_blocks);
}

TEST(Watch, AnotherProcessIsWatchedUntilItDies) {
  Child child;
  {
    Watch watch(child.name(), {});
    ASSERT_TRUE(wait_until([&] {
      watch.follow();
      return watch.look(cpu::monotonic_ns()).paths[0].transfers > 100;
    }));
    const RankView view = watch.look(cpu::monotonic_ns());
    EXPECT_EQ(view.state, RankState::kAlive);
    EXPECT_EQ(view.rank, 6u);
    ASSERT_EQ(view.lanes.size(), 1u);
    child.end();
    EXPECT_TRUE(wait_until([&] { return !watch.alive(); }));
    watch.follow();
    EXPECT_EQ(watch.look(cpu::monotonic_ns()).state, RankState::kDied);
  }
  cpu::remove_stale_arenas();
}

TEST(Watch, LookingMakesNoPages) {
  Child child;
  Watch watch(child.name(), {.kept_samples = 100'000});
  // The ring's pages come with its records; nobody has looked at the directory of lanes yet.
  uint64_t seen = 0;
  ASSERT_TRUE(wait_until([&] {
    watch.follow();
    return (seen += watch.take_samples().size()) > 2 * kPathRecords;
  }));
  const uint64_t before = pages_of(child.name());
  for (int k = 0; k < 10; ++k) {
    watch.follow();
    watch.look(cpu::monotonic_ns());
  }
  EXPECT_EQ(pages_of(child.name()), before);
}

TEST(Watcher, FindsRanksFollowsThemAndRemembersThoseThatWent) {
  Child child;  // first: a process with threads should not fork
  Watcher watcher({.watch = {}, .follow_ns = 1'000'000, .search_ns = 2'000'000, .remember_ns = kBoundNs});
  const auto find = [&](const std::string& name) -> std::optional<RankView> {
    for (RankView& view : watcher.look())
      if (view.segment == name) return std::move(view);
    return std::nullopt;
  };
  std::string left;
  {
    MadeRank rank(2);
    left = rank.arena.name();
    EXPECT_TRUE(wait_until([&] { return find(left).has_value(); }));
    EXPECT_EQ(find(left)->state, RankState::kAlive);
  }
  EXPECT_TRUE(wait_until([&] { return find(left)->state == RankState::kLeft; }));
  EXPECT_TRUE(wait_until([&] {
    const auto view = find(child.name());
    return view && view->paths[0].window.transfers > 0;
  }));
  child.end();
  EXPECT_TRUE(wait_until([&] { return find(child.name())->state == RankState::kDied; }));
  cpu::remove_stale_arenas();
}

}  // namespace
}  // namespace starling::monitor
