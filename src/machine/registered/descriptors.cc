#include "machine/registered/descriptors.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

namespace starling {
namespace {

constexpr uint32_t kMagic = 0x53464431;  // "SFD1"
constexpr std::chrono::milliseconds kReaderLimit{5000};
constexpr uint32_t kMostPieces = 1 << 16;
constexpr uint32_t kOfDescriptor = 1, kOfFabric = 2;

struct Request {
  uint32_t magic;
  uint32_t reserved;
  uint64_t identity;
};
struct Count {
  uint32_t magic;
  uint32_t pieces;  // 0: the view is gone
};
struct PieceRecord {
  uint64_t bytes;
  uint32_t kind;
  uint32_t reserved;
  uint8_t fabric[64];
};
static_assert(sizeof(Request) == 16 && sizeof(Count) == 8 && sizeof(PieceRecord) == 80);

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(Code::system, what + ": " + std::strerror(error),
              "let ranks of a host be of one user and one network namespace, or set STARLING_PULL=0 on all");
}

struct Address {
  explicit Address(const std::string& name) {
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, name.data(), std::min(name.size(), sizeof at.sun_path - 1));
    bytes = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  sockaddr_un at{};
  socklen_t bytes;
};

void limit(const Descriptor& socket, std::chrono::milliseconds time) {
  const timeval in{time_t(time.count() / 1000), suseconds_t(time.count() % 1000 * 1000)};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &in, sizeof in);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &in, sizeof in);
}

bool is_of_this_user(const Descriptor& socket) {
  ucred other{};
  socklen_t bytes = sizeof other;
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.uid == geteuid();
}

// One packet, with a descriptor if there is one.
bool send_packet(const Descriptor& socket, const void* data, size_t bytes, int descriptor = -1) {
  iovec part{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ssize_t sent;
  do sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == ssize_t(bytes);
}

// False, with errno: no whole packet came. A packet has one descriptor at most.
bool receive_packet(const Descriptor& socket, void* data, size_t bytes, Descriptor* descriptor = nullptr) {
  iovec part{data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received;
  do received = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  while (received < 0 && errno == EINTR);
  for (cmsghdr* header = received < 0 ? nullptr : CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    Descriptor got(fd);
    if (descriptor != nullptr) *descriptor = std::move(got);
  }
  if (received == ssize_t(bytes)) return true;
  if (received >= 0) errno = (message.msg_flags & MSG_CTRUNC) != 0 ? EMFILE : ECONNRESET;
  return false;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

uint32_t network_namespace() {
  struct stat found{};
  return stat("/proc/self/ns/net", &found) == 0 ? uint32_t(found.st_ino) : 0;
}

// ---- the owner ----------------------------------------------------------------------------------------

DescriptorServer::DescriptorServer(Export exported) : export_(std::move(exported)) {
  std::random_device random;
  char name[ViewHandle::kNameBytes];
  std::snprintf(name, sizeof name, "starling-%d-%08x%08x", getpid(), random(), random());
  name_ = name;
  listening_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ending_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  const Address address(name_);
  if (!listening_ || !ending_ ||
      bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address.at), address.bytes) != 0 ||
      listen(listening_.get(), 64) != 0)
    fail("no socket for descriptors of memory", errno);
  thread_ = start_thread("st-descriptors", [this] { run(); });
}

DescriptorServer::~DescriptorServer() {
  const uint64_t one = 1;
  (void)!write(ending_.get(), &one, sizeof one);
  thread_.join();
}

void DescriptorServer::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (;;) {
    pollfd events[2] = {{listening_.get(), POLLIN, 0}, {ending_.get(), POLLIN, 0}};
    if (poll(events, 2, -1) < 0 && errno != EINTR) return;
    if (events[1].revents != 0) return;
    if ((events[0].revents & POLLIN) == 0) continue;
    const Descriptor reader(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (reader && is_of_this_user(reader)) answer(reader);
    if (!reader && errno == EMFILE) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void DescriptorServer::answer(const Descriptor& reader) const {
  limit(reader, kReaderLimit);
  Request request{};
  if (!receive_packet(reader, &request, sizeof request) || request.magic != kMagic) return;
  std::vector<ExportedPiece> pieces;
  try {
    pieces = export_(request.identity);
  } catch (const Error& error) {
    log(LogLevel::warn, "memory that a peer asked for cannot be exported: " + std::string(error.what()));
  }
  const Count count{kMagic, uint32_t(pieces.size())};
  if (!send_packet(reader, &count, sizeof count)) return;
  for (const ExportedPiece& piece : pieces) {
    PieceRecord record{piece.bytes, piece.descriptor ? kOfDescriptor : kOfFabric, 0, {}};
    std::memcpy(record.fabric, piece.fabric.data(), sizeof record.fabric);
    if (!send_packet(reader, &record, sizeof record, piece.descriptor.get())) return;
  }
}

// ---- a reader -----------------------------------------------------------------------------------------

std::vector<ExportedPiece> request_pieces(const ViewHandle& view, std::chrono::milliseconds timeout) {
  const std::string name(view.socket, strnlen(view.socket, sizeof view.socket));
  const Descriptor owner(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!owner) fail("no socket to ask a peer for its memory", errno);
  limit(owner, timeout);
  const Address address(name);
  if (connect(owner.get(), reinterpret_cast<const sockaddr*>(&address.at), address.bytes) != 0)
    fail("a peer cannot be asked for its memory", errno);
  if (!is_of_this_user(owner)) fail("a peer that has memory to map is another user's", EPERM);
  const Request request{kMagic, 0, view.identity};
  Count count{};
  if (!send_packet(owner, &request, sizeof request) || !receive_packet(owner, &count, sizeof count) ||
      count.magic != kMagic || count.pieces > kMostPieces)
    fail("a peer does not answer for its memory", errno);
  if (count.pieces == 0)
    throw Error(Code::system, "a peer's memory is gone, or cannot be exported",
                "keep buffers until their operations have ended");
  std::vector<ExportedPiece> pieces;
  for (uint32_t k = 0; k < count.pieces; ++k) {
    PieceRecord record{};
    ExportedPiece& piece = pieces.emplace_back();
    if (!receive_packet(owner, &record, sizeof record, &piece.descriptor) ||
        (record.kind == kOfDescriptor && !piece.descriptor))
      fail("a peer's memory did not come whole (are too few open files allowed, ulimit -n?)", errno);
    piece.bytes = record.bytes;
    std::memcpy(piece.fabric.data(), record.fabric, sizeof record.fabric);
  }
  return pieces;
}

}  // namespace starling
