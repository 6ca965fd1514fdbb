// One RDMA device: opened once, with its protection domain, its registered memory and its events. One
// thread's.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

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
  bool holds(const std::byte* at, uint64_t bytes) const {
    const auto* begin = static_cast<const std::byte*>(mr_->addr);
    return at >= begin && at + bytes <= begin + mr_->length;
  }

 private:
  const Library& library_;
  ibv_mr* mr_;
};

class Device final : public tcp::Watched {
 public:
  // port_changed: by the number of the device's port.
  using PortChanged = std::function<void(const std::string& device, uint32_t port, bool up)>;

  // Throws Error(system).
  Device(const Library& library, ibv_context* context, std::string name, tcp::Reactor& reactor,
         PortChanged port_changed);
  Device(const Device&) = delete;
  ~Device() override;

  const Library& library() const { return library_; }
  const std::string& name() const { return name_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  Undertaker& undertaker() const { return *undertaker_; }
  ibv_mtu mtu(uint8_t port) const;
  uint16_t lid(uint8_t port) const;

  // Null: the system refuses (see errno).
  std::unique_ptr<Registered> register_memory(std::byte* begin, uint64_t bytes) const;
  // Memory of long life: payloads in it are read, and may be written by peers, without a copy.
  bool keep_registered(std::byte* begin, uint64_t bytes);
  void forget_registered(const std::byte* begin) { kept_.erase(begin); }
  // Null: it is in nothing that is kept registered.
  const Registered* find(const std::byte* at, uint64_t bytes) const;

  void ready(uint32_t events) override;

 private:
  ibv_port_attr query(uint8_t port) const;

  const Library& library_;
  ibv_context* const context_;
  const std::string name_;
  tcp::Reactor& reactor_;
  const PortChanged port_changed_;
  ibv_pd* domain_ = nullptr;
  std::unique_ptr<Undertaker> undertaker_;
  uint64_t watch_ = 0;
  std::map<const std::byte*, std::unique_ptr<Registered>> kept_;  // by its beginning
};

}  // namespace starling::link::verbs
