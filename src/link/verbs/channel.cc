#include "link/verbs/channel.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "link/checks.h"
#include "link/verbs/completion.h"
#include "link/verbs/place.h"
#include "machine/cpu/futex.h"

namespace starling::link::verbs {
namespace {

constexpr uint32_t kMostMessages = 32;  // posted at once, of a queue pair
// Of the largest size. More than the transfers that a receiver may leave unreported (tcp/receiving_flow.cc):
// a full ring must not wait for a report that waits for more transfers.
constexpr uint32_t kRingFrames = 20;
// Not delivered, of a queue pair: those of one wait for the others', which are a window of transfers and
// kMostMessages behind at most.
constexpr size_t kMostItems = 4 * kReceives;
constexpr uint64_t kDrainNs = 50'000'000;
constexpr const char* kRemedy = "set STARLING_LINK=tcp, or allow more locked memory (ulimit -l)";

enum class Work : uint32_t { kReceive, kMessage, kTransfer, kPayload };

// A work request's number says what it was; of failed ones verbs tell nothing else.
uint64_t work_id(Work work, uint32_t lane, uint64_t number) {
  return number << 16 | uint64_t(lane) << 8 | uint64_t(work);
}
Work work_of(uint64_t id) { return Work(id & 255); }
uint32_t lane_of(uint64_t id) { return uint32_t(id >> 8 & 255); }
uint64_t number_of(uint64_t id) { return id >> 16; }

const char* work_text(Work work) {
  switch (work) {
    case Work::kReceive: return "receive";
    case Work::kMessage: return "message";
    case Work::kTransfer: return "transfer";
    case Work::kPayload: return "payload of transfer";
  }
  return "work";
}

uint32_t most_frame_bytes(uint64_t most_payload_bytes) {
  return uint32_t((sizeof(FrameHeader) + kMostControlBytes + most_payload_bytes + 63) & ~uint64_t{63});
}

bool is_plain_report(const LinkMessage& message) {
  return LinkMessageKind(message.kind) == LinkMessageKind::kReport && message.probe == 0;
}

}  // namespace

// ---- from nothing to connected --------------------------------------------------------------------------
VerbsChannel::VerbsChannel(const Device& device, const Gid& gid, const Options& options)
    : device_(device),
      library_(device.library()),
      gid_(gid),
      options_(options),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      has_(remains_.emplace_back(library_)),
      lanes_(options.count) {
  has_.events = library_.create_comp_channel(device.context());
  if (has_.events != nullptr)
    has_.queue = library_.create_cq(device.context(), int(options.count * (kSends + kReceives)), nullptr,
                                    has_.events, 0);
  if (!poll_ || has_.queue == nullptr ||
      fcntl(has_.events->fd, F_SETFL, fcntl(has_.events->fd, F_GETFL) | O_NONBLOCK) != 0)
    throw system_error("cannot make a completion queue on " + device.name(), kRemedy);
  watch(has_.events->fd);
  ours_.count = options.count;
  for (uint32_t k = 0; k < options.count; ++k) {
    has_.pairs.push_back(std::make_unique<QueuePair>(device, has_.queue));
    lanes_[k].pair = has_.pairs.back().get();
    ours_.numbers[k] = lanes_[k].pair->number();
  }
  has_.receives = allocate(uint64_t(options.count) * kReceives * sizeof(LinkMessage));
  ours_.first_packet = uint32_t(cpu::monotonic_ns() >> 10) & 0xffffff;
  std::memcpy(ours_.gid, gid.bytes, sizeof ours_.gid);
  ours_.lid = device.lid(gid.port);
  ours_.mtu = uint16_t(device.mtu(gid.port));
  if (options.sending) return;
  ours_.device = device.number();
  ours_.offers_void = options.offers_void;
  ours_.most_frame_bytes = most_frame_bytes(options.most_payload_bytes);
  ours_.ring_bytes = kRingFrames * ours_.most_frame_bytes;
  has_.ring = allocate(uint64_t(options.count) * ours_.ring_bytes);
  ours_.ring_address = reinterpret_cast<uint64_t>(has_.ring.bytes.get());
  ours_.ring_key = has_.ring.registered->remote_key();
  for (Lane& lane : lanes_) lane.ring = FrameRing(ours_.ring_bytes, ours_.most_frame_bytes);
}

VerbsChannel::~VerbsChannel() {
  for (Lane& lane : lanes_)
    for (auto& [sequence, source] : lane.sources) has_.sources.push_back(std::move(source));
  device_.undertaker().bury(remains_);
}

Remains::Memory VerbsChannel::allocate(uint64_t bytes) const {
  Remains::Memory memory;
  memory.bytes.reset(new std::byte[bytes]);
  memory.registered = device_.register_memory({memory.bytes.get(), bytes});
  if (memory.registered == nullptr)
    throw system_error("cannot register " + std::to_string(bytes) + " bytes with " + device_.name(), kRemedy);
  return memory;
}

void VerbsChannel::watch(int fd) const {
  epoll_event event{};
  event.events = EPOLLIN;
  if (epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    throw system_error("cannot watch a queue pair", "raise fs.epoll.max_user_watches");
}

bool VerbsChannel::connect(const QueuePairs& theirs, std::unique_ptr<tcp::Connection> socket) {
  theirs_ = theirs;
  socket_ = std::move(socket);
  if (theirs.count != options_.count) return false;
  for (uint32_t k = 0; k < options_.count; ++k)
    if (!lanes_[k].pair->connect({gid_.port, gid_.index, ours_.first_packet, ibv_mtu(ours_.mtu)}, theirs, k,
                                 options_.settings))
      return false;
  try {
    watch(socket_->fd());
    if (options_.sending) {
      // What we send has to fit, and as much is allocated here.
      const uint32_t most = most_frame_bytes(options_.most_payload_bytes);
      if (theirs.most_frame_bytes != most || theirs.ring_bytes != kRingFrames * most) return false;
      has_.ring = allocate(uint64_t(options_.count) * theirs.ring_bytes);
      for (Lane& lane : lanes_) lane.frames = FrameQueue(theirs.ring_bytes, theirs.most_frame_bytes);
    }
  } catch (const Error& error) {
    log(LogLevel::warn, error.what());
    return false;
  }
  for (uint32_t k = 0; k < options_.count; ++k)
    for (uint32_t slot = 0; slot < kReceives; ++slot) post_receive(k, slot);
  return ibv_req_notify_cq(has_.queue, 0) == 0 && broken_ == 0;
}

// ---- out ------------------------------------------------------------------------------------------------
void VerbsChannel::post_receive(uint32_t lane, uint32_t slot) {
  std::byte* at = has_.receives.bytes.get() + (uint64_t(lane) * kReceives + slot) * sizeof(LinkMessage);
  ibv_sge piece{reinterpret_cast<uint64_t>(at), sizeof(LinkMessage), has_.receives.registered->local_key()};
  ibv_recv_wr request{};
  request.wr_id = work_id(Work::kReceive, lane, slot);
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  if (ibv_post_recv(lanes_[lane].pair->get(), &request, &refused) == 0)
    ++lanes_[lane].pair->receives_posted;
  else
    broken_ = kTransferFailed;
}

void VerbsChannel::post(uint32_t lane, ibv_send_wr& first) {
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(lanes_[lane].pair->get(), &first, &refused) == 0)
    ++lanes_[lane].pair->sends_posted;
  else
    broken_ = kTransferFailed;
}

void VerbsChannel::queue(const LinkMessage& message, const ArrivalAges*) {
  if (LinkMessageKind(message.kind) == LinkMessageKind::kFailed) {
    socket_->queue(message, nullptr);
    std::vector<uint64_t> ignored;
    socket_->flush(ignored);
    return;
  }
  if (!messages_.empty() && is_plain_report(message) && is_plain_report(messages_.back()))
    messages_.back() = message;
  else
    messages_.push_back(message);
}

void VerbsChannel::post_messages() {
  const auto full = [&] {
    return std::any_of(lanes_.begin(), lanes_.end(),
                       [](const Lane& lane) { return lane.messages >= kMostMessages; });
  };
  while (!messages_.empty() && broken_ == 0 && !full()) {
    for (uint32_t k = 0; k < lanes_.size(); ++k) {
      ibv_sge piece{reinterpret_cast<uint64_t>(&messages_.front()), sizeof(LinkMessage), 0};
      ibv_send_wr request{};
      request.wr_id = work_id(Work::kMessage, k, 0);
      request.sg_list = &piece;
      request.num_sge = 1;
      request.opcode = IBV_WR_SEND;
      request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
      ++lanes_[k].messages;
      post(k, request);
    }
    messages_.pop_front();
  }
}

bool VerbsChannel::move_source(uint64_t sequence, const std::byte*) {
  const auto& sources = lanes_[sequence % lanes_.size()].sources;
  return std::none_of(sources.begin(), sources.end(),
                      [&](const auto& source) { return source.first == sequence; });
}

bool VerbsChannel::queue(uint32_t epoch, uint64_t sequence, const Outgoing& transfer) {
  post_messages();  // what was sent before comes before
  const auto index = uint32_t(sequence % lanes_.size());
  Lane& lane = lanes_[index];
  const bool registered = transfer.source != nullptr && *transfer.source != nullptr;
  const uint32_t source_key =
      registered && device_.number() < kMaxRdmaDevices ? (*transfer.source)->local_keys[device_.number()] : 0;
  if (registered && source_key == 0 && (*transfer.source)->on_device) {
    broken_ = kTransferFailed;
    trouble_ = "the device came after a GPU's memory was registered";
    return false;
  }
  const bool placed = transfer.payload_bytes > 0 && source_key != 0 && is_good(transfer.remote, theirs_);
  const uint64_t frame_bytes =
      sizeof(FrameHeader) + transfer.control_bytes + (placed ? 0 : transfer.payload_bytes);
  STARLING_ASSERT(frame_bytes <= theirs_.most_frame_bytes, "a transfer fits in the receiver's ring");
  if (!messages_.empty() || broken_ != 0 || lane.pair->sends_posted + kMostMessages + 2 > kSends / 2 ||
      !lane.frames.has_room(frame_bytes))
    return false;

  const uint64_t at = uint64_t(index) * theirs_.ring_bytes + lane.frames.add(sequence, frame_bytes);
  std::byte* frame = has_.ring.bytes.get() + at;
  FrameHeader header{};
  header.kind = FrameKind::kTransfer;
  header.epoch = epoch;
  header.sequence = sequence;
  header.control_bytes = transfer.control_bytes;
  header.payload_bytes = transfer.payload_bytes;
  header.place[0] = transfer.place[0];
  header.place[1] = transfer.place[1];
  if (placed) header.placed = transfer.remote.placed;
  std::memcpy(frame, &header, sizeof header);
  if (transfer.control_bytes > 0)
    std::memcpy(frame + sizeof header, transfer.control, transfer.control_bytes);

  // The frame's head from the ring; the payload from where it lies, or from the ring as well.
  const uint32_t ring_key = has_.ring.registered->local_key();
  const auto head_bytes = uint32_t(sizeof header + transfer.control_bytes);
  ibv_sge pieces[2] = {{reinterpret_cast<uint64_t>(frame), head_bytes, ring_key},
                       {reinterpret_cast<uint64_t>(transfer.payload), transfer.payload_bytes, 0}};
  if (transfer.payload_bytes > 0 && source_key != 0) {
    pieces[1].lkey = source_key;
    lane.sources.emplace_back(sequence, *transfer.source);
  } else if (transfer.payload_bytes > 0) {
    std::memcpy(frame + head_bytes, transfer.payload, transfer.payload_bytes);
    pieces[1] = {pieces[0].addr + head_bytes, transfer.payload_bytes, ring_key};
  }
  (placed ? payloads_.straight : payloads_.copied) += transfer.payload_bytes;
  ibv_send_wr frame_write{};
  frame_write.wr_id = work_id(Work::kTransfer, index, sequence);
  frame_write.sg_list = pieces;
  frame_write.num_sge = transfer.payload_bytes > 0 && !placed ? 2 : 1;
  frame_write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  frame_write.send_flags = IBV_SEND_SIGNALED;
  frame_write.imm_data = htobe32(immediate_of(epoch, sequence));
  frame_write.wr.rdma.remote_addr = theirs_.ring_address + at;
  frame_write.wr.rdma.rkey = theirs_.ring_key;
  ibv_send_wr payload_write{};
  payload_write.wr_id = work_id(Work::kPayload, index, sequence);
  payload_write.next = &frame_write;
  payload_write.sg_list = pieces + 1;
  payload_write.num_sge = 1;
  payload_write.opcode = IBV_WR_RDMA_WRITE;
  payload_write.wr.rdma.remote_addr = transfer.remote.address;
  if (placed) payload_write.wr.rdma.rkey = transfer.remote.keys.of[theirs_.device];
  post(index, placed ? payload_write : frame_write);
  return true;
}

void VerbsChannel::free_below(uint64_t acked) {
  for (Lane& lane : lanes_) lane.frames.free_below(acked);
}

int VerbsChannel::flush(std::vector<uint64_t>& sent) {
  post_messages();
  sent.insert(sent.end(), sent_.begin(), sent_.end());
  sent_.clear();
  return broken_;
}

// ---- in -------------------------------------------------------------------------------------------------
int VerbsChannel::read(FrameSink& sink) {
  const int ended = socket_->read(sink);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  unsigned heard = 0;
  while (library_.get_cq_event(has_.events, &queue, &context) == 0) ++heard;
  if (heard > 0) library_.ack_cq_events(has_.queue, heard);
  // Asked for before the last look: what completes after that look is told.
  if (ibv_req_notify_cq(has_.queue, 0) != 0) broken_ = kTransferFailed;
  poll();
  deliver(sink, false);
  return broken_ != 0 ? broken_ : ended;
}

uint32_t VerbsChannel::poll() {
  ibv_wc done[16];
  uint32_t total = 0;
  for (;;) {
    const int count = ibv_poll_cq(has_.queue, std::size(done), done);
    for (int k = 0; k < count; ++k) take(done[k]);
    total += uint32_t(std::max(count, 0));
    if (count < int(std::size(done))) return total;
  }
}

void VerbsChannel::take(const ibv_wc& done) {
  const uint32_t index = lane_of(done.wr_id);
  Lane& lane = lanes_[index];
  const bool first_fatal = !fatal_ && classify(done.status) == Completion::kFatal;
  fatal_ |= first_fatal;
  if (first_fatal || (done.status != IBV_WC_SUCCESS && broken_ == 0 && !fenced_)) {
    if (!fenced_) broken_ = fatal_ ? EFAULT : kTransferFailed;
    trouble_ = library_.status_text(done.status);
    log(first_fatal ? LogLevel::warn : LogLevel::info, device_.name(), ": ", work_text(work_of(done.wr_id)),
        " ", number_of(done.wr_id), " failed: ", trouble_);
  }
  switch (work_of(done.wr_id)) {
    case Work::kReceive:
      --lane.pair->receives_posted;
      if (done.status == IBV_WC_SUCCESS)
        take_receive(done, index, uint32_t(number_of(done.wr_id)));
      else
        lane.flushed = true;
      return;
    case Work::kMessage:
      --lane.pair->sends_posted;
      --lane.messages;
      return;
    case Work::kTransfer:
      --lane.pair->sends_posted;
      if (done.status != IBV_WC_SUCCESS) return;
      lane.frames.complete_next();
      if (!lane.sources.empty() && lane.sources.front().first == number_of(done.wr_id))
        lane.sources.pop_front();
      sent_.push_back(number_of(done.wr_id));
      return;
    case Work::kPayload: return;  // failed: the frame behind it fails, too
  }
}

void VerbsChannel::take_receive(const ibv_wc& done, uint32_t lane, uint32_t slot) {
  Item item{};
  if (done.wc_flags & IBV_WC_WITH_IMM) {
    item.immediate = be32toh(done.imm_data);
  } else {
    // Shorter: the rest would be an older message's.
    if (done.byte_len != sizeof(LinkMessage)) broken_ = kEnded;
    std::memcpy(&item.message,
                has_.receives.bytes.get() + (uint64_t(lane) * kReceives + slot) * sizeof(LinkMessage),
                sizeof item.message);
  }
  if (lanes_[lane].items.size() >= kMostItems) broken_ = kEnded;
  if (broken_ == kEnded) return;
  lanes_[lane].items.push_back(item);
  if (!fenced_) post_receive(lane, slot);
}

// `all`: messages that have not come by every queue pair will never, and hold nothing back.
void VerbsChannel::deliver(FrameSink& sink, bool all) {
  do {
    for (uint32_t k = 0; k < lanes_.size(); ++k) {
      std::deque<Item>& items = lanes_[k].items;
      while (!items.empty() && (items.front().immediate || all)) {
        if (items.front().immediate) deliver_frame(sink, k, *items.front().immediate);
        items.pop_front();
      }
    }
  } while (deliver_message(sink));
}

bool VerbsChannel::deliver_message(FrameSink& sink) {
  for (const Lane& lane : lanes_)
    if (lane.items.empty()) return false;
  sink.message(lanes_.front().items.front().message, {});
  for (Lane& lane : lanes_) lane.items.pop_front();
  return true;
}

void VerbsChannel::deliver_frame(FrameSink& sink, uint32_t index, uint32_t immediate) {
  if (broken_ == kEnded || options_.sending) return;
  Lane& lane = lanes_[index];
  const std::byte* frame = has_.ring.bytes.get() + uint64_t(index) * ours_.ring_bytes + lane.ring.next();
  FrameHeader header;
  std::memcpy(&header, frame, sizeof header);
  const bool placed = header.placed != Placed::kInFrame;
  const uint64_t bytes = sizeof header + uint64_t(header.control_bytes) + (placed ? 0 : header.payload_bytes);
  std::byte* control = nullptr;
  std::byte* payload = nullptr;
  // Of an earlier frame the completion was lost, as Soft-RoCE may: we are not where this one lies. No fault
  // of the peer's, and what was not acknowledged goes by another path.
  if (immediate_of(header.epoch, header.sequence) != immediate) {
    trouble_ = "a frame is not what its write said";
    log(LogLevel::info, device_.name(), ": ", trouble_);
    broken_ = kEnded;
    return;
  }
  const char* wrong = wrong_with_transfer(header, options_.most_payload_bytes);
  if (wrong == nullptr && bytes > ours_.most_frame_bytes) wrong = "a frame that is longer than any";
  if (wrong != nullptr) sink.refuse(wrong);
  if (wrong != nullptr || !sink.begin(header, control, payload)) {
    broken_ = kEnded;
    return;
  }
  lane.ring.pass(bytes);
  if (header.control_bytes > 0) std::memcpy(control, frame + sizeof header, header.control_bytes);
  if (header.payload_bytes > 0 && !placed)
    std::memcpy(payload, frame + sizeof header + header.control_bytes, header.payload_bytes);
  sink.end(header, 0);
}

// ---- the fence --------------------------------------------------------------------------------------------
bool VerbsChannel::drained() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return lane.pair->receives_posted == 0 && lane.pair->sends_posted == 0;
  });
}

// Error, drained: a write that reached the memory has its completion, and is told; a queue pair in that state
// takes nothing more, and its last receive is flushed behind the last write.
int VerbsChannel::fence(FrameSink& sink) {
  if (fenced_) return 0;
  fenced_ = true;
  for (const Lane& lane : lanes_) lane.pair->stop();
  const uint64_t end_ns = cpu::monotonic_ns() + kDrainNs;
  while (poll() > 0 || !drained()) {
    if (drained()) break;
    // Soft-RoCE may forget a completion: what landed without one was told nobody, and is sent again
    // elsewhere.
    if (cpu::monotonic_ns() > end_ns) {
      log(LogLevel::info, device_.name(), ": completions are missing after a queue pair was stopped");
      break;
    }
    sched_yield();
  }
  // Without a word that nothing lands any more the queue pairs have to be gone; with it, the undertaker has
  // time.
  const bool told =
      std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.flushed; }) && drained();
  if (!told) {
    for (const Lane& lane : lanes_) lane.pair->destroy();
    poll();
  }
  deliver(sink, true);
  return fatal_ ? EFAULT : 0;
}

}  // namespace starling::link::verbs
