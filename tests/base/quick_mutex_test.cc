// Goal: whoever holds a quick mutex is known as one that may not enter the driver, and an excuse is for its
// scope alone.
// Method: locks taken and given back in every way that the library uses, on this thread and beside another.
#include "base/quick_mutex.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace starling {
namespace {

TEST(QuickMutex, ForbidsWhileItIsHeld) {
  QuickMutex one, other;
  EXPECT_FALSE(DriverRule::forbids());
  {
    std::unique_lock lock(one);
    EXPECT_TRUE(DriverRule::forbids());
    {
      const std::lock_guard second(other);
      EXPECT_TRUE(DriverRule::forbids());
    }
    EXPECT_TRUE(DriverRule::forbids()) << "the first is held still";
    lock.unlock();
    EXPECT_FALSE(DriverRule::forbids());
    lock.lock();
    EXPECT_TRUE(DriverRule::forbids());
  }
  EXPECT_FALSE(DriverRule::forbids());
}

TEST(QuickMutex, AVainTryForbidsNothing) {
  QuickMutex mutex;
  std::unique_lock held(mutex);
  std::thread([&] {
    EXPECT_FALSE(DriverRule::forbids()) << "another thread holds it";
    const std::unique_lock lock(mutex, std::try_to_lock);
    EXPECT_FALSE(lock.owns_lock());
    EXPECT_FALSE(DriverRule::forbids());
  }).join();
  held.unlock();
  const std::unique_lock lock(mutex, std::try_to_lock);
  EXPECT_TRUE(lock.owns_lock() && DriverRule::forbids());
}

TEST(QuickMutex, AnExcuseEndsWithItsScope) {
  QuickMutex mutex;
  const std::lock_guard lock(mutex);
  {
    const DriverExcuse excuse;
    const DriverExcuse another;
    EXPECT_FALSE(DriverRule::forbids());
  }
  EXPECT_TRUE(DriverRule::forbids());
}

TEST(QuickMutex, WhoWaitsUnderItHoldsItNot) {
  QuickMutex mutex;
  std::condition_variable_any changed;
  bool come = false;
  std::thread other([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return come; });
    EXPECT_TRUE(DriverRule::forbids());
  });
  {
    const std::lock_guard lock(mutex);
    come = true;
  }
  changed.notify_one();
  other.join();
  EXPECT_FALSE(DriverRule::forbids());
}

}  // namespace
}  // namespace starling
