#include "link/verbs/device.h"

#include <fcntl.h>

#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "link/verbs/undertaker.h"

namespace starling::link::verbs {

Device::Device(const Library& library, ibv_context* context, std::string name, uint32_t number,
               tcp::Reactor& reactor, PortChanged port_changed)
    : library_(library),
      context_(context),
      name_(std::move(name)),
      number_(number),
      reactor_(reactor),
      port_changed_(std::move(port_changed)),
      domain_(library.alloc_pd(context)) {
  const int events = context_->async_fd;
  if (domain_ == nullptr || fcntl(events, F_SETFL, fcntl(events, F_GETFL) | O_NONBLOCK) != 0) {
    const Error error = system_error("cannot use the RDMA device " + name_, "set STARLING_LINK=tcp");
    if (domain_ != nullptr) library_.dealloc_pd(domain_);
    library_.close_device(context_);
    throw error;
  }
  undertaker_ = std::make_unique<Undertaker>();
  watch_ = reactor_.add(events, this, false);
}

Device::~Device() {
  reactor_.remove(watch_, context_->async_fd);
  undertaker_.reset();
  library_.dealloc_pd(domain_);
  library_.close_device(context_);
}

ibv_port_attr Device::query(uint8_t port) const {
  ibv_port_attr attributes{};
  library_.query_port(context_, port, reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
  return attributes;
}

ibv_mtu Device::mtu(uint8_t port) const { return query(port).active_mtu; }
uint16_t Device::lid(uint8_t port) const { return query(port).lid; }

std::unique_ptr<Registered> Device::register_memory(const Region& region) const {
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  ibv_mr* mr = nullptr;
  if (region.dma_buf < 0)
    mr = library_.reg_mr(domain_, region.begin, region.bytes, kAccess);
  else if (library_.reg_dmabuf_mr != nullptr)
    mr = library_.reg_dmabuf_mr(domain_, 0, region.bytes, reinterpret_cast<uint64_t>(region.begin),
                                region.dma_buf, kAccess);
  else
    errno = EOPNOTSUPP;
  return mr == nullptr ? nullptr : std::make_unique<Registered>(library_, mr);
}

// Events of queue pairs are told by their completions, too.
void Device::ready(uint32_t) {
  ibv_async_event event{};
  while (library_.get_async_event(context_, &event) == 0) {
    log(LogLevel::debug, name_, ": ", library_.event_type_text(event.event_type));
    const ibv_event_type type = event.event_type;
    const uint32_t port = uint32_t(event.element.port_num);
    library_.ack_async_event(&event);
    if (type == IBV_EVENT_PORT_ERR) port_changed_(name_, port, false);
    if (type == IBV_EVENT_PORT_ACTIVE) port_changed_(name_, port, true);
    if (type == IBV_EVENT_DEVICE_FATAL) port_changed_(name_, 0, false);
  }
}

}  // namespace starling::link::verbs
