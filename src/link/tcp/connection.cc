#include "link/tcp/connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/assert.h"
#include "link/checks.h"
#include "machine/cpu/futex.h"

namespace starling::link::tcp {
namespace {

constexpr int64_t kMostWaitNs = 10'000'000'000;

int64_t ns_of(const timespec& time) { return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec; }

// When the last byte of what was read came to this host; 0: the system does not say.
int64_t stamp_in(msghdr& header) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_TIMESTAMPNS) {
      timespec stamp;
      std::memcpy(&stamp, CMSG_DATA(part), sizeof stamp);
      return ns_of(stamp);
    }
  return 0;
}

bool is_plain_report(const LinkMessage& message) {
  return LinkMessageKind(message.kind) == LinkMessageKind::kReport && message.probe == 0;
}

}  // namespace

Connection::Connection(Descriptor socket, BulkSender* bulk)
    : socket_(std::move(socket)), bulk_(bulk), buffer_(kBufferBytes) {}

// Where the system does not say, what comes has the time at which we see it.
void Connection::date_arrivals() {
  const int on = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  dates_ = true;
}

// ---- out ----------------------------------------------------------------------------------------------
void Connection::queue(const Hello& hello) {
  Out out;
  out.hello = hello;
  out.plain_bytes = sizeof hello;
  queued_bytes_ += out.bytes();
  out_.push_back(out);
}

void Connection::queue(const LinkMessage& message, const ArrivalAges* ages) {
  Out out;
  out.header.kind = FrameKind::kMessage;
  out.header.control_bytes = ages != nullptr ? sizeof(Said) : sizeof message;
  out.said.message = message;
  if (ages != nullptr) out.said.ages = *ages;
  if (is_plain_report(message) && out_.size() > std::max<size_t>(lent_, written_ > 0 ? 1 : 0)) {
    Out& last = out_.back();
    if (last.header.kind == FrameKind::kMessage && is_plain_report(last.said.message)) {
      queued_bytes_ += out.bytes() - last.bytes();
      last = out;
      return;
    }
  }
  queued_bytes_ += out.bytes();
  out_.push_back(out);
}

void Connection::queue(const QueuePairs& answer) {
  Out out;
  out.answer = answer;
  out.plain_bytes = sizeof answer;
  queued_bytes_ += out.bytes();
  out_.push_back(out);
}

void Connection::give_up(const Hello& caller) {
  QueuePairs answer{};
  answer.gave_up = 1;
  if (caller.queue_pairs.count != 0) queue(answer);
  LinkMessage last{};
  last.kind = uint32_t(LinkMessageKind::kFailed);
  queue(last, nullptr);
  std::vector<uint64_t> none;
  flush(none);
}

bool Connection::queue(uint32_t epoch, uint64_t sequence, const Outgoing& transfer) {
  if (queued_bytes_ >= kMostQueuedBytes * (bulk_ != nullptr ? 2 : 1)) return false;
  STARLING_ASSERT(transfer.source == nullptr || *transfer.source == nullptr || !(*transfer.source)->on_device,
                  "a flow of what lies on a device has no sockets");
  Out out;
  out.header.kind = FrameKind::kTransfer;
  out.header.epoch = epoch;
  out.header.sequence = sequence;
  out.header.control_bytes = transfer.control_bytes;
  out.header.payload_bytes = transfer.payload_bytes;
  out.header.place[0] = transfer.place[0];
  out.header.place[1] = transfer.place[1];
  out.body = transfer;
  queued_bytes_ += out.bytes();
  out_.push_back(out);
  return true;
}

bool Connection::move_source(uint64_t sequence, const std::byte* to) {
  STARLING_ASSERT(lent_ == 0, "who sends large batches has none whose source moves");
  for (Out& out : out_)
    if (!out.plain_bytes && out.header.kind == FrameKind::kTransfer && out.header.sequence == sequence)
      out.body.payload = to;
  return true;
}

// What goes with the next call of the system, from the first byte that has not gone.
size_t Connection::gather(iovec* pieces, uint64_t& bytes) const {
  size_t count = 0;
  uint64_t skip = written_;
  bytes = 0;
  auto add = [&](const void* from, size_t length) {
    const size_t skipped = size_t(std::min<uint64_t>(skip, length));
    skip -= skipped;
    if (length == skipped) return;
    pieces[count++] = {static_cast<char*>(const_cast<void*>(from)) + skipped, length - skipped};
    bytes += length - skipped;
  };
  for (size_t k = 0; k < out_.size() && count + 3 <= BulkSender::kPieces && bytes < kMostQueuedBytes; ++k) {
    const Out& out = out_[k];
    if (out.plain_bytes) {
      add(&out.hello, out.plain_bytes);
      continue;
    }
    add(&out.header, sizeof out.header);
    const bool message = out.header.kind == FrameKind::kMessage;
    add(message ? static_cast<const void*>(&out.said) : out.body.control, out.header.control_bytes);
    add(out.body.payload, out.header.payload_bytes);
  }
  return count;
}

void Connection::account(uint64_t sent_bytes, std::vector<uint64_t>& sent) {
  written_ += sent_bytes;
  queued_bytes_ -= sent_bytes;
  while (!out_.empty() && written_ >= out_.front().bytes()) {
    const Out& out = out_.front();
    written_ -= out.bytes();
    if (!out.plain_bytes && out.header.kind == FrameKind::kTransfer) sent.push_back(out.header.sequence);
    out_.pop_front();
  }
}

int Connection::flush(std::vector<uint64_t>& sent) {
  if (lent_ > 0) {
    if (!BulkSender::returned(batch_)) return 0;
    lent_ = 0;
    account(batch_.sent_bytes, sent);
    if (batch_.error != 0) return batch_.error;
    if (batch_.sent_bytes < batch_.bytes) return 0;  // the socket is full
  }
  while (!out_.empty()) {
    uint64_t bytes = 0;
    msghdr header{};
    header.msg_iov = batch_.pieces;
    header.msg_iovlen = gather(batch_.pieces, bytes);
    if (bulk_ != nullptr && bytes >= kBulkBytes) {
      batch_.fd = socket_.get();
      batch_.count = header.msg_iovlen;
      batch_.bytes = bytes;
      lent_ = out_.size();  // more than are in it, perhaps
      bulk_->lend(batch_);
      return 0;
    }
    const ssize_t done = sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
    account(uint64_t(done), sent);
  }
  return 0;
}

// What has gone is not told any more: the path ends.
void Connection::recall() {
  if (lent_ > 0) BulkSender::recall(batch_);
  lent_ = 0;
}

// ---- in -----------------------------------------------------------------------------------------------
void Connection::expect(Part part, std::byte* to, size_t bytes) {
  part_ = part;
  to_ = to;
  missing_ = bytes;
}

void Connection::move_destination(const std::byte* from, uint64_t bytes, std::byte* to) {
  if (part_ == Part::kHeader || header_.kind != FrameKind::kTransfer) return;
  if (payload_ < from || payload_ >= from + bytes) return;
  if (part_ == Part::kPayload) to_ = to + (to_ - payload_);
  payload_ = to;
}

// Straight into place what is missing of a part, the rest into the buffer.
int Connection::fill(size_t& got) {
  begin_ = end_ = 0;
  const bool direct = part_ != Part::kHeader && missing_ > 0;
  iovec pieces[2] = {{to_, missing_}, {buffer_.data(), buffer_.size()}};
  alignas(cmsghdr) char about[CMSG_SPACE(sizeof(timespec))];
  msghdr header{};
  header.msg_iov = direct ? pieces : pieces + 1;
  header.msg_iovlen = direct ? 2 : 1;
  header.msg_control = dates_ ? about : nullptr;
  header.msg_controllen = dates_ ? sizeof about : 0;
  const ssize_t bytes = recvmsg(socket_.get(), &header, MSG_DONTWAIT);
  stamp_ns_ = bytes > 0 && dates_ ? stamp_in(header) : 0;
  at_ns_ = 0;
  asked_ = buffer_.size() + (direct ? missing_ : 0);
  got = 0;
  if (bytes == 0) return kEnded;
  if (bytes < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : errno;
  got = size_t(bytes);
  if (lent_ > 0) BulkSender::heard(batch_);
  const size_t placed = direct ? std::min(got, missing_) : 0;
  to_ += placed;
  missing_ -= placed;
  end_ = got - placed;
  return 0;
}

// Of all that the last read brought, as of its last byte: what then waited for this thread is not the
// network's.
uint64_t Connection::came_at_ns() {
  if (at_ns_ != 0 || !dates_) return at_ns_;
  at_ns_ = cpu::monotonic_ns();
  timespec wall{};
  if (stamp_ns_ == 0 || clock_gettime(CLOCK_REALTIME, &wall) != 0) return at_ns_;
  const int64_t waited_ns = ns_of(wall) - stamp_ns_;
  // A wall clock that was set meanwhile says nothing.
  if (waited_ns > 0 && waited_ns < kMostWaitNs) at_ns_ -= uint64_t(waited_ns);
  return at_ns_;
}

int Connection::read(FrameSink& sink) {
  for (int k = 0; k < kReadsInARow; ++k) {
    if (!parse(sink)) return kEnded;
    size_t got = 0;
    if (const int error = fill(got); error != 0) return error;
    const bool drained = got < asked_;
    if (!parse(sink)) return kEnded;
    if (got == 0 || drained) return 0;
  }
  return 0;
}

bool Connection::parse(FrameSink& sink) {
  for (;;) {
    const size_t bytes = std::min(missing_, end_ - begin_);
    if (bytes > 0) std::memcpy(to_, buffer_.data() + begin_, bytes);
    begin_ += bytes;
    to_ += bytes;
    missing_ -= bytes;
    if (missing_ > 0) return true;
    switch (part_) {
      case Part::kHeader:
        if (!begin_frame(sink)) return false;
        break;
      case Part::kControl: expect(Part::kPayload, payload_, header_.payload_bytes); break;
      case Part::kPayload: end_frame(sink); break;
    }
  }
}

bool Connection::begin_frame(FrameSink& sink) {
  std::byte* control = reinterpret_cast<std::byte*>(&said_);
  payload_ = nullptr;
  if (header_.kind != FrameKind::kMessage) {
    const char* wrong = wrong_with_transfer(header_, ~uint32_t(0));
    // Nobody writes into our memory beside a socket.
    if (wrong == nullptr && header_.placed != Placed::kInFrame)
      wrong = "a transfer that is placed by no device";
    if (wrong != nullptr) sink.refuse(wrong);
    if (wrong != nullptr || !sink.begin(header_, control, payload_)) return false;
  } else if (header_.payload_bytes != 0 ||
             (header_.control_bytes != sizeof(LinkMessage) && header_.control_bytes != sizeof(Said))) {
    sink.refuse("a message of no such length");
    return false;
  }
  expect(Part::kControl, control, header_.control_bytes);
  return true;
}

void Connection::end_frame(FrameSink& sink) {
  if (header_.kind == FrameKind::kTransfer)
    sink.end(header_, came_at_ns());
  else
    sink.message(said_.message,
                 {came_at_ns(), header_.control_bytes == sizeof(Said) ? &said_.ages : nullptr});
  expect(Part::kHeader, reinterpret_cast<std::byte*>(&header_), sizeof header_);
}

int Connection::read_plain(void* to, size_t bytes, bool& whole) {
  const ssize_t got = recv(socket_.get(), buffer_.data() + end_, bytes - end_, MSG_DONTWAIT);
  if (got == 0) return kEnded;
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : errno;
  end_ += size_t(got);
  whole = end_ == bytes;
  if (!whole) return 0;
  std::memcpy(to, buffer_.data(), bytes);
  end_ = 0;
  return 0;
}

int Connection::read_hello(Hello& hello, bool& whole) {
  const int error = read_plain(&hello, sizeof hello, whole);
  return error == 0 && whole && hello.magic != kHelloMagic ? kEnded : error;
}

int Connection::read_answer(QueuePairs& answer, bool& whole) {
  return read_plain(&answer, sizeof answer, whole);
}

}  // namespace starling::link::tcp
