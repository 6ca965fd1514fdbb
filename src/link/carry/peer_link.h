// All that goes between this rank and one rank of another host: two flows, and what they carry for lanes.
//
// Who calls. Hosts call open_lane() to forget(), with the context's lock held; the proxy's thread the rest.
// All under the proxy's lock, which nobody holds for longer than a pass over the lanes.
//
// What is carried, in the order in which it is looked at and sent, so that the peer's hosts and blocks see
// things in an order that could be seen on one host:
//   1. read: the last words of our hosts in the peer's regions (fault, met, out, closed), then `posted` and
//      `granted` of our blocks, all acquired
//   2. sent: what is new on our boards; a message's operation was on the board before it was posted
//   3. sent: messages and grants; what our blocks did before a host's last word was read in 1 comes before it
//   4. sent: those words
#pragma once
#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/carry/channels.h"
#include "link/carry/shadow.h"
#include "link/tcp/both_ways.h"

namespace starling::link::carry {

// What a rank's links have in common.
struct Common {
  cpu::Arena& arena;
  tcp::Reactor& reactor;
  Upgrades* upgrades;  // none: sockets
  tcp::BulkSender* bulk;  // null: the proxy's thread sends all itself
  tcp::TimerLengths lengths;
  Policy policy;
  uint64_t identity;
  uint64_t shadow_bytes;
  int event_fd;
  // The proxy saw two ranks do different things in one place of a lane: hosts compare again.
  std::atomic<bool>& mismatch;
  bool recorded;  // transfers, for watchers
  bool polls;  // the proxy looks again at once
};

uint64_t identity_of(const std::string& arena);

// Messages of a connector: `first`, and so many in all, each `stride` behind the one before.
struct Messages {
  uint64_t first;
  uint64_t count;
  uint64_t stride = 1;

  uint64_t end() const { return first + (count - 1) * stride + 1; }
  // What is before the first one is huge.
  bool has(uint64_t message) const {
    return (message - first) % stride == 0 && (message - first) / stride < count;
  }
  uint64_t place_of(uint64_t message) const { return (message - first) / stride; }
};

// Where they are wanted: each at the end of the one before.
struct Landing {
  Messages messages;
  std::byte* to;
  uint64_t message_bytes;  // of each but the last one
  uint64_t bytes;  // of all
};

// How much was of a lane's slots.
struct RegisteredBytes {
  uint64_t pinned = 0;
  uint64_t on_device = 0;
};

// They are sent from registered memory.
struct Loan {
  Messages messages;
  RegistrationPtr source;
};

class PeerLink final : private tcp::TransferSource, private tcp::TransferSink {
 public:
  PeerLink(const Common& common, const RemoteRank& remote, std::vector<std::pair<tcp::Port, tcp::Port>> paths,
           uint64_t now_ns);

  const std::string& shadow_name() const { return shadow_.name(); }
  uint64_t identity() const { return identity_; }
  uint32_t peer_rank() const { return peer_rank_; }
  // Why nothing passes any more; "" while something can.
  std::string failure() const { return failure_; }

  // A region of ours is there, with these connectors (null: it has none). Gives the number to name it by.
  uint32_t open_lane(LaneShared* own, std::shared_ptr<Channels> channels, const OpenRecord& description);
  // Our region `lane` is used with this one of the peer's. slots: what is registered of its channels.
  void pair(uint32_t lane, LaneShared* theirs, RegistrationPtr slots);
  // What would be gained by it: their memory where it should be registered, or null. must: the peer's slots
  // are on its device, so nothing can be sent without it.
  const Channels* straight_channels(uint32_t lane, const LaneShared* theirs, bool& must) const;
  // Is all that goes either way over queue pairs? None: nobody knows yet.
  std::optional<bool> has_only_queue_pairs() const;
  void unpublish(uint32_t lane);
  RegisteredBytes forget(uint32_t lane);
  // Messages that our region's channel will get, in order of the first ones. What has begun to come before
  // the call goes into slots. memory: of the landing, or null; with it the peer is offered to write there
  // itself, where there are no others in between.
  void expect(uint32_t lane, uint32_t channel, const Landing& landing, RegistrationPtr memory);
  // What messages of ours will name, in order of the first ones, is registered.
  void lend(uint32_t lane, uint32_t channel, Loan loan);
  // From here on nobody reads what messages of ours name, and nothing lands but in slots. What was named is
  // sent all the same: the peer must not take anything else for it.
  void take_back(uint32_t lane);
  // To take the lane's buffers back now would break paths: the peer may write there by itself, or a device
  // may read there. It ends by itself where the peer leaves the lane and all that was sent has come.
  bool is_used_by_devices(uint32_t lane) const;

  // Throws what ReceivingFlow::adopt() does.
  void adopt(const Hello& hello, std::unique_ptr<tcp::Connection> connection, const tcp::Port& port,
             uint64_t now_ns);
  // After an exception amid its work: nothing of the flows is sure any more, so they end, and with them every
  // operation that waits for this rank. Throws nothing.
  void lose_by(const std::exception& why) noexcept;
  void port_changed(uint32_t interface_index, bool up);
  // Takes what is new here, sends it, and does what time asks for. True if there was anything.
  bool round(uint64_t now_ns);
  uint64_t next_deadline() const;
  void listen() { shadow_.listen(); }
  void silence() { shadow_.silence(); }

  // Some path goes over queue pairs: memory that is registered need not be copied.
  bool sends_by_rdma() const { return sending_ && sending_->has_queue_pairs(); }
  bool receives_by_rdma() const { return receiving_ && receiving_->has_queue_pairs(); }
  // Large messages are on their way, in either direction. Not: wanted, of a peer that has not begun.
  bool is_bulky() const { return !gone() && (named_ > 0 || coming_ > 0); }

  // Says that this rank leaves. Nobody uses its lanes any more.
  void leave();
  // Transfers that have not reached the peer; 0 if it does not listen any more.
  uint64_t unsaid() const { return gone() ? 0 : transfers_.size(); }

 private:
  struct Wanted {
    Landing landing;
    RegistrationPtr memory;
    bool comes = false;  // a message of it does, or did
    bool offered = false;  // the peer may write there
  };
  struct Landings {
    std::deque<Wanted> wanted;  // until all that they want was published
    // [message % kMaxCredits]: 1 + number of the message that began to come last. All of it goes where its
    // first piece went.
    uint64_t begun[kMaxCredits] = {};
  };
  struct OwnLane {
    LaneShared* shared;
    std::shared_ptr<Channels> channels;
    OpenRecord description;
    uint32_t peer;  // the peer's rank in the lane
    uint64_t next_board = 0;
    uint64_t submitted = 0;
    bool fault_told = false;
    bool mismatch = false;  // nothing of it is published any more
    bool closed = false;  // the peer has said that it looks at it no more
    std::vector<Landings> landings = {};  // by channel
    bool offers_due = false;  // a landing may not have been offered
    RegistrationPtr slots = nullptr;
    std::vector<std::deque<Loan>> loans = {};  // by channel: of messages that are not transfers yet
    std::vector<std::deque<OfferRecord>> offers = {};  // likewise, of the peer
  };
  struct TheirLane {
    LaneShared* shadow;
    OpenRecord description;
    uint32_t number;
    OwnLane* own = nullptr;
    std::vector<Carried> carried;  // by channel; none before it is paired, or where ours has another shape
    SlotsRecord slots{};
    uint64_t fault_seen = 0, met = 0, met_seen = 0, out_seen = 0, closed_seen = 0;
    bool fault_known = false, out_told = false, closed_told = false;
  };
  struct Transfer {
    std::vector<std::byte> control;
    std::shared_ptr<Channels> channels;  // that the payload lies in
    const std::byte* payload = nullptr;
    uint32_t payload_bytes = 0;
    MessagePlace place{};
    RegistrationPtr source;  // of the payload
    RemotePlace remote{};
    bool named = false;  // the payload is its caller's, not in a slot
    uint64_t taken = 0;  // so many messages of the channel are here no more when this one has landed
    std::vector<std::byte> copy = {};  // that the payload lies in since it was taken back
  };

  // Room for why a link ended that is there before memory is short.
  static constexpr size_t kMostFailureBytes = 1024;

  bool gone() const { return left_ || !failure_.empty(); }

  // What our side does (peer_link.cc).
  bool scan(uint64_t now_ns);
  bool waits_for_messages(uint64_t now_ns);
  bool has_news_of_board(const OwnLane& lane) const;
  void read_words(TheirLane& lane);
  void read_counters(TheirLane& lane);
  void tell_boards(uint32_t number, OwnLane& lane);
  void tell_offers(TheirLane& lane);
  // The peer may write to where a message of the lane is wanted.
  static bool is_written_by_peer(const OwnLane& lane);
  void tell_messages(TheirLane& lane);
  RegistrationPtr source_of(OwnLane& lane, uint32_t channel, uint64_t message, bool named);
  RemotePlace place_of(TheirLane& lane, uint32_t channel, const CarriedMessage& message, uint32_t bytes);
  static void note_taken(const Channels& channels, uint32_t channel, uint64_t taken, ArenaHeader* own);
  void tell_grants(TheirLane& lane);
  void tell_words(TheirLane& lane);
  void tell_waiting();
  template <class Body>
  void tell(RecordKind kind, uint32_t lane, const Body& body);
  void close_batch();
  void check_flows();
  void lose(const std::string& failure);
  bool end_by_nonsense();
  // Slots of a lane are on a device.
  void leave_sockets();
  void tell_slots(uint32_t number, const OwnLane& lane);
  void end_shadow();

  // What comes from the peer (arrivals.cc).
  std::byte* destination(const FrameHeader& header) override;
  void accept(const FrameHeader& header, const std::byte* control) override;
  void refuse(const char* what) override;  // of both flows
  void apply(const RecordHeader& record, const std::byte* body);
  void apply_to_theirs(const RecordHeader& record, const std::byte* body);
  void apply_to_own(const RecordHeader& record, const std::byte* body);
  void post_board(TheirLane& lane, const BoardRecord& board);
  void compare(TheirLane& lane, const BoardRecord& board);
  void open_theirs(uint32_t number, const OpenRecord& open);
  void take_grants(OwnLane& lane, const GrantsRecord& grants);
  void take_offer(OwnLane& lane, const OfferRecord& offer);
  const char* wrong_with_place(const MessagePlace& place, uint32_t bytes) const;
  void publish(const MessagePlace& place, uint32_t bytes);
  std::byte* landing_of(OwnLane& lane, const MessagePlace& place, uint64_t at, const FrameHeader& header);
  OwnLane* own_lane(uint32_t number) { return number < own_.size() ? own_[number].get() : nullptr; }

  Outgoing transfer(uint64_t sequence) override;

  const Common common_;
  const uint64_t identity_;
  const uint32_t peer_rank_;
  Shadow shadow_;
  std::vector<std::unique_ptr<OwnLane>> own_;  // by our number
  std::vector<std::unique_ptr<TheirLane>> theirs_;  // by the peer's number
  std::deque<Transfer> transfers_;  // not acknowledged; the first one is number `first_`
  uint64_t first_ = 0;
  uint64_t named_ = 0;  // of them
  // Of what came: a message of several pieces, or the last one that was wanted where it is. Its sender may
  // wait for its buffer.
  bool awaited_ = false;
  uint64_t offers_ = 0;  // that were made
  uint64_t offers_heard_ = 0;  // number of the peer's last one
  uint64_t coming_ = 0;  // landings to which something comes, of all lanes
  std::vector<std::byte> batch_;  // records that go with the next transfer
  // What the peer said that makes no sense: round() ends the link. Null: nothing.
  const char* wrong_ = nullptr;
  uint32_t policy_ = 0;  // of the peer's first hello
  // A message came in a frame whose slot is on our device: round() ends the link.
  bool copied_for_device_ = false;
  uint64_t waiting_version_ = 0;
  uint64_t held_since_ns_ = 0;  // what may go with a message waits for one; 0: nothing does
  std::vector<std::byte> nowhere_;  // for what comes to a lane that is gone
  std::optional<tcp::SendingFlow> sending_;
  std::optional<tcp::ReceivingFlow> receiving_;
  bool left_ = false;  // the peer
  const std::string ports_;  // of all paths, for lose_by()
  std::string failure_;
};

}  // namespace starling::link::carry
