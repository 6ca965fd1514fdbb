// Goal: memory that is mapped piece by piece has one number as long as it is the same memory, another one
// when a piece was replaced at its address, views that share pieces have numbers beside each other, nothing
// stays held that is not published, and what has a number can be exported. Method: a driver that exists in
// this file, whose handles are given out again as soon as nobody holds them, as a driver's may be; and random
// programs that map and unmap.
// sanitize: address (one thread)
#include "machine/registered/views.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "base/error.h"
#include "machine/registered/peers.h"

namespace starling {
namespace {

constexpr uint64_t kPiece = 0x1000;

// A driver's mappings. The lowest handle that nobody holds is the next.
class Driver final : public Mappings {
 public:
  void map(uint64_t base, uint64_t bytes = kPiece) {
    uint64_t handle = 1;
    while (counts_.count(handle) != 0) ++handle;
    counts_[handle] = 1;
    memory_[handle] = ++memories_;
    ASSERT_TRUE(mapped_.emplace(base, Piece{base, bytes, handle}).second);
  }
  void unmap(uint64_t base) {
    const Piece piece = mapped_.at(base);
    mapped_.erase(base);
    let_go(piece.handle);
  }
  std::optional<Piece> hold(uint64_t address) override {
    auto at = mapped_.upper_bound(address);
    if (at == mapped_.begin()) return std::nullopt;
    --at;
    if (address >= at->second.base + at->second.bytes) return std::nullopt;
    ++counts_[at->second.handle];
    return at->second;
  }
  void let_go(uint64_t handle) noexcept override {
    if (--counts_.at(handle) == 0) counts_.erase(handle);
  }
  // What lies behind a handle that somebody holds.
  uint64_t memory_of(uint64_t handle) const { return counts_.count(handle) ? memory_.at(handle) : 0; }
  uint64_t memory_at(uint64_t address) const {
    for (const auto& [base, piece] : mapped_)
      if (address >= base && address < base + piece.bytes) return memory_.at(piece.handle);
    return 0;
  }
  // Handles that somebody holds beside the mappings themselves.
  size_t held() const {
    size_t more = 0;
    for (const auto& [handle, count] : counts_) {
      uint64_t mappings = 0;
      for (const auto& [base, piece] : mapped_) mappings += piece.handle == handle;
      more += count > mappings;
    }
    return more;
  }
  const std::map<uint64_t, Piece>& mapped() const { return mapped_; }

 private:
  std::map<uint64_t, Piece> mapped_;
  std::map<uint64_t, uint64_t> counts_;
  std::map<uint64_t, uint64_t> memory_;
  uint64_t memories_ = 0;
};

// As the CUDA machine's: views alone.
class OfViews final : public Allocations {
 public:
  explicit OfViews(Views& views) : views_(views) {}
  std::optional<Allocation> find(uint64_t address, uint64_t bytes) override {
    std::optional<Allocation> view = views_.find(address, bytes);
    if (view) view->kind = kViewHandle;
    return view;
  }
  void export_to(const Allocation& allocation, uint8_t (&handle)[kRegistrationHandleBytes]) override {
    std::memcpy(handle, &allocation.identity, sizeof allocation.identity);
  }
  void loosen(const Allocation& view) override { views_.loosen(view); }

 private:
  Views& views_;
};

struct MappedPieces : testing::Test {
  uint16_t number_of(uint64_t address, uint64_t bytes, OwnRegistrations* of = nullptr) {
    return (of == nullptr ? own : *of).number_of(reinterpret_cast<const void*>(address), Need::kMay, bytes);
  }
  // What a reader would map for the number, piece by piece; nothing: it is told that it is gone.
  std::vector<uint64_t> memories_of(uint16_t number) {
    const auto pieces = views.pieces_of(table->entries[number].identity);
    std::vector<uint64_t> found;
    if (pieces != nullptr)
      for (const Piece& piece : pieces->all()) found.push_back(driver.memory_of(piece.handle));
    return found;
  }

  Driver driver;
  Views views{driver};
  OfViews allocations{views};
  std::unique_ptr<RegistrationTable> table = std::make_unique<RegistrationTable>();
  OwnRegistrations own{*table, allocations};
};

TEST_F(MappedPieces, ABufferIsInThePiecesThatItTouches) {
  for (uint64_t k = 1; k <= 4; ++k) driver.map(k * kPiece);
  const uint16_t one = number_of(0x1800, 0x800), two = number_of(0x1800, 0x801);
  EXPECT_EQ(table->entries[one].base, 0x1000u);
  EXPECT_EQ(table->entries[one].bytes, 0x1000u);
  EXPECT_EQ(table->entries[two].bytes, 0x2000u);
  EXPECT_EQ(table->entries[two].kind, kViewHandle);
  EXPECT_NE(one, two);
  EXPECT_EQ(number_of(0x1000, 0x1000), one);
  EXPECT_EQ(number_of(0x1fff, 2), two);
  EXPECT_EQ(table->entries[one].state, kPublished) << "they overlap, and both are there";
  EXPECT_EQ(memories_of(two), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(number_of(0x4800, 0x801), 0) << "beyond the last piece";
  EXPECT_EQ(number_of(0x9000, 1), 0);
  EXPECT_EQ(driver.held(), 2u);
}

// PyTorch's segments grow: what was registered stays.
TEST_F(MappedPieces, AGrownSegmentKeepsItsNumbers) {
  driver.map(0x1000);
  const uint16_t before = number_of(0x1000, 0x1000);
  driver.map(0x2000);
  EXPECT_EQ(number_of(0x1000, 0x1000), before);
  const uint16_t both = number_of(0x1000, 0x2000);
  EXPECT_NE(both, before);
  EXPECT_EQ(number_of(0x1000, 0x1000), before);
}

TEST_F(MappedPieces, AReplacedPieceIsAnotherRegistration) {
  for (uint64_t k = 1; k <= 3; ++k) driver.map(k * kPiece);
  const uint16_t whole = number_of(0x1000, 0x3000), first = number_of(0x1000, 1), last = number_of(0x3000, 1);
  driver.unmap(0x3000);
  driver.map(0x3000);
  const uint16_t again = number_of(0x1000, 0x3000);
  EXPECT_NE(again, whole);
  EXPECT_EQ(table->entries[whole].state, kRetired);
  EXPECT_EQ(table->entries[last].state, kRetired);
  EXPECT_EQ(table->entries[first].state, kPublished);
  EXPECT_TRUE(memories_of(whole).empty()) << "who asks late is told that it is gone";
  EXPECT_EQ(memories_of(again), (std::vector<uint64_t>{1, 2, 4}));
  EXPECT_EQ(driver.held(), 3u);
}

// The handle of what was published is held: else the new piece would have it, and look the same.
TEST_F(MappedPieces, WhatIsPublishedIsHeldUntilItIsRetired) {
  driver.map(0x1000);
  const uint16_t earlier = number_of(0x1000, 1);
  driver.unmap(0x1000);
  EXPECT_EQ(driver.held(), 1u);
  driver.map(0x1000);
  const uint16_t later = number_of(0x1000, 1);
  EXPECT_NE(later, earlier);
  EXPECT_EQ(memories_of(later), (std::vector<uint64_t>{2}));
  EXPECT_EQ(driver.held(), 1u) << "the first one is free now";
}

TEST_F(MappedPieces, WhatIsRefusedIsNotHeld) {
  OwnRegistrations bounded{*table, allocations, kPiece};
  driver.map(0x1000);
  driver.map(0x2000);
  EXPECT_EQ(number_of(0x1000, 0x2000, &bounded), 0);
  EXPECT_EQ(number_of(0x1000, 0x2000, &bounded), 0);
  EXPECT_EQ(driver.held(), 0u);
  const uint16_t one = number_of(0x1000, 0x1000, &bounded);
  EXPECT_NE(one, 0);
  EXPECT_EQ(number_of(0x1000, 0x2000, &bounded), 0);
  EXPECT_EQ(memories_of(one), (std::vector<uint64_t>{1}));
  driver.unmap(0x1000);
  driver.map(0x1000);
  // There is room again once the old one is found gone.
  EXPECT_NE(number_of(0x1000, 0x1000, &bounded), 0);
  EXPECT_EQ(driver.held(), 1u);
}

// Random programs: whatever number a buffer gets, it leads to the memory that is there now, piece by piece.
TEST_F(MappedPieces, ANumberLeadsToWhatIsThereNow) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Driver changing;
    {
      Views seen(changing);
      OfViews asked(seen);
      auto entries = std::make_unique<RegistrationTable>();
      OwnRegistrations registered{*entries, asked, (4 + random() % 12) * kPiece};
      for (int step = 0; step < 150; ++step) {
        const uint64_t base = (1 + random() % 8) * kPiece;
        if (changing.mapped().count(base) == 0)
          changing.map(base);
        else if (random() % 3 == 0)
          changing.unmap(base);
        const uint64_t address = (1 + random() % 8) * kPiece + random() % kPiece;
        const uint64_t bytes = 1 + random() % (3 * kPiece);
        const uint16_t number =
            registered.number_of(reinterpret_cast<const void*>(address), Need::kMay, bytes);
        if (number == 0) continue;
        const Registration& entry = entries->entries[number];
        ASSERT_EQ(entry.state, kPublished);
        ASSERT_TRUE(entry.base <= address && address + bytes <= entry.base + entry.bytes);
        const auto pieces = seen.pieces_of(entry.identity);
        ASSERT_NE(pieces, nullptr);
        uint64_t seen_bytes = 0;
        for (const Piece& piece : pieces->all()) {
          ASSERT_EQ(changing.memory_of(piece.handle), changing.memory_at(piece.base));
          seen_bytes += piece.bytes;
        }
        ASSERT_EQ(seen_bytes, entry.bytes);
      }
    }
    EXPECT_EQ(changing.held(), 0u);
  }
}

TEST_F(MappedPieces, WhatIsLooseIsBounded) {
  for (uint64_t k = 1; k <= Views::kMostLoose; ++k) {
    driver.map(0x1000);
    for (uint64_t other = 2; other < 4; ++other) driver.map(other * kPiece + k * 0x10000);
    const auto view = views.find(0x1000, 1);
    ASSERT_TRUE(view);
    views.loosen(*view);
    const auto far = views.find(2 * kPiece + k * 0x10000, kPiece + 1);
    ASSERT_TRUE(far);
    views.loosen(*far);
    driver.unmap(0x1000);
  }
  EXPECT_EQ(driver.held(), 0u);
}

}  // namespace
}  // namespace starling
