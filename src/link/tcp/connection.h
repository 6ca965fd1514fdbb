// Frames over one socket: gathered sends from where the bytes lie, and receives into where they shall lie.
#pragma once
#include <cstddef>
#include <deque>
#include <vector>

#include "link/channel.h"
#include "link/tcp/bulk_sender.h"
#include "link/tcp/socket.h"

namespace starling::link::tcp {

class Connection final : public Channel {
 public:
  // bulk: null, or who sends large batches; it outlives the connection.
  explicit Connection(Descriptor socket, BulkSender* bulk = nullptr);
  ~Connection() override { recall(); }

  LinkKind kind() const override { return LinkKind::kTcp; }
  int fd() const override { return socket_.get(); }

  // From now on the sink hears when things came.
  void date_arrivals();

  void queue(const Hello& hello);
  void queue(const QueuePairs& answer);
  // The last word of a link that broke, to who called: its flow ends.
  void give_up(const Hello& caller);
  void queue(const LinkMessage& message, const ArrivalAges* ages) override;
  bool queue(uint32_t epoch, uint64_t sequence, const Outgoing& transfer) override;
  void free_below(uint64_t) override {}
  bool move_source(uint64_t sequence, const std::byte* to) override;
  void move_destination(const std::byte* from, uint64_t bytes, std::byte* to) override;
  bool waits_to_write() const override { return !out_.empty(); }

  // Adds the transfers that went out to their last byte.
  int flush(std::vector<uint64_t>& sent) override;
  int read(FrameSink& sink) override;
  // The thread that reads the socket closes it; and nobody writes into it any more.
  int fence(FrameSink&) override {
    recall();
    return 0;
  }
  // The first bytes of an accepted connection; of the answer to a hello with queue pairs. 0 until they are
  // whole: see `whole`.
  int read_hello(Hello& hello, bool& whole);
  int read_answer(QueuePairs& answer, bool& whole);

 private:
  // For several small frames at a time; of large ones so much at most takes a copy more than it must.
  static constexpr size_t kBufferBytes = 1 << 12;
  static constexpr uint64_t kMostQueuedBytes = 1 << 19;  // twice as much where one half may be lent
  static constexpr uint64_t kBulkBytes = 1 << 17;  // a batch that another thread may send
  static constexpr int kReadsInARow = 32;

  // A message, with ages behind it or without.
  struct Said {
    LinkMessage message;
    ArrivalAges ages;
  };
  static_assert(sizeof(Said) == sizeof(LinkMessage) + sizeof(ArrivalAges));
  struct Out {
    FrameHeader header{};
    Outgoing body{};
    union {
      Said said;
      Hello hello;
      QueuePairs answer;
    };
    uint32_t plain_bytes = 0;  // a hello, or the answer to it: no header before it
    Out() : said{} {}
    uint64_t bytes() const {
      return plain_bytes ? plain_bytes : sizeof header + header.control_bytes + header.payload_bytes;
    }
  };
  enum class Part { kHeader, kControl, kPayload };

  size_t gather(iovec* pieces, uint64_t& bytes) const;
  void account(uint64_t sent_bytes, std::vector<uint64_t>& sent);
  void recall();
  int read_plain(void* to, size_t bytes, bool& whole);
  int fill(size_t& got);
  uint64_t came_at_ns();
  bool parse(FrameSink& sink);
  bool begin_frame(FrameSink& sink);
  void end_frame(FrameSink& sink);
  void expect(Part part, std::byte* to, size_t bytes);

  Descriptor socket_;
  std::deque<Out> out_;
  uint64_t written_ = 0;  // bytes of the first one that went out
  uint64_t queued_bytes_ = 0;
  BulkSender* const bulk_;
  BulkSender::Batch batch_;
  size_t lent_ = 0;  // so many of `out_` are in the batch, which is lent; 0: it is not

  std::vector<std::byte> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t asked_ = 0;  // bytes, of the last read
  FrameHeader header_{};
  Said said_{};
  bool dates_ = false;
  int64_t stamp_ns_ = 0;  // of the last read: the system's, by the wall clock; 0: none
  uint64_t at_ns_ = 0;  // the same as Heard::at_ns; 0: not computed yet
  std::byte* payload_ = nullptr;
  // What comes next, and where to.
  Part part_ = Part::kHeader;
  std::byte* to_ = reinterpret_cast<std::byte*>(&header_);
  size_t missing_ = sizeof(FrameHeader);
};

}  // namespace starling::link::tcp
