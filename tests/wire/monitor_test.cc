// Goal: what watchers of another process read keeps its places. Method: words of their own in every field,
// read back as bytes where docs/WIRE.md says they are.
// sanitize: address (one thread)
#include "wire/monitor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

namespace starling {
namespace {

template <class T>
T at(const void* base, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

TEST(MonitorSharedBytes, AreTheseForThisVersion) {
  MonitorShared shared{kMonitorVersion, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, "job", "cpu"};
  EXPECT_EQ(at<uint64_t>(&shared, 0), 2u);
  for (uint64_t word = 1; word < 9; ++word) EXPECT_EQ(at<uint64_t>(&shared, 8 * word), word + 1);
  EXPECT_EQ(at<uint32_t>(&shared, 72), 10u);
  EXPECT_EQ(at<uint32_t>(&shared, 76), 11u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(&shared) + 80), "job");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(&shared) + 160), "cpu");
}

TEST(PathRingBytes, AreTheseForThisVersion) {
  auto ring = std::make_unique<PathRing>();
  ring->next = 1;
  ring->peer = 2;
  ring->path = 3;
  ring->link = LinkKind::kVerbs;
  std::strcpy(ring->name, "rail0");
  ring->written = 4;
  ring->waiting_since_ns = 5;
  ring->left_bytes = 6;
  ring->bytes = 7;
  ring->closed = 8;
  ring->records[1] = {9, 10, 11, 12, LinkKind::kVerbs, 13};
  EXPECT_EQ(at<uint64_t>(ring.get(), 0), 1u);
  EXPECT_EQ(at<uint32_t>(ring.get(), 8), 2u);
  EXPECT_EQ(at<uint32_t>(ring.get(), 12), 3u);
  EXPECT_EQ(at<uint32_t>(ring.get(), 16), 2u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(ring.get()) + 20), "rail0");
  for (uint64_t word = 0; word < 5; ++word) EXPECT_EQ(at<uint64_t>(ring.get(), 128 + 8 * word), word + 4);
  for (uint32_t word = 0; word < 2; ++word)
    EXPECT_EQ(at<uint64_t>(ring.get(), 192 + 32 + 8 * word), word + 9);
  const uint32_t halves[] = {11, 12, 2, 13};
  for (uint32_t half = 0; half < 4; ++half)
    EXPECT_EQ(at<uint32_t>(ring.get(), 192 + 32 + 16 + 4 * half), halves[half]);
}

}  // namespace
}  // namespace starling
