// Frames over one socket: gathered sends from where the bytes lie, and receives into where they shall lie.
#pragma once
#include <cstddef>
#include <deque>
#include <vector>

#include "link/tcp/socket.h"
#include "wire/frame.h"
#include "wire/link.h"

namespace starling::link::tcp {

// One transfer as its sender's owner offers it: valid until the flow has acknowledged it.
struct Outgoing {
  const std::byte* control = nullptr;
  uint32_t control_bytes = 0;
  const std::byte* payload = nullptr;
  uint32_t payload_bytes = 0;
  uint64_t place[2] = {};
};

// Where what comes goes.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Of a transfer that begins to come: where its bytes go. False: it makes no sense; the connection ends.
  virtual bool begin(const FrameHeader& header, std::byte*& control, std::byte*& payload) = 0;
  virtual void end(const FrameHeader& header) = 0;  // all of it is there
  virtual void message(const LinkMessage& message) = 0;
};

class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)), buffer_(kBufferBytes) {}

  int fd() const { return socket_.get(); }

  void queue(const Hello& hello);
  // A report that no probe asked for says all that earlier ones said: it replaces one that waits.
  void queue(const LinkMessage& message);
  void queue(uint32_t epoch, uint64_t sequence, const Outgoing& transfer);
  bool has_room() const { return queued_bytes_ < kMostQueuedBytes; }
  bool idle() const { return out_.empty(); }

  // Writes what the socket takes; adds the transfers that went out to their last byte. 0, or the error.
  int flush(std::vector<uint64_t>& sent);
  // Reads what is there, but not for ever. 0, or the error; kEnded if the peer closed it, or sent nonsense.
  int read(FrameSink& sink);
  // The first bytes of an accepted connection. 0 until they are whole: see `whole`.
  int read_hello(Hello& hello, bool& whole);

  static constexpr int kEnded = -1;

 private:
  // For several small frames at a time; of large ones so much at most takes a copy more than it must.
  static constexpr size_t kBufferBytes = 1 << 12;
  static constexpr uint64_t kMostQueuedBytes = 1 << 19;
  static constexpr int kReadsInARow = 32;

  struct Out {
    FrameHeader header{};
    Outgoing body{};
    union {
      LinkMessage message;
      Hello hello;
    };
    uint32_t plain_bytes = 0;  // a hello: no header before it
    Out() : message{} {}
    uint64_t bytes() const {
      return plain_bytes ? plain_bytes : sizeof header + header.control_bytes + header.payload_bytes;
    }
  };
  enum class Part { kHeader, kControl, kPayload };

  int fill(size_t& got);
  bool parse(FrameSink& sink);
  bool begin_frame(FrameSink& sink);
  void end_frame(FrameSink& sink);
  void expect(Part part, std::byte* to, size_t bytes);

  Descriptor socket_;
  std::deque<Out> out_;
  uint64_t written_ = 0;  // bytes of the first one that went out
  uint64_t queued_bytes_ = 0;

  std::vector<std::byte> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t asked_ = 0;  // bytes, of the last read
  FrameHeader header_{};
  LinkMessage message_{};
  std::byte* payload_ = nullptr;
  // What comes next, and where to.
  Part part_ = Part::kHeader;
  std::byte* to_ = reinterpret_cast<std::byte*>(&header_);
  size_t missing_ = sizeof(FrameHeader);
};

}  // namespace starling::link::tcp
