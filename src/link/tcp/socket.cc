#include "link/tcp/socket.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/error.h"
#include "link/channel.h"

namespace starling::link::tcp {
namespace {

constexpr int kBacklog = 1024;

sockaddr_in socket_address(uint32_t address, uint16_t number) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_addr.s_addr = htonl(address);
  result.sin_port = htons(number);
  return result;
}

void set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

// Binding to the address alone would let the system send by another port, if a route says so: then two paths
// would share one. Not every user may bind to a device; the address has to do then.
void bind_to_device(int fd, const Port& port) {
  setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, port.name.c_str(), socklen_t(port.name.size()));
}

// Keepalives and the user timeout only help: the watchdog of the flow judges paths.
void set_stream_options(int fd) {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

Descriptor listen_at(Port& port) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const std::string where = port.name + " " + address_text(port.address);
  if (!fd) throw system_error("cannot make a socket", "allow the process more open files (ulimit -n)");
  bind_to_device(fd.get(), port);
  sockaddr_in address = socket_address(port.address, 0);
  socklen_t bytes = sizeof address;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 || listen(fd.get(), kBacklog) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    throw system_error("cannot listen at " + where, "choose other ports by STARLING_TCP_INTERFACES");
  port.number = ntohs(address.sin_port);
  return fd;
}

Descriptor accept_from(int listener, int& error) {
  error = 0;
  for (;;) {
    Descriptor fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      set_stream_options(fd.get());
      return fd;
    }
    // These are of a connection that has ended meanwhile, or of its network: the next one may be well.
    const bool next = errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == ENETDOWN ||
                      errno == EHOSTUNREACH || errno == ENETUNREACH || errno == EHOSTDOWN;
    if (next) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) error = errno;
    return {};
  }
}

Descriptor connect_between(const Port& ours, const Port& theirs, uint32_t user_timeout_ms, int& error) {
  error = 0;
  const auto none = [&] {
    error = errno;
    return Descriptor();
  };
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return none();
  bind_to_device(fd.get(), ours);
  set_stream_options(fd.get());
  set(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, int(user_timeout_ms));
  const sockaddr_in from = socket_address(ours.address, 0);
  const sockaddr_in to = socket_address(theirs.address, theirs.number);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0) return none();
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS)
    return none();
  return fd;
}

bool is_exhausted(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  return error;
}

Completion classify(int error) {
  switch (error) {
    case 0:
    case Channel::kEnded: return Completion::kOk;
    // Bugs of ours, on whatever path.
    case EFAULT:
    case EBADF:
    case ENOTSOCK:
    case EMSGSIZE: return Completion::kFatal;
    default: return Completion::kRetryable;
  }
}

}  // namespace starling::link::tcp
