// Goal: a buffer that peers read directly is its caller's again only when none of them reads it any more,
// however the operation ended, and nobody takes torn data for a result. Method: a page of rank 0's input is
// protected, so that rank 1 stands still amid reading it, in a signal handler, until the test lets it go on;
// meanwhile the operation fails in all the ways there are. What was given back is unmapped at once: a read
// after that kills the test.
// sanitize: no (the reader stands still inside a signal handler)
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "comm/lane_regions.h"
#include "comm/threads.h"
#include "machine/cpu/doorbell.h"
#include "machine/cpu/lane_fault.h"

namespace starling::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kCount = size_t(1) << 20;  // elements: two parts of eight tiles
constexpr size_t kBytes = kCount * sizeof(float);
constexpr size_t kPageBytes = 4096;
constexpr size_t kGuarded =
    kBytes / 2 + 3 * 4096 * 17;  // in the part that rank 1 sums, behind its first tile
constexpr auto kLook = std::chrono::milliseconds(100);
constexpr auto kBound = std::chrono::milliseconds(1500);  // less than a request is kept at most

// The page at which a reader stands still.
struct Guard {
  std::atomic<std::byte*> page{nullptr};
  std::atomic<bool> reached{false};
  std::atomic<bool> open{false};
};
Guard guard;
struct sigaction previous_action;

void stand_still(int, siginfo_t* info, void*) {
  std::byte* page = guard.page.load();
  auto* at = static_cast<std::byte*>(info->si_addr);
  if (page == nullptr || at < page || at >= page + kPageBytes) {
    sigaction(SIGSEGV, &previous_action, nullptr);  // ours no more: it comes again, and ends the test
    return;
  }
  guard.reached = true;
  while (!guard.open) {
    const timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
  }
  // Unmapped meanwhile: the read comes again, and ends the test.
  if (mprotect(page, kPageBytes, PROT_READ | PROT_WRITE) != 0) sigaction(SIGSEGV, &previous_action, nullptr);
}

// What a rank gives to the library, and unmaps when it has it back.
class Buffer {
 public:
  explicit Buffer(float value)
      : base_(static_cast<float*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::fill_n(base_, kCount, value);
  }
  ~Buffer() { unmap(); }
  float* base() const { return base_; }
  void unmap() {
    if (base_ != nullptr) munmap(base_, kBytes);
    base_ = nullptr;
  }
  void protect_page() {
    auto* page = reinterpret_cast<std::byte*>(base_) + kGuarded / kPageBytes * kPageBytes;
    mprotect(page, kPageBytes, PROT_NONE);
    guard.page = page;
  }

 private:
  float* base_;
};

starling_request* submit_sum(starling_comm* comm, const Buffer& input, const Buffer& output,
                             size_t count = kCount) {
  starling_operation op = operation(STARLING_ALL_REDUCE);
  op.lane = "lane";
  op.algorithm = "two_shot_pull";
  op.input = input.base();
  op.output = output.base();
  op.count = count;
  starling_request* request = nullptr;
  EXPECT_EQ(starling_submit(comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
  return request;
}

template <class Ready>
void wait_until(Ready&& ready) {
  const auto end = Clock::now() + std::chrono::seconds(200);
  while (!ready() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(ready());
}

// As break_lane() does, but in rank 0's region alone. The only lane with connectors is the test's.
void break_for_rank_0() {
  uint32_t broken = 0;
  for_each_lane_region([&](ArenaHeader* header, LaneShared* lane) {
    if (lane->rank != 0) return;
    cpu::write_fault(lane, header, 0, uint64_t(FaultKind::kAborted), 0, "the test says so");
    cpu::ring(&header->daemon);
    cpu::ring(&header->host);
    ++broken;
  });
  EXPECT_EQ(broken, 1u);
}

class GivenBack : public ::testing::Test {
 protected:
  void SetUp() override {
    guard.page = nullptr;
    guard.reached = guard.open = false;
    struct sigaction action{};
    action.sa_sigaction = stand_still;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &previous_action);
  }
  void TearDown() override { sigaction(SIGSEGV, &previous_action, nullptr); }

  using Break = std::function<void(Rank&, starling_comm*)>;

  // Two ranks sum; while rank 1 stands amid its read, `by_owner` runs on rank 0, `by_reader` beside it on
  // rank 1. Both requests end with the status, rank 0's not before the read.
  static void expect_kept(starling_status status, const Break& by_owner, const Break& by_reader,
                          int64_t timeout_ns = 200'000'000'000) {
    RankOptions options;
    options.size = 2;
    run_ranks(options, [&](Rank& rank) {
      const uint32_t both[] = {0, 1};
      starling_comm* group = nullptr;
      ASSERT_EQ(starling_comm_subgroup(rank.comm, both, 2, "group", &group), STARLING_SUCCESS);
      Buffer input(1), output(0);
      if (rank.rank == 0) {
        input.protect_page();
        EXPECT_EQ(starling_comm_set_timeout(group, timeout_ns), STARLING_SUCCESS);
        starling_request* request = submit_sum(group, input, output);
        wait_until([&] { return guard.reached || starling_test(request) != STARLING_IN_PROGRESS; });
        if (guard.reached) {
          by_owner(rank, group);
          expect_under_way(request);
        }
        guard.open = true;
        EXPECT_EQ(starling_wait(request, 200'000'000'000), status) << starling_last_error();
        input.unmap();
        output.unmap();
        starling_request_free(request);
      } else {
        std::thread beside([&] {
          wait_until([] { return guard.open || guard.reached; });
          if (guard.reached) by_reader(rank, group);
        });
        starling_request* request = submit_sum(group, input, output);
        EXPECT_EQ(starling_wait(request, 200'000'000'000), status) << starling_last_error();
        input.unmap();
        output.unmap();
        starling_request_free(request);
        beside.join();
      }
      EXPECT_EQ(starling_comm_destroy(group), STARLING_SUCCESS) << starling_last_error();
    });
  }

  static void expect_under_way(starling_request* request) {
    const auto start = Clock::now();
    while (Clock::now() - start < kLook) {
      const bool ended = starling_test(request) != STARLING_IN_PROGRESS;
      if (ended && Clock::now() - start > kBound) break;  // the test itself stood still: it proves nothing
      ASSERT_FALSE(ended) << "ended while a peer reads its buffer";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  static void nothing(Rank&, starling_comm*) {}
  static void abort(Rank&, starling_comm* comm) {
    EXPECT_EQ(starling_comm_abort(comm, "the test says so"), STARLING_SUCCESS);
  }
};

TEST_F(GivenBack, WhenTheOwnerAborts) { expect_kept(STARLING_ABORTED, abort, nothing); }

TEST_F(GivenBack, WhenTheReaderAborts) { expect_kept(STARLING_ABORTED, nothing, abort); }

TEST_F(GivenBack, AfterATimeout) {
  // Again if the time was up before the reader came to the page.
  for (int64_t timeout_ms = 200; !guard.reached && timeout_ms < 10'000; timeout_ms *= 2) {
    const Break wait = [&](Rank&, starling_comm*) {
      std::this_thread::sleep_for(std::chrono::milliseconds(timeout_ms));
    };
    guard.open = false;
    expect_kept(STARLING_TIMEOUT, wait, nothing, timeout_ms * 1'000'000);
  }
  EXPECT_TRUE(guard.reached);
}

TEST_F(GivenBack, AfterAMismatch) {
  // The next operation in the lane: of another count on each rank.
  const Buffer input(1), output(0);
  starling_request* next[2] = {};
  const Break other = [&](Rank& rank, starling_comm* comm) {
    next[rank.rank] = submit_sum(comm, input, output, 100 + rank.rank);
  };
  expect_kept(STARLING_MISMATCH, other, other);
  for (starling_request* request : next) starling_request_free(request);
}

// A rank that notices breaks the lane of the owner, and has told nobody else yet.
TEST_F(GivenBack, WhenTheReaderHasNotHeardOfIt) {
  expect_kept(STARLING_ABORTED, [](Rank&, starling_comm*) { break_for_rank_0(); }, nothing);
}

// An idle peer is told of the fault by the rank that waits for it to withdraw.
TEST_F(GivenBack, SoonWherePeersAreIdle) {
  std::atomic<bool> idle{false}, ended{false};
  run_ranks({.size = 2}, [&](Rank& rank) {
    const Buffer input(1), output(0);
    expect_done(submit_sum(rank.comm, input, output));
    if (rank.rank == 1) {
      idle = true;
      return wait_until([&] { return ended.load(); });
    }
    wait_until([&] { return idle.load(); });
    starling_request* request = submit_sum(rank.comm, input, output);
    break_for_rank_0();
    EXPECT_EQ(starling_wait(request, 200'000'000'000), STARLING_ABORTED);
    const std::string text = starling_last_error();
    EXPECT_EQ(text.find("may still be read"), std::string::npos) << text;
    starling_request_free(request);
    ended = true;
  });
}

TEST_F(GivenBack, WhenTheOwnerIsDestroyed) {
  run_ranks({.size = 2}, [](Rank& rank) {
    const uint32_t both[] = {0, 1};
    starling_comm* group = nullptr;
    ASSERT_EQ(starling_comm_subgroup(rank.comm, both, 2, "group", &group), STARLING_SUCCESS);
    Buffer input(1), output(0);
    if (rank.rank == 0) input.protect_page();
    starling_request* request = submit_sum(group, input, output);
    if (rank.rank == 0) {
      wait_until([] { return guard.reached.load(); });
      std::thread later([&] {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(600));  // the destroyer waits 500 ms for its work
        expect_under_way(request);
        guard.open = true;
      });
      EXPECT_EQ(starling_comm_destroy(group), STARLING_SUCCESS) << starling_last_error();
      input.unmap();
      output.unmap();
      later.join();
      EXPECT_EQ(starling_wait(request, 0), STARLING_ABORTED);
    } else {
      EXPECT_EQ(starling_wait(request, 200'000'000'000), STARLING_ABORTED);
      EXPECT_EQ(starling_comm_destroy(group), STARLING_SUCCESS) << starling_last_error();
    }
    starling_request_free(request);
  });
}

TEST_F(GivenBack, AfterABoundWithAWarning) {
  std::atomic<uint32_t> ended{0};
  run_ranks({.size = 2}, [&](Rank& rank) {
    Buffer input(1), output(0);
    if (rank.rank == 0) input.protect_page();
    starling_request* request = submit_sum(rank.comm, input, output);
    if (rank.rank == 0) {
      wait_until([] { return guard.reached.load(); });
      abort(rank, rank.comm);
      EXPECT_EQ(starling_wait(request, 200'000'000'000), STARLING_ABORTED);
      const std::string text = starling_last_error();
      EXPECT_NE(text.find("may still be read by rank 1"), std::string::npos) << text;
      guard.open = true;
    } else {
      EXPECT_EQ(starling_wait(request, 200'000'000'000), STARLING_ABORTED);
    }
    ++ended;
    wait_until([&] { return ended == 2; });  // rank 0 keeps its buffers, as the warning asks
    starling_request_free(request);
  });
}

}  // namespace
}  // namespace starling::testing
