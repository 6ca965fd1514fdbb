// Goal: no more streams have watches at a time than the limit says, and places come free again.
// Method: entries of operations of five streams, put in and completed by hand.
// sanitize: address (one thread)
#include "device/watched.h"

#include <gtest/gtest.h>

namespace starling::device {
namespace {

Stream stream(uintptr_t number) { return reinterpret_cast<Stream>(number); }

TEST(Watched, AStreamHasOnePlaceForAllItsOperations) {
  WatchedStreams watched(1);
  StreamEntry first{}, second{};
  watched.add(first, stream(0));  // the default stream has no other handle
  watched.add(second, stream(0));
  EXPECT_FALSE(watched.has_place(stream(1)));
  watched.completed(first);
  EXPECT_TRUE(watched.has_place(stream(0)));
  EXPECT_FALSE(watched.has_place(stream(1)));
  watched.completed(second);
  EXPECT_FALSE(watched.any());
  EXPECT_TRUE(watched.has_place(stream(1)));
}

TEST(Watched, OneOperationOfSeveralStreams) {
  WatchedStreams watched(2);
  StreamEntry entry{}, other{};
  watched.add(entry, stream(1));
  watched.add(entry, stream(2));
  watched.add(entry, stream(2));  // it waits twice, and counts once
  EXPECT_FALSE(watched.has_place(stream(3)));
  watched.add(other, stream(2));
  watched.completed(entry);
  EXPECT_TRUE(watched.any());
  EXPECT_TRUE(watched.has_place(stream(3)));
  watched.completed(other);
  EXPECT_FALSE(watched.any());
}

TEST(Watched, NoMoreThanThereAreBits) {
  WatchedStreams watched(100);
  StreamEntry entries[kMostWatched] = {};
  for (uint32_t k = 0; k < kMostWatched; ++k) watched.add(entries[k], stream(k + 1));
  EXPECT_FALSE(watched.has_place(stream(kMostWatched + 1)));
  for (const StreamEntry& entry : entries) watched.completed(entry);
  EXPECT_FALSE(watched.any());
  EXPECT_FALSE(WatchedStreams(0).has_place(stream(1)));
}

}  // namespace
}  // namespace starling::device
