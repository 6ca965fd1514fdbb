// Where ranks meet while a communicator is made: a caller's key-value store, or files in /dev/shm
// (job_store.h).
#pragma once
#include <starling/starling.h>

#include <memory>
#include <optional>
#include <string>

namespace starling {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key; nothing: it was not there within the time.
  virtual std::optional<std::string> get(const std::string& key, int64_t timeout_ns) = 0;

  // In a store of the library's own: the key is this process's as long as the store object lives. Throws
  // Error(mismatch) if it is another live process's. A caller's store cannot say who lives.
  virtual void claim(const std::string&) {}
  // Takes back what this rank has set; a caller's store that cannot keeps it.
  virtual void withdraw(const std::string&) {}
  // Whether a live rank has the key set and not withdrawn; false in a caller's store that cannot say, and of
  // one that can, whoever has set it.
  virtual bool holds(const std::string&) { return false; }
  // How long a get() may last at a time, so that signals and deaths are noticed.
  virtual int64_t patience_ns() const { return INT64_MAX; }
};

// The caller's functions, copied.
std::unique_ptr<Store> user_store(const starling_store& functions);

}  // namespace starling
