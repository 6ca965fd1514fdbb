// Goal: what each end of a flow does in the cases that have a name: a fatal completion, a dead port,
// failback, both rails of a striped flow, no path left, a peer that has nothing to send. Method: both shipped
// ends over the simulated network, steered by hand; otherwise everything certain happens at once.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "link/failure_text.h"
#include "link/path.h"
#include "link/receiver.h"
#include "link/sender.h"
#include "link/sim/network.h"

namespace starling::link::sim {
namespace {

class Failover : public testing::Test {
 protected:
  void start(FlowSetup setup) {
    setup_ = setup;
    network_.emplace(setup_, shipped_flow_core());
  }
  SenderState& sender() { return network_->state().sender; }
  ReceiverState& receiver() { return network_->state().receiver; }
  void apply(Action action) { ASSERT_EQ(network_->apply(action), ""); }

  // Until nothing is certain any more.
  void settle() {
    for (network_->actions(actions_); !actions_.empty() && Network::is_certain(actions_[0].kind);
         network_->actions(actions_))
      ASSERT_EQ(network_->apply(actions_[0]), "");
  }
  bool can(ActionKind kind, uint8_t path, uint8_t detail = 0) {
    network_->actions(actions_);
    return std::any_of(actions_.begin(), actions_.end(), [&](const Action& action) {
      return action.kind == kind && action.path == path && action.detail == detail;
    });
  }
  // Every timer that is armed ends, once; all that comes of it happens.
  void pass_time() {
    network_->actions(actions_);
    std::vector<Action> timers;
    std::copy_if(actions_.begin(), actions_.end(), std::back_inserter(timers),
                 [](const Action& action) { return action.kind == ActionKind::kTimer; });
    for (const Action& timer : timers) {
      if (!can(ActionKind::kTimer, timer.path, timer.detail)) continue;
      apply(timer);
      settle();
    }
  }

  FlowSetup setup_;
  std::optional<Network> network_;
  std::vector<Action> actions_;
};

TEST_F(Failover, AFailedCompletionMovesTheFlowToTheBackup) {
  start({.transfers = 6});
  apply({ActionKind::kCarryForward, 0, 0});
  apply({ActionKind::kBreak, 0, kForward | kReverse});
  apply({ActionKind::kFailCompletion, 0, 0});
  EXPECT_EQ(sender().phase, SenderPhase::kFencing);
  EXPECT_EQ(sender().epoch, 2u);
  settle();
  EXPECT_TRUE(network_->is_over());
  EXPECT_EQ(sender().use, bit(1));
  EXPECT_EQ(receiver().epoch, 2u);
}

TEST_F(Failover, AHealedPrimaryIsTakenBackOnceItHasProvedGood) {
  start({.transfers = 40, .probation = 3});
  apply({ActionKind::kBreak, 0, kForward | kReverse});
  apply({ActionKind::kSenderEvent, 0, 0});
  EXPECT_EQ(sender().phase, SenderPhase::kFencing);
  apply({ActionKind::kSenderClosed, 0, 0});
  apply({ActionKind::kHeal, 0, 0});
  uint64_t done = receiver().done;
  while (sender().paths[0].condition != PathCondition::kUp) {
    if (sender().paths[0].condition == PathCondition::kClosed) apply({ActionKind::kTimer, 0, 3 + kMaxPaths});
    network_->actions(actions_);
    ASSERT_TRUE(Network::is_certain(actions_[0].kind)) << network_->summary();
    apply(actions_[0]);
    EXPECT_GE(receiver().done, done);
    done = receiver().done;
  }
  settle();
  EXPECT_EQ(sender().epoch, 3u);  // one change away, one back
  EXPECT_EQ(sender().use, bit(0));
  EXPECT_EQ(sender().paths[0].incarnation, 2u);
  EXPECT_TRUE(network_->is_over());
}

TEST_F(Failover, StripesUseEveryPathAndLoseOne) {
  start({.paths = 3, .policy = Policy::kStriping, .transfers = 12, .slots = 6});
  for (uint32_t p = 0; p < 3; ++p) EXPECT_EQ(sender().paths[p].outstanding, 2u) << p;
  apply({ActionKind::kBreak, 1, kForward});
  apply({ActionKind::kReceiverEvent, 1, 0});
  settle();
  EXPECT_TRUE(network_->is_over());
  EXPECT_EQ(sender().use, bit(0) | bit(2));
}

// What landed beyond a gap is not sent again.
TEST_F(Failover, OnlyWhatIsMissingIsSentAgain) {
  start({.policy = Policy::kStriping, .transfers = 4, .slots = 4});
  apply({ActionKind::kCarryForward, 1, 0});  // transfer 1
  apply({ActionKind::kCarryForward, 1, 0});  // transfer 3
  EXPECT_EQ(receiver().landed, 0b1010u);
  apply({ActionKind::kBreak, 0, kForward | kReverse});
  apply({ActionKind::kResetSender, 0, 0});
  while (sender().phase != SenderPhase::kRun) {
    network_->actions(actions_);
    apply(actions_[0]);
  }
  EXPECT_EQ(sender().skip, 0b1010u);
  EXPECT_EQ(network_->state().paths[1].outstanding, 2u);
  settle();
  EXPECT_TRUE(network_->is_over());
}

TEST_F(Failover, ASilentPathIsFoundByAProbe) {
  start({.transfers = 2});
  apply({ActionKind::kBreak, 0, kForward});
  settle();
  EXPECT_EQ(receiver().done, 0u);
  pass_time();  // watchdogs ask
  EXPECT_EQ(sender().use, bit(0));
  pass_time();  // nobody answered
  EXPECT_TRUE(network_->is_over());
  EXPECT_EQ(sender().use, bit(1));
}

TEST_F(Failover, APeerWithNothingToSendIsNotTakenForDead) {
  start({.transfers = 0});
  settle();
  for (uint32_t k = 0; k < 20; ++k) pass_time();
  EXPECT_EQ(sender().epoch, 1u);
  EXPECT_EQ(receiver().epoch, 1u);
  EXPECT_EQ(receiver().paths[0].condition, PathCondition::kUp);
}

TEST_F(Failover, ABackupThatDiesUnderAnIdleFlowIsFoundBeforeItIsNeeded) {
  start({.transfers = 0});
  for (uint32_t k = 0; k < 3; ++k) pass_time();
  EXPECT_EQ(sender().paths[1].condition, PathCondition::kUp);
  apply({ActionKind::kBreak, 1, kReverse});
  for (uint32_t k = 0; k < 2; ++k) pass_time();
  EXPECT_NE(sender().paths[1].condition, PathCondition::kUp);
  EXPECT_EQ(sender().epoch, 1u);
}

TEST_F(Failover, WithoutAPathBothEndsNameThePorts) {
  FlowSetup setup{.transfers = 2};
  setup.dying = true;
  start(setup);
  apply({ActionKind::kDie, 0, kReceiver});
  for (uint32_t k = 0; k < 20 && !network_->is_over(); ++k) pass_time();
  ASSERT_TRUE(network_->is_over());
  EXPECT_EQ(sender().error, FlowError::kNoPath);
  EXPECT_TRUE(released(sender()));
  const std::string text = failure_text(sender().error, sender().paths, {3, {"eth0", "eth1"}});
  EXPECT_NE(text.find("no path to rank 3 lives: eth0: "), std::string::npos) << text;
  EXPECT_NE(text.find("; eth1: "), std::string::npos) << text;
}

// An end alone: the links of these tests only write down what is asked of them.
class Recorder : public Link {
 public:
  bool post(uint32_t, uint32_t, uint64_t) override { return posts++ < room; }
  void send(uint32_t, const LinkMessage& message) override { sent.push_back(message); }
  void close(uint32_t path) override { closed |= bit(path); }
  void open(uint32_t path, uint32_t incarnation) override { opened = {path, incarnation}; }
  void arm(Timer, uint32_t, uint32_t) override {}
  void disarm(Timer, uint32_t) override {}

  uint32_t posts = 0, room = 100;
  PathSet closed = 0;
  std::pair<uint32_t, uint32_t> opened{};
  std::vector<LinkMessage> sent;
};

Event offered(uint64_t end) {
  Event event{.kind = EventKind::kOffered};
  event.sequence = end;
  return event;
}
Event fatal(uint32_t path) {
  Event event{.kind = EventKind::kCompleted};
  event.path = path;
  event.incarnation = 1;
  event.status = Completion::kFatal;
  return event;
}
Event closed(uint32_t path) {
  Event event{.kind = EventKind::kClosed};
  event.path = path;
  event.incarnation = 1;
  return event;
}
Event report(uint32_t path, uint32_t epoch, uint32_t attempt, uint64_t done) {
  Event event{.kind = EventKind::kMessage};
  event.path = path;
  event.incarnation = 1;
  event.message.kind = uint32_t(LinkMessageKind::kReport);
  event.message.epoch = epoch;
  event.message.attempt = attempt;
  event.message.done = done;
  return event;
}

static_assert(kMostBlamed == 3, "the next three say it with three paths");

TEST(SenderAlone, AFatalCompletionMayBeTheDevicesOwnFault) {
  SenderState state = new_sender(3, Policy::kPrimaryBackup, 1);
  Recorder link;
  Sender sender(state, link);
  sender.handle(offered(3));
  for (uint64_t acked = 0; acked < 3; ++acked) {  // each time something was acknowledged in between
    const auto p = uint32_t(acked);
    for (int k = 0; k < 3; ++k) sender.handle(fatal(p));  // all of one queue pair
    EXPECT_EQ(link.closed, (1u << (p + 1)) - 1);
    sender.handle(closed(p));
    EXPECT_EQ(state.error, FlowError::kNone);
    if (p == 2) break;
    EXPECT_EQ(state.phase, SenderPhase::kWaitResume);
    link.posts = 0;
    sender.handle(report(p + 1, state.epoch, state.attempt, acked + 1));
    EXPECT_EQ(link.posts, 2 - acked) << "what is not there goes again, elsewhere";
  }
}

TEST(SenderAlone, FatalCompletionsInARowEndTheFlowAndKeepSourcesUntilAllIsClosed) {
  SenderState state = new_sender(3, Policy::kPrimaryBackup, 1);
  Recorder link;
  Sender sender(state, link);
  sender.handle(offered(1));
  for (uint32_t p = 0; p < 2; ++p) {
    sender.handle(fatal(p));
    sender.handle(closed(p));
    sender.handle(report(p + 1, state.epoch, state.attempt, 0));
    EXPECT_EQ(state.phase, SenderPhase::kRun);
  }
  sender.handle(fatal(2));
  EXPECT_EQ(state.error, FlowError::kFatal);
  EXPECT_EQ(link.closed, bit(0) | bit(1) | bit(2));
  ASSERT_FALSE(link.sent.empty());
  EXPECT_EQ(link.sent.back().kind, uint32_t(LinkMessageKind::kFailed));
  EXPECT_FALSE(released(state));
  sender.handle(closed(2));
  EXPECT_TRUE(released(state));
}

TEST(ReceiverAlone, FatalCompletionsInARowEndTheFlow) {
  for (const bool progress : {false, true}) {
    ReceiverState state = new_receiver(3, Policy::kStriping);
    Recorder link;
    Receiver receiver(state, link);
    for (int k = 0; k < 3; ++k) receiver.handle(fatal(0));
    receiver.handle(fatal(1));
    EXPECT_EQ(link.closed, bit(0) | bit(1));
    EXPECT_EQ(state.error, FlowError::kNone);
    if (progress) {
      Event arrived{.kind = EventKind::kArrived};
      arrived.path = 2;
      arrived.incarnation = arrived.epoch = 1;
      receiver.handle(arrived);
    }
    receiver.handle(fatal(2));
    EXPECT_EQ(state.error, progress ? FlowError::kNone : FlowError::kFatal);
  }
}

TEST(SenderAlone, WhatFindsNoRoomIsPostedLater) {
  SenderState state = new_sender(1, Policy::kPrimaryBackup, 1);
  Recorder link;
  link.room = 3;
  Event event{.kind = EventKind::kOffered};
  event.sequence = 10;
  Sender(state, link).handle(event);
  EXPECT_EQ(state.transmitted, 3u);
  link.posts = 0;
  event = {.kind = EventKind::kCompleted};
  event.incarnation = 1;
  Sender(state, link).handle(event);
  EXPECT_EQ(state.transmitted, 6u);
}

TEST(SenderAlone, NoMoreThanAWindowIsUnderWay) {
  SenderState state = new_sender(1, Policy::kPrimaryBackup, 1);
  Recorder link;
  link.room = 1000;
  Event event{.kind = EventKind::kOffered};
  event.sequence = 500;
  Sender(state, link).handle(event);
  EXPECT_EQ(state.transmitted, kFlowWindow);
}

TEST(SenderAlone, APortThatComesUpIsOpenedAtOnceInAnIncarnationOfItsOwn) {
  SenderState state = new_sender(2, Policy::kPrimaryBackup, 1);
  Recorder link;
  Sender(state, link).handle({.kind = EventKind::kPortDown, .path = 1});
  EXPECT_EQ(link.closed, bit(1));
  EXPECT_EQ(state.phase, SenderPhase::kRun);  // it was the backup
  Sender(state, link).handle({.kind = EventKind::kPortUp, .path = 1});
  EXPECT_EQ(link.opened.second, 0u);  // not before the old one is closed
  Sender(state, link).handle({.kind = EventKind::kClosed, .path = 1, .incarnation = 1});
  Sender(state, link).handle({.kind = EventKind::kPortUp, .path = 1});
  EXPECT_EQ(link.opened, (std::pair<uint32_t, uint32_t>{1, 2}));
}

}  // namespace
}  // namespace starling::link::sim
