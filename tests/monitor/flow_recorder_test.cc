// Goal: what a flow posts and hears of becomes records of the right path, also when transfers overtake each
// other on different paths and when paths fail. Method: reports by hand, records read back.
// sanitize: address (one thread)
#include "monitor/flow_recorder.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace starling::monitor {
namespace {

class FlowRecorderTest : public testing::Test {
 protected:
  FlowRecorderTest() : recorder(std::vector<PathRing*>{&rings[0], &rings[1]}) {}

  struct Seen {
    uint64_t posted, completed, bytes, left;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> records_of(int path) {
    std::vector<Seen> all;
    PathReader reader(rings[path]);
    for (TransferRecord r; reader.next(r);)
      all.push_back({r.posted_ns, r.completed_ns, r.bytes, r.left_bytes});
    return all;
  }

  std::unique_ptr<PathRing[]> rings{new PathRing[2]()};
  FlowRecorder recorder;
};

TEST_F(FlowRecorderTest, AReportCompletesAllThatItSaysOnEachPath) {
  recorder.posted(0, 0, 10, 1);
  recorder.posted(1, 1, 20, 2);
  recorder.posted(0, 2, 30, 3);
  EXPECT_EQ(rings[0].left_bytes, 40u);
  EXPECT_EQ(rings[0].waiting_since_ns, 1u);
  recorder.landed(2, 0, 9);
  EXPECT_EQ(records_of(0), (std::vector<Seen>{{1, 9, 10, 30}}));
  EXPECT_EQ(records_of(1), (std::vector<Seen>{{2, 9, 20, 0}}));
  EXPECT_EQ(rings[0].waiting_since_ns, 3u);
  EXPECT_EQ(rings[1].waiting_since_ns, 0u);
}

TEST_F(FlowRecorderTest, EachTransferIsCompletedWhenItCame) {
  recorder.posted(0, 0, 10, 1);
  recorder.posted(1, 1, 20, 2);
  recorder.posted(0, 2, 30, 3);
  recorder.landed(3, 0, [](uint64_t sequence) { return 10 + 5 * sequence; });
  EXPECT_EQ(records_of(0), (std::vector<Seen>{{1, 10, 10, 30}, {3, 20, 30, 0}}));
  EXPECT_EQ(records_of(1), (std::vector<Seen>{{2, 15, 20, 0}}));
}

TEST_F(FlowRecorderTest, WhatLandedBeyondAGapIsCompletedOnItsPathAlone) {
  recorder.posted(0, 5, 10, 1);
  recorder.posted(1, 6, 20, 2);
  recorder.posted(1, 7, 30, 3);
  recorder.landed(5, 0b110, 9);
  EXPECT_TRUE(records_of(0).empty()) << "the slow path has completed nothing";
  EXPECT_EQ(records_of(1).size(), 2u);
  recorder.landed(8, 0, 20);
  EXPECT_EQ(records_of(0), (std::vector<Seen>{{1, 20, 10, 0}}));
}

TEST_F(FlowRecorderTest, WhatAClosedPathLostIsRecordedWhereItIsPostedAgain) {
  recorder.posted(0, 0, 10, 1);
  recorder.posted(0, 1, 10, 2);
  recorder.posted(1, 2, 10, 3);
  recorder.closed(0);
  recorder.landed(0, 0b100, 5);  // the report that ends the epoch
  recorder.posted(1, 0, 10, 6);
  recorder.posted(1, 1, 10, 7);
  recorder.landed(3, 0, 8);
  EXPECT_TRUE(records_of(0).empty());
  EXPECT_EQ(rings[0].closed, 1u);
  EXPECT_EQ(rings[0].left_bytes, 0u);
  EXPECT_EQ(records_of(1), (std::vector<Seen>{{3, 5, 10, 0}, {6, 8, 10, 10}, {7, 8, 10, 0}}));
  EXPECT_EQ(rings[1].bytes, 30u);
}

TEST_F(FlowRecorderTest, OldReportsAreHarmless) {
  recorder.posted(0, 0, 10, 1);
  recorder.landed(1, 0, 2);
  recorder.posted(0, 1, 10, 3);
  recorder.landed(1, 0, 4);
  recorder.landed(0, 0, 5);
  EXPECT_EQ(records_of(0).size(), 1u);
}

TEST_F(FlowRecorderTest, CompletionsOfQueuePairsAreRecordedAndReportsAreNot) {
  recorder.opened(0, LinkKind::kVerbs);
  recorder.opened(1, LinkKind::kTcp);
  EXPECT_EQ(rings[0].link, LinkKind::kVerbs);
  EXPECT_EQ(rings[1].link, LinkKind::kTcp);
  EXPECT_TRUE(recorder.completes(0));
  EXPECT_FALSE(recorder.completes(1));
  recorder.posted(0, 0, 10, 1);
  recorder.posted(1, 1, 20, 2);
  recorder.posted(0, 2, 30, 3);
  recorder.landed(3, 0, 9);
  EXPECT_TRUE(records_of(0).empty()) << "their completions have not come";
  EXPECT_EQ(records_of(1), (std::vector<Seen>{{2, 9, 20, 0}}));
  recorder.completed(0, 0, 12);
  EXPECT_EQ(records_of(0), (std::vector<Seen>{{1, 12, 10, 30}}));
  recorder.posted(1, 3, 20, 12);
  recorder.completed(1, 3, 13);
  EXPECT_EQ(records_of(1).size(), 1u) << "what a socket has taken has not landed";
}

// Two queue pairs: what went by the second one is done first.
TEST_F(FlowRecorderTest, WhatOvertookOthersIsRecordedBehindThem) {
  recorder.opened(0, LinkKind::kVerbs);
  for (uint64_t k = 0; k < 4; ++k) recorder.posted(0, k, 10, 1 + k);
  recorder.completed(0, 1, 20);
  recorder.completed(0, 3, 30);
  EXPECT_TRUE(records_of(0).empty());
  EXPECT_EQ(rings[0].waiting_since_ns, 1u) << "the oldest is under way";
  recorder.completed(0, 0, 40);
  EXPECT_EQ(records_of(0), (std::vector<Seen>{{1, 40, 10, 30}, {2, 40, 10, 20}}));
  EXPECT_EQ(rings[0].waiting_since_ns, 3u);
  recorder.completed(0, 2, 50);
  EXPECT_EQ(records_of(0).size(), 4u);
  EXPECT_EQ(rings[0].left_bytes, 0u);
}

TEST_F(FlowRecorderTest, CompletionsThatLagBehindAreForgottenWhereThereIsNoRoom) {
  recorder.opened(0, LinkKind::kVerbs);
  for (uint64_t k = 0; k < kMostUnderWay + 10; ++k) recorder.posted(0, k, 1, 1 + k);
  for (uint64_t k = 0; k < kMostUnderWay + 10; ++k) recorder.completed(0, k, 1000 + k);
  EXPECT_EQ(records_of(0).size(), kMostUnderWay);
  EXPECT_EQ(rings[0].left_bytes, 0u);
}

TEST_F(FlowRecorderTest, APathThatOpensAgainMayBeASocket) {
  recorder.opened(0, LinkKind::kVerbs);
  recorder.posted(0, 0, 10, 1);
  recorder.closed(0);
  recorder.opened(0, LinkKind::kTcp);
  EXPECT_EQ(rings[0].link, LinkKind::kTcp);
  recorder.posted(0, 0, 10, 3);
  recorder.landed(1, 0, 9);
  EXPECT_EQ(records_of(0), (std::vector<Seen>{{3, 9, 10, 0}}));
}

TEST_F(FlowRecorderTest, SaysWhatWentStraight) {
  recorder.went(0, 100, 0);
  recorder.went(0, 20, 3);
  recorder.went(1, 0, 7);
  EXPECT_EQ(rings[0].straight_bytes, 120u);
  EXPECT_EQ(rings[0].copied_bytes, 3u);
  EXPECT_EQ(rings[1].straight_bytes, 0u);
  EXPECT_EQ(rings[1].copied_bytes, 7u);
}

TEST(FlowRecorder, WithoutRingsNothingIsRecorded) {
  FlowRecorder recorder;
  EXPECT_FALSE(recorder.on());
  recorder.posted(0, 0, 1, 1);
  recorder.landed(1, 0, 1);
  recorder.opened(0, LinkKind::kVerbs);
  EXPECT_FALSE(recorder.completes(0));
  recorder.completed(0, 0, 1);
  recorder.closed(0);
}

}  // namespace
}  // namespace starling::monitor
