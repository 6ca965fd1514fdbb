// Goal: an allocation has one number as long as it lives, another one at its address has another number, a
// number is used again only when nobody has the old allocation open, and blocks are told where they read
// what. Method: a driver that exists in this file, one owner and readers; then all of them at once, with few
// numbers left. Meant for the sanitizers, too.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "base/error.h"
#include "device/opened.h"
#include "machine/cpu/machine.h"
#include "machine/registered/own.h"
#include "machine/registered/peers.h"

namespace starling {
namespace {

constexpr uint64_t kElsewhere = uint64_t(1) << 40;  // how far from the owner's addresses a reader's are

// Memory of one owner's device, and who has what open.
class Driver final : public Allocations, public Handles {
 public:
  void allocate(uint64_t base, uint64_t bytes, bool shareable = true) {
    const std::lock_guard lock(mutex_);
    ASSERT_TRUE(live_.emplace(base, Piece{bytes, ++identities_, shareable}).second);
  }
  void free(uint64_t base) {
    const std::lock_guard lock(mutex_);
    ASSERT_EQ(live_.erase(base), 1u);
  }
  void refuse_handles(bool refuse) { refuses_ = refuse; }
  int open_now() {
    const std::lock_guard lock(mutex_);
    return int(open_.size());
  }

  std::optional<Allocation> find(uint64_t address, uint64_t) override {
    const std::lock_guard lock(mutex_);
    auto at = live_.upper_bound(address);
    if (at == live_.begin()) return std::nullopt;
    --at;
    if (address >= at->first + at->second.bytes || !at->second.shareable) return std::nullopt;
    return Allocation{at->first, at->second.bytes, at->second.identity};
  }
  void export_to(const Allocation& allocation, uint8_t (&handle)[kRegistrationHandleBytes]) override {
    if (refuses_) throw Error(Code::system, "no handle today");
    std::memcpy(handle, &allocation, sizeof allocation);
  }
  uint64_t open(const Registration& registration) override {
    Allocation allocation;
    std::memcpy(&allocation, registration.handle, sizeof allocation);
    const std::lock_guard lock(mutex_);
    ++tried_;
    const auto at = live_.find(allocation.base);
    if (at == live_.end() || at->second.identity != allocation.identity)
      throw Error(Code::system, "the handle's allocation is gone");
    const uint64_t base = allocation.base + kElsewhere * ++opened_;
    open_.emplace(base, allocation.identity);
    return base;
  }
  void close(uint64_t base) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(open_.erase(base), 1u) << "closed twice, or never opened";
  }
  uint64_t tried() {
    const std::lock_guard lock(mutex_);
    return tried_;
  }
  // Of what is open there.
  uint64_t identity_at(uint64_t base) {
    const std::lock_guard lock(mutex_);
    const auto at = open_.find(base);
    return at == open_.end() ? 0 : at->second;
  }

 private:
  struct Piece {
    uint64_t bytes;
    uint64_t identity;
    bool shareable;
  };
  std::mutex mutex_;
  std::map<uint64_t, Piece> live_;
  std::map<uint64_t, uint64_t> open_;
  uint64_t identities_ = 0;
  uint64_t opened_ = 0;
  uint64_t tried_ = 0;
  std::atomic<bool> refuses_{false};
};

// A process that reads.
struct Reader {
  Reader(RegistrationTable& table, Driver& driver)
      : told(kMaxRegistrations),
        registrations(std::make_unique<PeerRegistrations>(table, told.data(), driver)) {}
  bool made(uint16_t number) const { return told[number].made == 1; }
  uint64_t address_of(uint16_t number, uint64_t theirs) const { return theirs + told[number].offset; }

  std::vector<OpenedRegistration> told;
  std::unique_ptr<PeerRegistrations> registrations;
};

struct Registered : testing::Test {
  uint16_t number_of(uint64_t address) { return own.number_of(reinterpret_cast<const void*>(address)); }
  // Allocations of one page, far from those of the tests, until so many numbers are left.
  void fill(uint32_t left) {
    for (uint32_t n = 1 + left; n < kMaxRegistrations - OwnRegistrations::kKeptForMust; ++n) {
      driver.allocate(kFiller + n * 4096, 4096);
      number_of(kFiller + n * 4096);
    }
  }

  static constexpr uint64_t kFiller = uint64_t(1) << 32;
  std::unique_ptr<RegistrationTable> table = std::make_unique<RegistrationTable>();
  Driver driver;
  OwnRegistrations own{*table, driver};
};

TEST_F(Registered, AnAllocationHasOneNumber) {
  driver.allocate(0x1000, 0x1000);
  driver.allocate(0x2000, 0x1000);
  const uint16_t first = number_of(0x1000), second = number_of(0x2fff);
  EXPECT_NE(first, 0);
  EXPECT_NE(second, 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(number_of(0x1fff), first);
  EXPECT_EQ(number_of(0x2000), second);
  EXPECT_EQ(table->published, 2u);
}

TEST_F(Registered, ReadersAreToldWhereItIs) {
  driver.allocate(0x1000, 0x1000);
  const uint16_t number = number_of(0x1800);
  Reader reader(*table, driver);
  EXPECT_TRUE(reader.registrations->has_news());
  EXPECT_FALSE(reader.made(number));
  reader.registrations->open_all();
  EXPECT_FALSE(reader.registrations->has_news());
  ASSERT_TRUE(reader.made(number));
  EXPECT_EQ(driver.identity_at(reader.address_of(number, 0x1000)), table->entries[number].identity);
  reader.registrations->open_all();
  EXPECT_EQ(driver.open_now(), 1);
  reader.registrations.reset();
  EXPECT_EQ(driver.open_now(), 0);
  EXPECT_EQ(table->entries[number].openers, 0u);
}

TEST_F(Registered, AReusedAddressIsAnotherRegistration) {
  driver.allocate(0x1000, 0x1000);
  const uint16_t earlier = number_of(0x1000);
  Reader reader(*table, driver);
  reader.registrations->open_all();
  driver.free(0x1000);
  driver.allocate(0x1000, 0x1000);
  const uint16_t later = number_of(0x1000);
  EXPECT_NE(later, earlier);
  EXPECT_EQ(table->entries[earlier].state, kRetired);
  reader.registrations->open_all();
  EXPECT_NE(driver.identity_at(reader.address_of(later, 0x1000)),
            driver.identity_at(reader.address_of(earlier, 0x1000)));
  Reader newcomer(*table, driver);
  const uint64_t tried = driver.tried();
  newcomer.registrations->open_all();
  EXPECT_EQ(driver.tried(), tried + 1) << "what is retired is not even tried";
  EXPECT_FALSE(newcomer.made(earlier));
  EXPECT_TRUE(newcomer.made(later));
}

TEST_F(Registered, WhatLiesUnderANewAllocationIsRetired) {
  for (uint64_t base : {0x1000, 0x2000, 0x3000, 0x4000}) driver.allocate(base, 0x1000);
  uint16_t numbers[4];
  for (uint64_t k = 0; k < 4; ++k) numbers[k] = number_of(0x1000 * (k + 1));
  for (uint64_t base : {0x1000, 0x2000, 0x3000}) driver.free(base);
  driver.allocate(0x1800, 0x1000);  // over the end of the first and the beginning of the second
  number_of(0x1800);
  EXPECT_EQ(table->entries[numbers[0]].state, kRetired);
  EXPECT_EQ(table->entries[numbers[1]].state, kRetired);
  EXPECT_EQ(table->entries[numbers[2]].state, kPublished);  // nobody has asked
  EXPECT_EQ(table->entries[numbers[3]].state, kPublished);
}

TEST_F(Registered, WhatCannotBeSharedHasNoNumber) {
  driver.allocate(0x1000, 0x1000, false);
  EXPECT_EQ(number_of(0x1000), 0);
  EXPECT_EQ(number_of(0x9000), 0);  // there is no allocation
  EXPECT_EQ(table->published, 0u);
}

TEST_F(Registered, AFailedExportLosesNoNumber) {
  fill(1);
  driver.allocate(0x1000, 0x1000);
  driver.refuse_handles(true);
  EXPECT_EQ(number_of(0x1000), 0);
  driver.refuse_handles(false);
  driver.allocate(0x2000, 0x1000);
  EXPECT_EQ(number_of(0x2000), kMaxRegistrations - OwnRegistrations::kKeptForMust - 1);
}

// Where buffers bounce has to have a number, however many of the callers' there are.
TEST_F(Registered, NumbersAreKeptForWhatMustBeOpened) {
  fill(0);
  driver.allocate(0x1000, 0x1000);
  EXPECT_EQ(number_of(0x1000), 0);
  driver.allocate(0x2000, 0x1000);
  EXPECT_EQ(own.number_of(reinterpret_cast<const void*>(0x2000), Need::kMust),
            kMaxRegistrations - OwnRegistrations::kKeptForMust);
}

// Freed memory that a peer has open stays allocated.
TEST_F(Registered, SoManyBytesAreOpenAtMost) {
  OwnRegistrations bounded{*table, driver, 0x3000};
  const auto number = [&](uint64_t address, Need need = Need::kMay) {
    return bounded.number_of(reinterpret_cast<const void*>(address), need);
  };
  for (uint64_t base : {0x1000, 0x2000, 0x3000, 0x4000}) driver.allocate(base, 0x1000);
  EXPECT_NE(number(0x1000), 0);
  EXPECT_NE(number(0x2000), 0);
  EXPECT_NE(number(0x3000), 0);
  EXPECT_EQ(number(0x4000), 0);
  driver.allocate(0x5000, 0x1000);
  EXPECT_NE(number(0x5000, Need::kMust), 0) << "a slab of ours is not bounded";
  Reader reader(*table, driver);
  reader.registrations->open_all();
  driver.free(0x1000);
  driver.allocate(0x8000, 0x1000);
  EXPECT_EQ(number(0x8000), 0) << "freed, but a reader has it open";
  reader.registrations.reset();
  driver.allocate(0x9000, 0x800);
  EXPECT_NE(number(0x9000), 0);
}

TEST_F(Registered, AFullTableTakesWhatIsGoneAndNobodyHasOpen) {
  fill(0);
  driver.allocate(0x1000, 0x1000);
  EXPECT_EQ(number_of(0x1000), 0);
  Reader reader(*table, driver);
  reader.registrations->open_all();
  // Freed, but a reader has it open.
  driver.free(kFiller + 5 * 4096);
  driver.free(0x1000);
  driver.allocate(0x1000, 0x1000);
  EXPECT_EQ(number_of(0x1000), 0);
  EXPECT_EQ(table->entries[5].state, kRetired);
  reader.registrations.reset();
  driver.free(0x1000);
  driver.allocate(0x1000, 0x1000);
  EXPECT_EQ(number_of(0x1000), 5);
  EXPECT_EQ(table->entries[5].base, 0x1000u);
  EXPECT_EQ(table->entries[5].state, kPublished);
  Reader newcomer(*table, driver);
  newcomer.registrations->open_all();
  EXPECT_EQ(driver.identity_at(newcomer.address_of(5, 0x1000)), table->entries[5].identity);
}

TEST_F(Registered, OnlyWhatAMessageNamesIsMissed) {
  driver.allocate(0x1000, 0x1000);
  const uint16_t number = number_of(0x1000);
  driver.free(0x1000);  // before anybody has opened it
  Reader reader(*table, driver);
  reader.registrations->open_all();
  EXPECT_FALSE(reader.made(number));
  EXPECT_EQ(table->entries[number].openers, 0u);
  EXPECT_EQ(reader.registrations->refusal(), "");
  reader.told[number].wanted = 1;  // by a block
  EXPECT_NE(reader.registrations->refusal().find("gone"), std::string::npos);
}

TEST_F(Registered, WhatCouldNotBeOpenedIsTriedAgain) {
  driver.allocate(0x1000, 0x1000);
  const uint16_t number = number_of(0x1000);
  driver.free(0x1000);
  Reader reader(*table, driver);
  reader.registrations->open_all();
  reader.told[number].wanted = 1;
  driver.allocate(0x1000, 0x1000);
  const uint16_t later = number_of(0x1000);
  reader.registrations->open_all();
  EXPECT_TRUE(reader.made(later));
  EXPECT_FALSE(reader.made(number));
}

// The owner allocates, registers and frees in a few places, so that numbers come round; readers open and
// close.
TEST_F(Registered, NumbersComeRoundAmongReadersThatComeAndGo) {
#ifdef STARLING_SANITIZED
  constexpr int kRounds = 300;
#else
  constexpr int kRounds = 3000;
#endif
  fill(3);
  std::atomic<bool> over{false};
  std::atomic<uint64_t> opened{0};
  const auto read = [&] {
    while (!over.load()) {
      Reader reader(*table, driver);
      for (int look = 0; look < 3; ++look) {
        reader.registrations->open_all();
        for (uint32_t number = 1; number < kMaxRegistrations; ++number) {
          if (!reader.made(uint16_t(number))) continue;
          // As long as we have it open, the entry is what we opened.
          const Registration& entry = table->entries[number];
          ASSERT_EQ(driver.identity_at(entry.base + reader.told[number].offset), entry.identity);
          ++opened;
        }
      }
    }
  };
  std::thread first(read), second(read);
  uint64_t registered = 0, full = 0;
  for (int round = 0; round < kRounds || (opened.load() == 0 && !HasFailure()); ++round) {
    const uint64_t base = 0x1000 * (1 + uint64_t(round) % 5);
    driver.allocate(base, 0x1000);
    if (const uint16_t number = number_of(base)) {
      EXPECT_EQ(table->entries[number].base, base);
      ++registered;
    } else {
      ++full;
      std::this_thread::yield();
    }
    driver.free(base);
  }
  over = true;
  first.join();
  second.join();
  EXPECT_GT(registered, 3u) << "no number came round: " << full << " times the table was full";
  EXPECT_EQ(driver.open_now(), 0);
  for (const Registration& entry : table->entries) EXPECT_EQ(entry.openers, 0u);
}

// As blocks do: TSan sees it if they could read where before they may.
TEST_F(Registered, BlocksThatSeeThatItIsOpenSeeWhere) {
  driver.allocate(0x1000, 0x1000);
  const uint16_t number = number_of(0x1000);
  Reader reader(*table, driver);
  auto opened = std::make_unique<OpenedTable>();
  opened->told = reader.told.data();
  uint64_t address = 0;
  std::thread block([&] {
    cpu::CpuMachine m(0, {.spins = 4, .idle_spins = 2, .idle_yields = 2, .sleep_ns = 100'000}, nullptr,
                      nullptr);
    for (uint32_t attempt = 0; !device::is_opened(m, *opened, number); ++attempt) m.pause(attempt);
    address = uint64_t(device::opened_address(m, *opened, {0x1000, number}));
  });
  reader.registrations->open_all();
  block.join();
  EXPECT_EQ(driver.identity_at(address), table->entries[number].identity);
}

}  // namespace
}  // namespace starling
