// Sockets of paths: each bound to one port, none ever blocks.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "link/link.h"
#include "link/tcp/ports.h"

namespace starling::link::tcp {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Sockets of a port have the congestion control that it names. "": the system's, but CUBIC in the place of
// BBR, which paces by what it has measured before, and after pauses has measured little: bursts of
// collectives take two to three times as long (docs/design/0014). kUsualCongestion: the system's. False: the
// system does not have it for us.
bool set_congestion_control(int fd, const Port& port);

// At the interface, whatever address of this family it will have: one that is changed while the port is down
// is called at all the same. Where this user may not bind to an interface, at the address alone. Sets
// port.number. Throws Error(system), or Error(invalid_argument) for a congestion control that is not there.
Descriptor listen_at(Port& port);
// None: nobody waits, or the system says why not (errno in `error`).
Descriptor accept_from(int listener, int& error);
// Begins to connect, from one port to the other. None: the system says at once that it cannot (errno in
// `error`).
Descriptor connect_between(const Port& ours, const Port& theirs, uint32_t user_timeout_ms, int& error);
// The two ends of a connection. None: it has ended.
std::optional<Address> own_address(int fd);
std::optional<Address> peer_address(int fd);
// Whether this errno says that the process, or the system, has no room for another socket.
bool is_exhausted(int error);
// Of a socket that became writable: 0 if it is connected, else why it is not.
int connect_error(int fd);

// Whether another path could help against this errno.
Completion classify(int error);

}  // namespace starling::link::tcp
