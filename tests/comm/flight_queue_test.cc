// Goal: flights stay where they were put, come out in order, and leave their places to later ones. Method: a
// queue beside a std::deque of numbers, under random additions and removals of any of them.
// sanitize: address (one thread)
#include "comm/flight_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

namespace starling {
namespace {

Flight numbered(uint64_t sequence) {
  Flight flight;
  flight.sequence = sequence;
  return flight;
}

TEST(FlightQueue, IsADequeWhoseElementsStay) {
  constexpr int kSteps = 20'000;
  std::mt19937 random(1);
  FlightQueue queue;
  std::deque<std::pair<uint64_t, const Flight*>> expected;
  uint64_t next = 0;
  for (int step = 0; step < kSteps; ++step) {
    // Waves: up to some hundred, and down to none.
    const bool rising = step / 500 % 2 == 0;
    if (expected.empty() || random() % 3 < (rising ? 2 : 1)) {
      const Flight& added = queue.push_back(numbered(next));
      expected.push_back({next++, &added});
    } else {
      const size_t k = random() % 4 != 0 ? 0 : random() % expected.size();
      EXPECT_EQ(queue.take(k).sequence, expected[k].first);
      expected.erase(expected.begin() + ptrdiff_t(k));
    }
    ASSERT_EQ(queue.size(), expected.size());
    ASSERT_EQ(queue.empty(), expected.empty());
    size_t k = 0;
    for (const Flight& flight : queue) {
      ASSERT_EQ(flight.sequence, expected[k].first);
      ASSERT_EQ(&flight, expected[k].second);
      ASSERT_EQ(&queue[k], &flight);
      ++k;
    }
    ASSERT_EQ(k, expected.size());
    if (expected.empty()) continue;
    ASSERT_EQ(queue.front().sequence, expected.front().first);
    ASSERT_EQ(queue.back().sequence, expected.back().first);
  }
}

TEST(FlightQueue, UsesAPlaceAgain) {
  FlightQueue queue;
  std::set<const Flight*> places;
  for (uint64_t k = 0; k < 1000; ++k) {
    places.insert(&queue.push_back(numbered(k)));
    places.insert(&queue.push_back(numbered(k)));
    queue.take(0);
    queue.take(0);
  }
  EXPECT_EQ(places.size(), 2u);
}

// What ended last is in the cache of the thread that ended it.
TEST(FlightQueue, UsesThePlaceThatWasLeftFirst) {
  FlightQueue queue;
  for (uint64_t k = 0; k < 3; ++k) queue.push_back(numbered(k));
  const Flight* const first = &queue.take(0);
  const Flight* const second = &queue.take(0);
  EXPECT_EQ(&queue.push_back(numbered(3)), first);
  EXPECT_EQ(&queue.push_back(numbered(4)), second);
}

// The caller's objects end with the operation, not when its place is used again.
TEST(FlightQueue, KeepsNothingOfWhatWasTaken) {
  FlightQueue queue;
  auto request = std::make_shared<Request>(nullptr, nullptr);
  Flight flight = numbered(0);
  flight.request = request;
  queue.push_back(std::move(flight));
  queue.take(0).let_go();
  EXPECT_EQ(request.use_count(), 1);
}

}  // namespace
}  // namespace starling
