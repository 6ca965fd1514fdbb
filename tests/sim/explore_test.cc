// Goal: in small cases the core is right under all schedules, not only under those that seeds draw.
// Method: exhaustive exploration (machine/sim/explore.h) of two ranks with two collectives in opposite
// orders, with a synchronization between them, and of one lane used twice; one tile each, budgets and quit
// periods may end at any look. That it would see something is shown by planted bugs, and by comparing it with
// exploration without reduction and with random executions of the same cases. sanitize: no (sanitizers do not
// follow fibers)
#include "machine/sim/explore.h"

#include <gtest/gtest.h>

#include <set>

#include "sim/hunt.h"

namespace starling::sim {
namespace {

struct Small {
  const char* name;
  const char* algorithm;
  std::vector<Step> steps[2];  // of each rank
  uint32_t expiries = 0;  // of each block
  uint32_t private_slots = 2, pool_slots = 1;
};

constexpr Step kA{StepKind::kSubmit, 0}, kB{StepKind::kSubmit, 1}, kSync{StepKind::kSynchronize};

// Two collectives in opposite orders, and with a synchronization between them.
const Small kCrossed{"crossed", "one_shot", {{kA, kB}, {kB, kA}}, 1};
const Small kSynchronized{"synchronized", "one_shot", {{kA, kSync, kB}, {kB, kSync, kA}}};
// Two operations of one lane and one slot: the second one needs credit.
const Small kCredit{"credit", "one_shot", {{kA, kA}, {kA, kA}}, 0, 1, 0};

class Case {
 public:
  explicit Case(const Small& small, const Core& core = shipped_core()) : simulation_(core) {
    options_.slot_bytes = 64;
    options_.private_slots = small.private_slots;
    options_.pool_slots = small.pool_slots;
    options_.submission_capacity = options_.completion_capacity = 4;
    program_.rank_count = 2;
    for (const auto& steps : small.steps) program_.steps.push_back(steps);
    for (uint32_t k = 0; k < 2; ++k) {
      LaneSpec lane;
      lane.ranks = {0, 1};
      CallSpec& call = lane.calls.emplace_back();
      call.count = 4;
      call.plan = simulation_.plans().get(small.algorithm, {Collective::kAllReduce, 2, 0, 1, false});
      program_.lanes.push_back(lane);
    }
    limits_.expiries_per_fiber = small.expiries;
  }
  Explored all() { return explore(simulation_, program_, options_, limits_); }
  Explored without_reduction() {
    limits_.reduce = false;
    return all();
  }
  Explored by_chance(uint64_t walks) {
    limits_.walks = walks;
    return all();
  }

 private:
  Simulation simulation_;
  Options options_;
  Program program_;
  ExploreLimits limits_;
};

// Some bugs crash their process.
template <class Work>
bool fails(Work&& work) {
  const Outcome outcome = in_child(work);
  return outcome.signal != 0 || !outcome.text.empty();
}

class AllSchedules : public testing::TestWithParam<Small> {};

TEST_P(AllSchedules, TheShippedCoreIsRight) {
  const Explored explored = Case(GetParam()).all();
  std::printf("%s, %s, %u expiries a block: %llu states, %llu executions, %llu transitions\n",
              GetParam().name, GetParam().algorithm, GetParam().expiries,
              static_cast<unsigned long long>(explored.states),
              static_cast<unsigned long long>(explored.executions),
              static_cast<unsigned long long>(explored.transitions));
  EXPECT_TRUE(explored.exhausted);
  EXPECT_EQ(explored.failure, "");
  EXPECT_GT(explored.completed, 0u);
}

INSTANTIATE_TEST_SUITE_P(Cases, AllSchedules,
                         testing::Values(Small{"alone", "one_shot", {{kA}, {kA}}, 1}, kCrossed,
                                         Small{"crossed", "ring", {{kA, kB}, {kB, kA}}, 1}, kSynchronized,
                                         kCredit));

TEST(AllSchedules, TheCountOfStatesIsTheSameEachTime) {
  Case same(kSynchronized);
  const Explored first = same.all(), again = same.all(), other = Case(kSynchronized).all();
  EXPECT_EQ(first.states, again.states);
  EXPECT_EQ(first.states, other.states);
  EXPECT_EQ(first.transitions, other.transitions);
}

// An execution ends with the last operation, wherever the other fibers stand then. Local steps, which the
// reduction takes at once, make no more than different standing places: it has fewer ends, not other ones.
TEST(AllSchedules, ReductionAddsNoEnd) {
  Small small = kCrossed;
  small.expiries = 0;
  const Explored reduced = Case(small).all(), full = Case(small).without_reduction();
  EXPECT_LT(reduced.states, full.states);
  EXPECT_EQ(reduced.failure, full.failure);
  EXPECT_GT(reduced.completed, 0u);
  EXPECT_LE(reduced.completed, full.completed);
}

// What chance finds in a small case, all its schedules must find; and some that chance hardly finds. (The
// other bugs do no harm in cases as small as these: one block, one thread, no fault, queues that never fill.)
TEST(AllSchedules, PlantedBugsAreSeen) {
  const std::set<std::string> expected = {
      "blocks_quit_singly",  "credit_before_reading", "granted_after_no_loads", "granted_read_relaxed",
      "idle_taken_for_exit", "no_credit_wait",        "posted_before_counting", "posted_read_relaxed",
      "posted_relaxed",      "receive_one_early",     "stuck_counts_as_done",   "submission_entry_relaxed",
      "unbounded_wait",      "visits_the_front_only"};
  std::set<std::string> seen;
  for (const Mutant& mutant : mutants())
    for (const Small& small : {kCrossed, kSynchronized, kCredit}) {
      const bool by_chance = fails([&] { return Case(small, plant(mutant)).by_chance(50).failure; });
      const bool hard = small.name == std::string("credit") && mutant.name == std::string("no_credit_wait");
      if (!by_chance && !hard) continue;
      EXPECT_TRUE(fails([&] { return Case(small, plant(mutant)).all().failure; }))
          << mutant.name << " in " << small.name;
      seen.insert(mutant.name);
    }
  for (const std::string& name : expected) EXPECT_TRUE(seen.contains(name)) << name;
}

}  // namespace
}  // namespace starling::sim
