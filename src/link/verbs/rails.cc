#include "link/verbs/rails.h"

#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "link/verbs/channel.h"
#include "link/verbs/undertaker.h"

namespace starling::link::verbs {
namespace {

class Handshake final : public Upgrade {
 public:
  explicit Handshake(std::unique_ptr<VerbsChannel> channel) : channel_(std::move(channel)) {}
  const QueuePairs& ours() const override { return channel_->ours(); }
  std::unique_ptr<Channel> finish(const QueuePairs& theirs,
                                  std::unique_ptr<tcp::Connection> connection) override {
    if (!channel_->connect(theirs, std::move(connection))) return nullptr;
    return std::move(channel_);
  }

 private:
  std::unique_ptr<VerbsChannel> channel_;
};

// Unregistered by the devices' undertakers: that keeps a thread in the system, too.
class Enrolled final : public Registration {
 public:
  ~Enrolled() override {
    for (auto& [device, registered] : parts_) device->undertaker().bury(registered);
  }
  bool add(Device& device, const Region& region) {
    auto registered = device.register_memory(region);
    if (registered == nullptr) return false;
    local_keys[device.number()] = registered->local_key();
    remote_keys.of[device.number()] = registered->remote_key();
    parts_.emplace_back(&device, std::list<std::unique_ptr<Registered>>{})
        .second.push_back(std::move(registered));
    return true;
  }

 private:
  std::vector<std::pair<Device*, std::list<std::unique_ptr<Registered>>>> parts_;
};

class OpenRails final : public Rails {
 public:
  OpenRails(const Library& library, tcp::Reactor& reactor, const RailOptions& options,
            InterfaceChanged interface_changed)
      : library_(library),
        reactor_(reactor),
        options_(options),
        interface_changed_(std::move(interface_changed)) {}

  // What one device's undertaker has may be another one's memory.
  ~OpenRails() override {
    for (int twice = 0; twice < 2; ++twice)
      for (auto& [name, device] : devices_)
        if (device != nullptr) device->undertaker().finish();
  }

  std::unique_ptr<Upgrade> begin_sending(const tcp::Port& ours) override {
    return begin(ours, {options_.queue_pairs, options_.queue_pairs.count, options_.most_payload_bytes, true});
  }
  std::unique_ptr<Upgrade> begin_receiving(const tcp::Port& ours, uint32_t count,
                                           uint64_t offers_void) override {
    return begin(ours, {options_.queue_pairs, count, options_.most_payload_bytes, false, offers_void});
  }

  void open(const std::vector<tcp::Port>& ports) override {
    for (const tcp::Port& port : ports)
      if (const auto gid = this->gid(port)) device(gid->device);
  }
  std::vector<Device*> devices() const override {
    std::vector<Device*> devices;
    for (const auto& [name, device] : devices_)
      if (device != nullptr && device->number() < kMaxRdmaDevices) devices.push_back(device.get());
    return devices;
  }

 private:
  std::unique_ptr<Upgrade> begin(const tcp::Port& ours, const VerbsChannel::Options& options) {
    // Asked each time: what heals may have another place in the port's table.
    const auto gid = this->gid(ours);
    Device* device = gid ? this->device(gid->device) : nullptr;
    if (device == nullptr) {
      // Once an interface, at the level that users have: where there is a device, they may think that it is
      // used.
      const bool said = std::exchange(rails_[ours.index].said_to_be_tcp, true);
      log(said ? LogLevel::info : LogLevel::warn, ours.name, ": no RDMA port with ",
          tcp::address_text(ours.address),
          ": paths go over TCP; STARLING_LINK=tcp says that this is wanted, and nothing is said here");
      return nullptr;
    }
    try {
      return std::make_unique<Handshake>(std::make_unique<VerbsChannel>(*device, *gid, options));
    } catch (const Error& error) {
      log(LogLevel::warn, error.what(), ": the path goes over TCP");
      return nullptr;
    }
  }

  std::optional<Gid> gid(const tcp::Port& port) {
    Rail& rail = rails_[port.index];
    if (!rail.gid || !is_still(*rail.gid, port)) rail.gid = find_gid(port);
    if (rail.gid) rail.at = {rail.gid->device, rail.gid->port};
    return rail.gid;
  }

  // Opened at the first use. Null: it cannot be.
  Device* device(const std::string& name) {
    const auto found = devices_.find(name);
    if (found != devices_.end()) return found->second.get();
    std::unique_ptr<Device>& device = devices_[name];
    int count = 0;
    ibv_device** list = library_.get_device_list(&count);
    for (int k = 0; k < count; ++k) {
      if (name != library_.get_device_name(list[k])) continue;
      try {
        if (ibv_context* context = library_.open_device(list[k]))
          device = std::make_unique<Device>(
              library_, context, name, uint32_t(devices_.size() - 1), reactor_,
              [this](const std::string& of, uint32_t port, bool up) { port_changed(of, port, up); });
      } catch (const Error& error) {
        log(LogLevel::warn, error.what());
      }
    }
    if (list != nullptr) library_.free_device_list(list);
    return device.get();
  }

  // Port 0: all. By what is known: a failover does not have the time that it takes to read the tables.
  void port_changed(const std::string& device, uint32_t port, bool up) {
    for (const auto& [interface, rail] : rails_)
      if (rail.at.first == device && (port == 0 || rail.at.second == port)) interface_changed_(interface, up);
  }

  struct Rail {
    std::optional<Gid> gid;
    std::pair<std::string, uint32_t> at;  // device and port: the last one that it was found at
    bool said_to_be_tcp = false;
  };

  const Library& library_;
  tcp::Reactor& reactor_;
  const RailOptions options_;
  const InterfaceChanged interface_changed_;
  std::map<uint32_t, Rail> rails_;  // by the interface's index
  std::map<std::string, std::unique_ptr<Device>> devices_;
};

}  // namespace

RegistrationPtr enroll(const std::vector<Device*>& devices, const Region& region) {
  if (devices.empty()) return nullptr;
  auto enrolled = std::make_shared<Enrolled>();
  enrolled->on_device = region.on_device;
  const bool of_gpu = region.dma_buf >= 0;
  for (Device* device : devices) {
    if (enrolled->add(*device, region)) continue;
    const Error why = system_error("cannot register " + std::to_string(region.bytes) +
                                       (of_gpu ? " bytes of a GPU" : " bytes") + " with " + device->name(),
                                   of_gpu ? "use a kernel and a driver of the network card that take dma-bufs"
                                          : "allow more locked memory (ulimit -l)");
    if (device->refuses_at_first(of_gpu))
      log(LogLevel::warn, why.what(),
          of_gpu ? ": messages pass through pinned memory of the host"
                 : ": what is not registered is copied on its way");
    return nullptr;
  }
  return enrolled;
}

std::unique_ptr<Rails> open_rails(tcp::Reactor& reactor, const RailOptions& options,
                                  InterfaceChanged interface_changed, std::string& why) {
  const Library* library = open_library(why);
  if (library == nullptr) return nullptr;
  int count = 0;
  ibv_device** list = library->get_device_list(&count);
  if (list != nullptr) library->free_device_list(list);
  if (count == 0) {
    why = "this system has no RDMA device";
    return nullptr;
  }
  return std::make_unique<OpenRails>(*library, reactor, options, std::move(interface_changed));
}

}  // namespace starling::link::verbs
