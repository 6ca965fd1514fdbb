// When a launch that is kept back is made, and as what: by its owner's wait, by what comes next, by the
// timer; each once, in order. Without torch.
#include "torch/late_launch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace starling::torch_adapter {
namespace {

using namespace std::chrono_literals;

class LateLaunches : public testing::Test {
 protected:
  LateLaunch::Launch entry(const char* name) {
    return {[this, name](bool waited) {
              const std::lock_guard lock(mutex_);
              made_.push_back(name + std::string(waited ? " waited" : " on"));
            },
            [this, name] {
              const std::lock_guard lock(mutex_);
              made_.push_back(name + std::string(" ended"));
              ended_on_ = std::this_thread::get_id();
            }};
  }
  std::vector<std::string> made() {
    const std::lock_guard lock(mutex_);
    return made_;
  }
  std::vector<std::string> made_after(size_t count) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (made().size() < count && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
    return made();
  }

  using List = std::vector<std::string>;
  std::mutex mutex_;
  List made_;
  std::thread::id timer_, ended_on_;
  std::vector<std::thread> elsewhere_;
  // A launch may be made by the timer at any time after 50 us, so tests that must not meet it keep it busy.
  LateLaunch late_{{[this] { timer_ = std::this_thread::get_id(); },
                    [this](std::function<void()> task) {
                      const std::lock_guard lock(mutex_);  // who ends waits for it: then it is in the list
                      elsewhere_.emplace_back(std::move(task));
                    }}};
  void TearDown() override {
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex_);
      threads.swap(elsewhere_);
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(LateLaunches, AreMadeByTheTimer) {
  late_.put(this, entry("a"));
  EXPECT_EQ(made_after(2), (List{"a on", "a ended"}));
  EXPECT_NE(ended_on_, timer_);
  late_.take(this, true);
  late_.flush();
  EXPECT_EQ(made().size(), 2u) << "once";
}

// Rarely the timer comes first.
TEST_F(LateLaunches, AreWaitedForIfTheirOwnerWaitsAtOnce) {
  uint32_t waited = 0;
  for (int k = 0; k < 200; ++k) {
    late_.put(this, entry("a"));
    late_.take(this, true);
    const List all = made_after(2);
    ASSERT_EQ(all.size(), 2u);
    waited += all[0] == "a waited";
    const std::lock_guard lock(mutex_);
    made_.clear();
  }
  EXPECT_GT(waited, 0u);
}

TEST_F(LateLaunches, AreMadeBeforeWhatComesNext) {
  const int other = 0;
  for (int k = 0; k < 200; ++k) {
    late_.put(this, entry("a"));
    late_.put(&other, entry("b"));
    late_.take(this, true);  // it is too late for that
    late_.flush();
    const List all = made_after(4);
    List launches;
    for (const std::string& name : all)
      if (!name.ends_with("ended")) launches.push_back(name);
    ASSERT_EQ(launches, (List{"a on", "b on"}));
    const std::lock_guard lock(mutex_);
    made_.clear();
  }
}

TEST_F(LateLaunches, AreMadeAtTheEnd) {
  List made;
  {
    LateLaunch late{{[] {}, [](const std::function<void()>& task) { task(); }}};
    late.put(this, {[&](bool) { made.push_back("made"); }, [&] { made.push_back("ended"); }});
  }
  EXPECT_EQ(made, (List{"made", "ended"}));
}

}  // namespace
}  // namespace starling::torch_adapter
