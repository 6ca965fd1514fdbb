// Where ranks meet while a communicator is made: a caller's key-value store, or one of files in /dev/shm.
#pragma once
#include <starling/starling.h>

#include <memory>
#include <string>

namespace starling {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. Throws Error(timeout).
  virtual std::string get(const std::string& key, int64_t timeout_ns) = 0;
  // True: keys stay until somebody removes them.
  virtual bool wants_removal() const { return false; }
  virtual void remove(const std::string&) {}
};

// The caller's functions, copied.
std::unique_ptr<Store> user_store(const starling_store& functions);

// For ranks of one host whose launcher names the job: one small file a key.
std::unique_ptr<Store> job_store(const std::string& job);

}  // namespace starling
