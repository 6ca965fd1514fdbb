// File descriptors of memory, from its owner to the processes of the host that map it.
//
// A descriptor is a number of one process; another gets it by a message over a socket (SCM_RIGHTS), which the
// owner sends, or takes it (pidfd_getfd), which needs the right to trace the owner: Yama refuses it between
// siblings, and containers by default. So an owner answers: a thread of its own, which does nothing else.
//
//   reader: connect ── request: identity ──▶ owner's thread: exports the pieces that are held
//           ◀── count ── a packet a piece: bytes, kind, and its descriptor, or the 64 bytes of a fabric
//           handle
//
// The socket has an abstract name, which goes with its process however that ends, and which processes of one
// network namespace see. Both sides ask the kernel whose process the other one is: it must be the same
// user's.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace starling {

// An open file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct ExportedPiece {
  uint64_t bytes = 0;
  Descriptor descriptor;  // or, without one:
  std::array<uint8_t, 64> fabric = {};  // CUmemFabricHandle
};

// What a registration of a view has in the place of a handle of the driver's.
struct ViewHandle {
  static constexpr size_t kNameBytes = 56;
  uint64_t identity;
  char socket[kNameBytes];  // without the leading zero of abstract names
};
static_assert(sizeof(ViewHandle) == 64);

class DescriptorServer {
 public:
  // The pieces of a view; none: it is gone. On the server's thread. Throws Error: the reader hears that it is
  // gone.
  using Export = std::function<std::vector<ExportedPiece>(uint64_t identity)>;

  // Throws Error(system).
  explicit DescriptorServer(Export exported);
  ~DescriptorServer();
  DescriptorServer(const DescriptorServer&) = delete;
  DescriptorServer& operator=(const DescriptorServer&) = delete;

  const std::string& socket() const { return name_; }

 private:
  void run();
  void answer(const Descriptor& reader) const;

  const Export export_;
  std::string name_;
  Descriptor listening_;
  Descriptor ending_;  // an eventfd
  std::thread thread_;
};

// Throws Error(system) if there is no such owner, it answers nothing within `timeout`, or the view is gone.
std::vector<ExportedPiece> request_pieces(const ViewHandle& view, std::chrono::milliseconds timeout);

// Of this process: the same for those that reach each other's abstract sockets. 0: not known.
uint32_t network_namespace();

}  // namespace starling
