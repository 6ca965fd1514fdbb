#include "store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

namespace starling::torch_adapter {
namespace {

// Waits so short are made of looks.
constexpr std::chrono::milliseconds kLooks(200);

// Some of Python's stores cannot.
bool can_look(c10d::Store& store) {
  try {
    store.check({"starling/nothing"});
    return true;
  } catch (const c10::DistNetworkError&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

// No exception may cross the C API: a failed store answers 1, and the library reports which key it wanted.

int store_set(void* user, const char* key, const void* value, size_t bytes) {
  try {
    const auto* first = static_cast<const std::uint8_t*>(value);
    static_cast<c10d::Store*>(user)->set(key, std::vector<std::uint8_t>(first, first + bytes));
    return 0;
  } catch (const std::exception& error) {
    LOG(WARNING) << "starling: the c10d store refused key " << key << ": " << error.what();
    return 1;
  }
}

int store_get(void* user, const char* key, void* value, size_t* bytes, int64_t timeout_ns) {
  try {
    auto& store = *static_cast<c10d::Store*>(user);
    constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24);
    const auto wanted = timeout_ns < 0 ? kLongest : std::min(std::chrono::nanoseconds(timeout_ns), kLongest);
    // Zero would mean "no bound" to some stores.
    const auto timeout =
        std::max(std::chrono::ceil<std::chrono::milliseconds>(wanted), std::chrono::milliseconds(1));
    if (timeout > kLooks || !can_look(store))
      store.wait({key}, timeout);
    else if (!look_for(store, key, std::chrono::steady_clock::now() + timeout))
      return 1;
    const std::vector<std::uint8_t> found = store.get(key);
    const size_t copied = std::min(*bytes, found.size());
    std::memcpy(value, found.data(), copied);
    *bytes = found.size();
    return 0;
  } catch (const c10::DistNetworkError&) {
    return STARLING_STORE_LOST;
  } catch (const std::exception&) {
    return 1;  // not there within the timeout
  }
}

// Stores that cannot (some of Python's) keep their keys, and say so.
int store_remove(void* user, const char* key) {
  try {
    static_cast<c10d::Store*>(user)->deleteKey(key);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

int store_holds(void* user, const char* key) {
  try {
    return static_cast<c10d::Store*>(user)->check({key}) ? 1 : 0;
  } catch (const std::exception&) {
    return -1;
  }
}

// Asked once with a key of nobody's: who waits until a key is gone must not wait where it stays.
bool can_remove(c10d::Store& store) {
  try {
    store.deleteKey("starling/nothing");
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

bool look_for(c10d::Store& store, const std::string& key, std::chrono::steady_clock::time_point deadline) {
  constexpr std::chrono::milliseconds kLongestPause(16);
  for (std::chrono::milliseconds pause(1);; pause = std::min(2 * pause, kLongestPause)) {
    if (store.check({key})) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
  }
}

StoreView::StoreView(c10::intrusive_ptr<c10d::Store> store)
    : store_(std::move(store)), view_{store_.get(), store_set, store_get, nullptr, nullptr} {
  if (!can_remove(*store_)) return;
  view_.remove = store_remove;
  view_.holds = store_holds;
}

}  // namespace starling::torch_adapter
