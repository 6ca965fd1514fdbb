// The contexts of this process. All groups of a rank share one for the CPU and one for each GPU that they
// use: one daemon serves them, so that collectives of different groups yield to each other. Ranks that are
// threads of one process get one each.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <starling/starling.h>

namespace starling::torch_adapter {

class Context {
 public:
  // "cpu" or "cuda:0".
  explicit Context(const std::string& device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The first call counts. Its communicators are closed before; calls on it fail from then on.
  void close() noexcept;

  starling_context* get() const { return context_; }

 private:
  starling_context* context_ = nullptr;
  std::atomic<bool> closed_ = false;
};

// A place for one communicator in a context. Given back when destroyed; the context goes with its last claim.
class ContextClaim {
 public:
  // The first context of the device in this process in which no communicator of this group lives yet, or a
  // new one. Two ranks of one group must not share a context, and a group of the same name in this process
  // means just that.
  ContextClaim(const std::string& device, const std::string& group);
  ~ContextClaim();
  ContextClaim(const ContextClaim&) = delete;
  ContextClaim& operator=(const ContextClaim&) = delete;

  starling_context* get() const { return context_->get(); }

 private:
  std::string group_;
  std::shared_ptr<Context> context_;
};

// The contexts that are alive now.
std::vector<std::shared_ptr<Context>> live_contexts();

// At the end of the process, when all communicators are closed: something may hold a group until the very
// end (FSDP does), and its context's segment would stay behind in /dev/shm. Those of GPUs are left alone:
// memory that is freed later may still look at their streams.
void close_cpu_contexts() noexcept;

}  // namespace starling::torch_adapter
