// A flow over a network that somebody else steers: both ends, all paths between them, and the program that
// writes and reads, as one plain state. What can happen next is a list of actions, chosen exhaustively
// (explore.h) or by a seed (walk.h). No time: a timer may end when nothing else is certain to happen, or
// early, as a fault.
//
// A path keeps order in each direction. A broken direction may still carry what is in it, late, or never; its
// sender may hear of it by a failed completion, by a port event at either end, by a reset, or not at all.
// Only what a whole path carries is certain to come. A transfer reads its source when it lands, as late as
// hardware may, and writes a slot that is used again for transfer k + slots: what comes too late or twice
// damages another's bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "link/core.h"
#include "link/shares.h"

namespace starling::link::sim {

inline constexpr uint32_t kQueueItems = 8;  // under way on a path in one direction
inline constexpr uint32_t kSimPaths = 3;
inline constexpr uint32_t kMostSlots = 8;
inline constexpr uint32_t kMostGhosts = 6;

struct FlowSetup {
  uint32_t paths = 2;
  Policy policy = Policy::kPrimaryBackup;
  uint32_t transfers = 3;  // 64 at most
  uint32_t slots = 2;  // of the source and of the destination
  uint32_t faults = 1;  // budget: breaks, losses, doubles, overtakings, early timers
  uint32_t probation = 1;
  // Striping: transfers differ in length, and the link refuses one for which another path has less under way,
  // as TCP's does.
  bool by_bytes = false;
  // Which of them.
  bool breaks = true;
  bool losses = true;  // of single items, doubled and overtaking messages
  bool early_timers = true;
  bool refusals = false;  // completions that blame no path, at either end, one less than end a flow
  bool dying = false;  // one end may die, once, without cost
  // What may come of a break, beside silence.
  bool late = true;  // what is under way comes all the same
  bool completions = true;  // fail at the sender
  bool events = true;  // of the port, at either end
  bool resets = true;  // of the connection, at either end
  bool heals = true;  // it may also end: the connection goes on, or can be made anew
  // For showing what the rules are for.
  bool fence = true;  // false: what was under way when a receiver closes a path may land later
  bool check_epochs = true;  // false: only wrong bytes count
};

struct Item {
  uint64_t sequence;
  uint32_t epoch;  // of data; 0: a message
  uint32_t reserved;
  LinkMessage message;
};

struct Queue {
  uint32_t count;
  uint32_t reserved;
  Item items[kQueueItems];
};

enum Direction : uint8_t { kForward = 1, kReverse = 2 };  // from the flow's sender, to it

struct SimPath {
  uint32_t connection;  // incarnation whose items are in the queues
  uint32_t sender_open;  // incarnation that is open at each end; 0: none
  uint32_t receiver_open;
  uint32_t opening;  // asked for by the sender; 0: none
  uint32_t outstanding;  // transfers posted and not completed
  uint8_t sender_closing;
  uint8_t receiver_closing;
  uint8_t sender_connects;  // `opened` is on its way to the sender
  uint8_t down;  // no new connection can be made
  uint8_t broken;  // Directions of the connection that carry nothing for certain
  uint8_t sender_event;  // a port event may be reported
  uint8_t receiver_event;
  uint8_t reserved[5];
  Queue forward;
  Queue reverse;
};

struct Ghost {  // a write that outlived its path
  uint64_t sequence;
  uint32_t epoch;
  uint8_t value;
  uint8_t reserved[3];
};

enum Dead : uint32_t { kNobody, kReceiver, kSender };

struct NetworkHead {
  SenderState sender;
  ReceiverState receiver;
  uint64_t consumed;
  uint64_t most_done;
  uint64_t landed;  // bit k: transfer k did
  uint32_t sender_timers;  // armed: bit timer_bit()
  uint32_t receiver_timers;
  uint32_t faults;  // so many are left
  uint32_t dead;  // Dead
  uint32_t ghost_count;
  uint32_t refusals;  // so many came
  HeardLandings heard;  // by the sender's link; by_bytes
  uint8_t source[kMostSlots];
  uint8_t destination[kMostSlots];
  Ghost ghosts[kMostGhosts];
};
struct NetworkState : NetworkHead {
  SimPath paths[kSimPaths];
};

enum class ActionKind : uint8_t {
  // Certain to happen, some time.
  kSenderClosed,
  kReceiverClosed,
  kOpenFailed,
  kConnect,
  kSenderConnected,
  kCarryForward,
  kCarryReverse,
  kConsume,
  // May happen.
  kLateForward,
  kLateReverse,
  kFailCompletion,
  kResetSender,
  kResetReceiver,
  kSenderEvent,
  kReceiverEvent,
  kHeal,
  kRevive,
  kGhost,
  kTimer,
  // Faults.
  kBreak,
  kLoseForward,
  kLoseReverse,
  kDoubleForward,
  kDoubleReverse,
  kOvertake,
  kEarlyTimer,
  kRefuse,
  kDie,
};

struct Action {
  ActionKind kind;
  uint8_t path;
  uint8_t detail;  // kBreak: Directions; kTimer: bit, + 32 for the receiver's; kGhost: which; kRefuse: the
                   // Direction whose end hears of it; kDie: Dead
};

class Network {
 public:
  Network(const FlowSetup& setup, const FlowCore& core);

  // Everything that can happen now. Certain ones first.
  void actions(std::vector<Action>& out) const;
  static bool is_certain(ActionKind kind) { return kind <= ActionKind::kConsume; }
  static bool is_fault(ActionKind kind) { return kind >= ActionKind::kBreak; }

  // Does it, and checks everything. Empty: all is well.
  std::string apply(Action action);

  bool is_over() const;  // all delivered, or ended with an error where an end died
  uint64_t hash() const;

  NetworkState& state() { return state_; }
  const NetworkState& state() const { return state_; }
  const FlowSetup& setup() const { return *setup_; }

  static std::string text(Action action);
  std::string summary() const;  // both ends in a line

 private:
  class SenderSide;
  class ReceiverSide;

  void to_sender(const Event& event);
  void to_receiver(const Event& event);
  bool takes_its_share(uint32_t p) const;
  bool can_carry_forward(const SimPath& path) const;
  bool can_carry_reverse(const SimPath& path) const;
  void certain_actions(std::vector<Action>& out) const;
  void possible_actions(std::vector<Action>& out, bool quiescent) const;
  void faults(std::vector<Action>& out, bool quiescent) const;
  void timers(std::vector<Action>& out, ActionKind kind) const;
  void perform(Action action);
  void carry(uint32_t p, Queue& queue, uint32_t index, bool keep);
  void land(const Item& item, uint8_t value);
  void close_receiver(uint32_t p);
  void connect(uint32_t p);
  void break_path(uint32_t p, uint8_t directions);
  void fire(uint8_t detail);
  void use_data();
  void check();
  void forget_the_irrelevant(NetworkHead& head) const;
  void report(const std::string& problem);

  NetworkState state_{};
  const FlowSetup* setup_;
  const FlowCore* core_;
  std::string problem_;
};

}  // namespace starling::link::sim
