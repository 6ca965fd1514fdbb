// Goal: the simulator's memory does what weak memory does, and no more.
// Method: litmus tests, two or three fibers under many seeds: what must be possible happens, what must not
// never does; races and broken rules are seen. sanitize: no (sanitizers do not follow fibers)
#include "machine/sim/memory.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "machine/sim/shadow.h"

namespace starling::sim {
namespace {

// One execution of a few fibers over the words x and y.
class Litmus {
 public:
  explicit Litmus(Options options) : options_(options) {
    memory_.describe = [](const void*) { return "a word"; };
  }

  // The first `one_block` bodies are threads of one block; each of the others is a block of its own.
  std::string run(uint64_t seed, std::vector<std::function<void(Litmus&)>> bodies, uint32_t one_block = 1) {
    scheduler_.reset(options_, seed, &Memory::commit_due, &memory_);
    memory_.reset(scheduler_, options_);
    shadow_.reset(scheduler_, memory_, options_);
    x = memory_.region().make<uint64_t>();
    y = memory_.region().make<uint64_t>();
    slot = shadow_.slots().allocate(64);
    std::vector<Body> started;
    started.reserve(bodies.size());
    for (uint32_t k = 0; k < bodies.size(); ++k) {
      started.push_back({this, bodies[k]});
      memory_.set_unit(scheduler_.add(k, &enter, &started.back()), k < one_block ? 0 : k);
    }
    memory_.begin();
    scheduler_.run();
    return scheduler_.failure();
  }

  uint64_t load(const uint64_t* p, bool acquire) {
    scheduler_.step();
    return memory_.load(p, acquire);
  }
  void store(uint64_t* p, uint64_t v, bool release) {
    scheduler_.step();
    memory_.store(p, v, release);
  }
  void fence() { memory_.fence(); }
  void meet() { memory_.meet(scheduler_.current_id()); }
  void rest() { scheduler_.yield(); }
  uint64_t load_as_its_reader(const uint64_t* p) {
    memory_.allow_one_reader(p);
    return load(p, true);
  }
  void write(uint64_t v) { shadow_.write(slot, reinterpret_cast<const std::byte*>(&v), 8); }
  uint64_t read() {
    shadow_.will_read(slot, 8);
    return *reinterpret_cast<uint64_t*>(slot);
  }
  void add(uint64_t* p, uint64_t v, bool ordered) { memory_.fetch_add(p, v, ordered); }
  void until(const uint64_t* p, uint64_t v, bool acquire) {
    while (load(p, acquire) != v) scheduler_.sleep();
  }

  uint64_t *x = nullptr, *y = nullptr;
  std::byte* slot = nullptr;

 private:
  struct Body {
    Litmus* litmus;
    std::function<void(Litmus&)> run;
  };
  static void enter(void* body) {
    auto* b = static_cast<Body*>(body);
    b->run(*b->litmus);
  }

  Options options_;
  Scheduler scheduler_;
  Memory memory_;
  Shadow shadow_;
};

Options weak() {
  Options o;
  o.mean_slice = 1;
  o.late_store_chance = kAlways / 2;
  o.late_store_ns = 500;
  o.late_data_chance = kAlways;
  return o;
}

using Outcome = std::pair<uint64_t, uint64_t>;

// Message passing: the second store is seen and the first is not. `adds`: the second one adds.
std::set<Outcome> message_passing(bool release, bool adds = false) {
  Litmus litmus(weak());
  std::set<Outcome> seen;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Outcome outcome;
    const std::string failure = litmus.run(seed, {[&](Litmus& l) {
                                                    l.store(l.x, 1, false);
                                                    if (adds)
                                                      l.add(l.y, 1, release);
                                                    else
                                                      l.store(l.y, 1, release);
                                                  },
                                                  [&](Litmus& l) {
                                                    outcome.first = l.load(l.y, release);
                                                    outcome.second = l.load(l.x, false);
                                                  }});
    EXPECT_EQ(failure, "");
    seen.insert(outcome);
  }
  return seen;
}

TEST(WeakMemory, RelaxedStoresOvertakeEachOther) { EXPECT_TRUE(message_passing(false).count({1, 0})); }

TEST(WeakMemory, ReleaseOrdersWhatCameBefore) {
  const auto seen = message_passing(true);
  EXPECT_FALSE(seen.count({1, 0}));
  EXPECT_TRUE(seen.count({1, 1}));
  EXPECT_TRUE(seen.count({0, 0}));
}

TEST(WeakMemory, RelaxedAddsOvertakeStores) {
  EXPECT_TRUE(message_passing(false, true).count({1, 0}));
  EXPECT_FALSE(message_passing(true, true).count({1, 0}));
}

// Message passing by two threads of a block: one stores, the other releases, after a barrier or without one.
std::set<Outcome> message_passing_by_a_block(bool barrier) {
  Litmus litmus(weak());
  std::set<Outcome> seen;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Outcome outcome;
    bool stored = false;
    auto store = [&](Litmus& l) {
      l.store(l.x, 1, false);
      if (barrier) l.meet();
      stored = true;
    };
    auto release = [&](Litmus& l) {
      while (!stored) l.rest();
      if (barrier) {
        EXPECT_EQ(l.load(l.x, false), 1u);
      }
      l.store(l.y, 1, true);
    };
    auto look = [&](Litmus& l) {
      outcome.first = l.load(l.y, true);
      outcome.second = l.load(l.x, false);
    };
    EXPECT_EQ(litmus.run(seed, {store, release, look}, 2), "");
    seen.insert(outcome);
  }
  return seen;
}

TEST(WeakMemory, ReleaseOrdersWhatOtherThreadsStoredBeforeABarrier) {
  const auto seen = message_passing_by_a_block(true);
  EXPECT_FALSE(seen.count({1, 0}));
  EXPECT_TRUE(seen.count({0, 1}));
}
TEST(WeakMemory, WithoutABarrierItDoesNot) { EXPECT_TRUE(message_passing_by_a_block(false).count({1, 0})); }

// Store buffering: both sides store, then look; without fences both may miss the other.
std::set<Outcome> store_buffering(bool fences) {
  Litmus litmus(weak());
  std::set<Outcome> seen;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Outcome outcome;
    auto side = [fences](uint64_t* Litmus::* mine, uint64_t* Litmus::* other, uint64_t& result) {
      return [=, &result](Litmus& l) {
        l.store(l.*mine, 1, true);
        if (fences) l.fence();
        result = l.load(l.*other, true);
      };
    };
    EXPECT_EQ(litmus.run(seed, {side(&Litmus::x, &Litmus::y, outcome.first),
                                side(&Litmus::y, &Litmus::x, outcome.second)}),
              "");
    seen.insert(outcome);
  }
  return seen;
}

TEST(WeakMemory, BothSidesMayMissEachOtherWithoutFences) {
  EXPECT_TRUE(store_buffering(false).count({0, 0}));
}
TEST(WeakMemory, FencesShowOneSideTheOther) { EXPECT_FALSE(store_buffering(true).count({0, 0})); }

TEST(WeakMemory, DataIsThereAfterReleaseAndAcquire) {
  Litmus litmus(weak());
  for (uint64_t seed = 0; seed < 200; ++seed) {
    uint64_t value = 0;
    EXPECT_EQ(litmus.run(seed, {[&](Litmus& l) {
                                  l.write(42);
                                  l.store(l.x, 1, true);
                                },
                                [&](Litmus& l) {
                                  l.until(l.x, 1, true);
                                  value = l.read();
                                }}),
              "");
    EXPECT_EQ(value, 42u);
  }
}

// A rule that is broken is seen in every schedule in which the value arrives.
std::string broken(bool release, bool acquire, bool write_back) {
  Litmus litmus(weak());
  std::string failure;
  for (uint64_t seed = 0; seed < 50 && failure.empty(); ++seed)
    failure = litmus.run(seed, {[&](Litmus& l) {
                                  l.write(42);
                                  l.store(l.x, 1, release);
                                  if (write_back) {
                                    l.until(l.y, 1, false);
                                    l.write(43);
                                  }
                                },
                                [&](Litmus& l) {
                                  l.until(l.x, 1, acquire);
                                  l.read();
                                  l.store(l.y, 1, true);
                                }});
  return failure;
}

TEST(Rules, RelaxedForReleaseIsSeen) {
  EXPECT_NE(broken(false, true, false).find("without release"), std::string::npos);
}
TEST(Rules, RelaxedForAcquireIsSeen) {
  EXPECT_NE(broken(true, false, false).find("not ordered"), std::string::npos);
}
TEST(Rules, WritingWhatMayStillBeReadIsSeen) {
  EXPECT_NE(broken(true, true, true).find("may still be read"), std::string::npos);
}
TEST(Rules, TheRightProtocolPasses) { EXPECT_EQ(broken(true, true, false), ""); }

TEST(Rules, ReadingWhatNobodyWroteIsSeen) {
  Litmus litmus(weak());
  EXPECT_NE(litmus.run(1, {[](Litmus& l) { l.read(); }}).find("nobody wrote"), std::string::npos);
}

TEST(Rules, ASecondWriterIsSeen) {
  Litmus litmus(weak());
  auto writer = [](Litmus& l) { l.store(l.x, 1, true); };
  EXPECT_NE(litmus.run(1, {writer, writer}).find("second writer"), std::string::npos);
}

TEST(Rules, ASecondReaderIsSeen) {
  Litmus litmus(weak());
  auto reader = [](Litmus& l) { l.load_as_its_reader(l.x); };
  EXPECT_NE(litmus.run(1, {reader, reader}).find("second reader"), std::string::npos);
}

TEST(Rules, AReaderMayHandTheCounterOn) {
  Litmus litmus(weak());
  for (uint64_t seed = 0; seed < 100; ++seed) {
    auto first = [](Litmus& l) {
      l.load_as_its_reader(l.x);
      l.store(l.y, 1, true);
    };
    auto second = [](Litmus& l) {
      l.until(l.y, 1, true);
      l.load_as_its_reader(l.x);
    };
    EXPECT_EQ(litmus.run(seed, {first, second}), "");
  }
}

}  // namespace
}  // namespace starling::sim
