#include "comm/store.h"

#include <vector>

#include "base/error.h"

namespace starling {
namespace {

class UserStore final : public Store {
 public:
  explicit UserStore(const starling_store& functions) : functions_(functions) {}

  void set(const std::string& key, const std::string& value) override {
    if (functions_.set(functions_.user, key.c_str(), value.data(), value.size()) != 0)
      throw Error(Code::system, "the store refused to set " + key, "see the store's own error");
  }

  std::optional<std::string> get(const std::string& key, int64_t timeout_ns) override {
    std::vector<char> buffer(4096);
    size_t bytes = buffer.size();
    const int answer = functions_.get(functions_.user, key.c_str(), buffer.data(), &bytes, timeout_ns);
    if (answer == STARLING_STORE_LOST)
      throw Error(Code::system, "the store was lost while this rank waited for " + key,
                  "see the log of the process that keeps the store (rank 0, or the launcher)");
    if (answer != 0) return std::nullopt;
    if (bytes > buffer.size())
      throw Error(Code::system, "the store's value of " + key + " is not one of Starling's",
                  "use a store, or a prefix of keys, of its own");
    return std::string(buffer.data(), bytes);
  }

  // Both or none: who waits until a key is gone must not wait where nobody can take it away.
  void withdraw(const std::string& key) override {
    if (functions_.remove != nullptr && functions_.holds != nullptr)
      functions_.remove(functions_.user, key.c_str());
  }
  bool holds(const std::string& key) override {
    return functions_.remove != nullptr && functions_.holds != nullptr &&
           functions_.holds(functions_.user, key.c_str()) == 1;
  }

 private:
  starling_store functions_;
};

}  // namespace

std::unique_ptr<Store> user_store(const starling_store& functions) {
  if (functions.set == nullptr || functions.get == nullptr)
    throw Error(Code::invalid_argument, "starling_store has a null function", "set both set and get");
  return std::make_unique<UserStore>(functions);
}

}  // namespace starling
