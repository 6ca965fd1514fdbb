// One RDMA device: opened once, with its protection domain and its events. One thread's, but for what says
// otherwise.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "link/registration.h"
#include "link/tcp/reactor.h"
#include "link/verbs/library.h"

namespace starling::link::verbs {

class Undertaker;

// Memory that the device may read and write, until it is destroyed.
class Registered {
 public:
  Registered(const Library& library, ibv_mr* mr) : library_(library), mr_(mr) {}
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  ~Registered() { library_.dereg_mr(mr_); }
  uint32_t local_key() const { return mr_->lkey; }
  uint32_t remote_key() const { return mr_->rkey; }

 private:
  const Library& library_;
  ibv_mr* mr_;
};

class Device final : public tcp::Watched {
 public:
  // port_changed: by the number of the device's port.
  using PortChanged = std::function<void(const std::string& device, uint32_t port, bool up)>;

  // Throws Error(system).
  Device(const Library& library, ibv_context* context, std::string name, uint32_t number,
         tcp::Reactor& reactor, PortChanged port_changed);
  Device(const Device&) = delete;
  ~Device() override;

  const Library& library() const { return library_; }
  const std::string& name() const { return name_; }
  uint32_t number() const { return number_; }  // of this rank's: keys are told by it
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  Undertaker& undertaker() const { return *undertaker_; }
  ibv_mtu mtu(uint8_t port) const;
  uint16_t lid(uint8_t port) const;

  // Null: the system refuses (see errno). Any thread.
  std::unique_ptr<Registered> register_memory(const Region& region) const;

  // True once, of each: the system has refused to register memory, or a GPU's. Any thread.
  bool refuses_at_first(bool of_gpu) {
    return !has_refused_[of_gpu].exchange(true, std::memory_order_relaxed);
  }

  void ready(uint32_t events) override;

 private:
  ibv_port_attr query(uint8_t port) const;

  const Library& library_;
  ibv_context* const context_;
  const std::string name_;
  const uint32_t number_;
  std::atomic<bool> has_refused_[2] = {false, false};
  tcp::Reactor& reactor_;
  const PortChanged port_changed_;
  ibv_pd* domain_ = nullptr;
  std::unique_ptr<Undertaker> undertaker_;
  uint64_t watch_ = 0;
};

}  // namespace starling::link::verbs
