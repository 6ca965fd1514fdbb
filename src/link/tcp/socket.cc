#include "link/tcp/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "link/channel.h"

namespace starling::link::tcp {
namespace {

constexpr int kBacklog = 1024;
constexpr size_t kMostCongestionBytes = 16;  // the system's bound

// An address that sockets take.
struct Place {
  Place(const Address& address, uint16_t number) : bytes(socket_address(address, number, storage)) {}
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  sockaddr_storage storage;
  socklen_t bytes;
};

int make_socket(const Address& address) {
  return socket(address.is_ipv4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

void set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

// Binding to the address alone would let the system send by another port, if a route says so: then two paths
// would share one. Not every user may bind to a device; the address has to do then.
bool bind_to_device(int fd, const Port& port) {
  return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, port.name.c_str(), socklen_t(port.name.size())) == 0;
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

bool set_congestion_control(int fd, const Port& port) {
  std::string wanted = port.congestion;
  if (wanted == kUsualCongestion) return true;
  if (wanted.empty()) {
    char usual[kMostCongestionBytes] = {};
    socklen_t bytes = sizeof usual;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, usual, &bytes) != 0) return true;
    if (std::string_view(usual, strnlen(usual, sizeof usual)).substr(0, 3) != "bbr") return true;
    wanted = "cubic";
  }
  const bool done = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted.data(), socklen_t(wanted.size())) == 0;
  return done || port.congestion.empty();
}

Descriptor listen_at(Port& port) {
  Descriptor fd(make_socket(port.address));
  const std::string where = port.name + " " + address_text(port.address);
  if (!fd) throw system_error("cannot make a socket", "allow the process more open files (ulimit -n)");
  set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);  // refused by sockets of IPv4
  if (!set_congestion_control(fd.get(), port))  // those that are accepted inherit it
    throw Error(
        Code::invalid_argument,
        "the system has no congestion control '" + port.congestion + "' for this user",
        "set STARLING_TCP_CONGESTION to one of 'sysctl net.ipv4.tcp_allowed_congestion_control', or auto");
  Place place(bind_to_device(fd.get(), port) ? any_address(port.address.is_ipv4()) : port.address, 0);
  if (bind(fd.get(), place.get(), place.bytes) != 0 || listen(fd.get(), kBacklog) != 0 ||
      getsockname(fd.get(), place.get(), &place.bytes) != 0)
    throw system_error("cannot listen at " + where, "choose other ports by STARLING_TCP_INTERFACES");
  // Both families have it at the same offset.
  port.number = ntohs(reinterpret_cast<const sockaddr_in&>(place.storage).sin_port);
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
  Descriptor fd(make_socket(ours.address));
  if (!fd) return none();
  bind_to_device(fd.get(), ours);
  set_stream_options(fd.get());
  set_congestion_control(fd.get(), ours);
  set(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, int(user_timeout_ms));
  Place from(ours.address, 0), to(theirs.address, theirs.number);
  if (bind(fd.get(), from.get(), from.bytes) != 0) return none();
  if (connect(fd.get(), to.get(), to.bytes) != 0 && errno != EINPROGRESS) return none();
  return fd;
}

std::optional<Address> own_address(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return getsockname(fd, address, &bytes) == 0 ? address_of(address) : std::nullopt;
}

std::optional<Address> peer_address(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return getpeername(fd, address, &bytes) == 0 ? address_of(address) : std::nullopt;
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
