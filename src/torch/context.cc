#include "context.h"

#include <mutex>
#include <set>
#include <utility>

#include <c10/util/Logging.h>

#include "errors.h"

namespace starling::torch_adapter {
namespace {

struct Entry {
  std::weak_ptr<Context> context;
  std::string device;
  std::set<std::string> groups;
};

// The one list of the process: groups are made by independent calls that have nothing else in common.
struct ContextRegistry {
  std::mutex mutex;
  std::vector<Entry> entries;
};

ContextRegistry& context_registry() {
  static auto* const kRegistry =
      new ContextRegistry;  // never destroyed: a backend may outlive static destruction
  return *kRegistry;
}

}  // namespace

Context::Context(const std::string& device) {
  starling_context_options options{};
  options.struct_bytes = sizeof(options);
  options.device = device.c_str();
  check(starling_context_create(&options, &context_), "creating the process's context on " + device);
}

Context::~Context() { close(); }

void Context::close() noexcept {
  if (closed_.exchange(true)) return;
  if (starling_context_destroy(context_) != STARLING_SUCCESS) {
    LOG(WARNING) << "starling: the context was not destroyed cleanly: " << starling_last_error();
  }
}

ContextClaim::ContextClaim(const std::string& device, const std::string& group) : group_(group) {
  const std::lock_guard lock(context_registry().mutex);
  auto& entries = context_registry().entries;
  std::erase_if(entries, [](const Entry& entry) { return entry.context.expired(); });
  for (Entry& entry : entries) {
    std::shared_ptr<Context> context = entry.context.lock();
    if (context && entry.device == device && entry.groups.insert(group).second) {
      context_ = std::move(context);
      return;
    }
  }
  context_ = std::make_shared<Context>(device);
  entries.push_back({context_, device, {group}});
}

ContextClaim::~ContextClaim() {
  {
    const std::lock_guard lock(context_registry().mutex);
    for (Entry& entry : context_registry().entries) {
      if (entry.context.lock() == context_) entry.groups.erase(group_);
    }
  }
  context_.reset();  // outside the lock: it may wait for the daemon to leave
}

std::vector<std::shared_ptr<Context>> live_contexts() {
  const std::lock_guard lock(context_registry().mutex);
  std::vector<std::shared_ptr<Context>> alive;
  for (const Entry& entry : context_registry().entries) {
    if (auto context = entry.context.lock()) alive.push_back(std::move(context));
  }
  return alive;
}

void close_cpu_contexts() noexcept {
  std::vector<std::shared_ptr<Context>> contexts;
  {
    const std::lock_guard lock(context_registry().mutex);
    for (const Entry& entry : context_registry().entries) {
      auto context = entry.context.lock();
      if (context && entry.device == "cpu") contexts.push_back(std::move(context));
    }
  }
  for (const auto& context : contexts) context->close();
}

}  // namespace starling::torch_adapter
