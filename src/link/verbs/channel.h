// One incarnation of a path over queue pairs.
//
//   transfer   [RDMA write: payload, where its place is known and good by this path]  then
//              RDMA write with immediate: the frame (header, control, the payload else) into the receiver's
//              ring
//   message    send, on every queue pair of the path; it is heard when all have brought it, so that it comes
//   behind
//              the data of all
//   the socket that the path began with stays: the system closes it when a process ends, and the last word of
//   an
//              end that gives up goes by it, since queue pairs forget what waits in them when they are fenced
//
// The immediate names epoch and transfer as far as 32 bits do; the header has both whole. One thread's.
#pragma once
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "link/channel.h"
#include "link/tcp/connection.h"
#include "link/verbs/frame_ring.h"
#include "link/verbs/gids.h"
#include "link/verbs/queue_pair.h"
#include "link/verbs/undertaker.h"

namespace starling::link::verbs {

class VerbsChannel final : public Channel {
 public:
  struct Options {
    QueuePairSettings settings;
    uint32_t count;  // queue pairs
    uint64_t most_payload_bytes;
    bool sending;  // at the flow's sender: the other end has the ring
    uint64_t offers_void = 0;  // at its receiver
  };
  // Throws Error(system).
  VerbsChannel(const Device& device, const Gid& gid, const Options& options);
  ~VerbsChannel() override;

  const QueuePairs& ours() const { return ours_; }
  // False: the device refuses.
  bool connect(const QueuePairs& theirs, std::unique_ptr<tcp::Connection> socket);

  LinkKind kind() const override { return LinkKind::kVerbs; }
  int fd() const override { return poll_.get(); }
  void queue(const LinkMessage& message, const ArrivalAges* ages) override;
  bool queue(uint32_t epoch, uint64_t sequence, const Outgoing& transfer) override;
  void free_below(uint64_t acked) override;
  // What is not registered with the device was copied when it was queued; what is, the device may be reading.
  bool move_source(uint64_t sequence, const std::byte* to) override;
  PayloadBytes payloads() const override { return payloads_; }
  // What comes by the ring is placed when it is delivered. What the peer writes itself only the fence ends.
  void move_destination(const std::byte*, uint64_t, std::byte*) override {}
  bool waits_to_write() const override { return false; }
  int flush(std::vector<uint64_t>& sent) override;
  int read(FrameSink& sink) override;
  int fence(FrameSink& sink) override;
  const char* trouble() const override { return trouble_; }

 private:
  // What a queue pair brought.
  struct Item {
    std::optional<uint32_t> immediate;  // of a frame; none: a message
    LinkMessage message;
  };
  struct Lane {
    QueuePair* pair = nullptr;
    std::deque<Item> items;  // in order, not delivered
    FrameRing ring;  // at the receiver
    FrameQueue frames;  // at the sender
    // Likewise, in order: what the device reads until the transfer's completion.
    std::deque<std::pair<uint64_t, RegistrationPtr>> sources;
    uint32_t messages = 0;  // posted, not completed
    bool flushed = false;  // a receive came back unused: the queue pair takes nothing any more
  };

  Remains::Memory allocate(uint64_t bytes) const;
  void watch(int fd) const;
  void post_receive(uint32_t lane, uint32_t slot);
  void post(uint32_t lane, ibv_send_wr& first);
  void post_messages();
  uint32_t poll();
  void take(const ibv_wc& done);
  void take_receive(const ibv_wc& done, uint32_t lane, uint32_t slot);
  void deliver(FrameSink& sink, bool all);
  bool deliver_message(FrameSink& sink);
  void deliver_frame(FrameSink& sink, uint32_t lane, uint32_t immediate);
  bool drained() const;

  const Device& device_;
  const Library& library_;
  const Gid gid_;
  const Options options_;
  QueuePairs ours_{};
  QueuePairs theirs_{};
  tcp::Descriptor poll_;  // an epoll of both that follow
  std::unique_ptr<tcp::Connection> socket_;
  std::list<Remains> remains_;  // one, which the undertaker gets
  Remains& has_;
  std::vector<Lane> lanes_;
  std::deque<LinkMessage> messages_;  // not posted yet
  std::vector<uint64_t> sent_;
  PayloadBytes payloads_;
  int broken_ = 0;
  const char* trouble_ = "";
  bool fatal_ = false;  // a completion came that blames no path
  bool fenced_ = false;
};

}  // namespace starling::link::verbs
