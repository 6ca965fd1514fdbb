// Frames over one socket: gathered sends from where the bytes lie, and receives into where they shall lie.
#pragma once
#include <cstddef>
#include <deque>
#include <vector>

#include "link/channel.h"
#include "link/tcp/socket.h"

namespace starling::link::tcp {

class Connection final : public Channel {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)), buffer_(kBufferBytes) {}

  int fd() const override { return socket_.get(); }

  void queue(const Hello& hello);
  void queue(const QueuePairs& answer);
  void queue(const LinkMessage& message) override;
  bool queue(uint32_t epoch, uint64_t sequence, const Outgoing& transfer) override;
  void free_below(uint64_t) override {}
  bool waits_to_write() const override { return !out_.empty(); }

  // Adds the transfers that went out to their last byte.
  int flush(std::vector<uint64_t>& sent) override;
  int read(FrameSink& sink) override;
  // The thread that reads the socket closes it.
  int fence(FrameSink&) override { return 0; }
  // The first bytes of an accepted connection; of the answer to a hello with queue pairs. 0 until they are
  // whole: see `whole`.
  int read_hello(Hello& hello, bool& whole);
  int read_answer(QueuePairs& answer, bool& whole);

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
      QueuePairs answer;
    };
    uint32_t plain_bytes = 0;  // a hello, or the answer to it: no header before it
    Out() : message{} {}
    uint64_t bytes() const {
      return plain_bytes ? plain_bytes : sizeof header + header.control_bytes + header.payload_bytes;
    }
  };
  enum class Part { kHeader, kControl, kPayload };

  int read_plain(void* to, size_t bytes, bool& whole);
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
