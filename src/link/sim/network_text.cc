// The simulated network for people: what happened, and where both ends stand.
#include "link/sim/network.h"
#include "link/sim/timers.h"

namespace starling::link::sim {

std::string Network::text(Action action) {
  static const char* const kNames[] = {"the sender's end is closed",
                                       "the receiver's end is closed",
                                       "opening fails",
                                       "connects",
                                       "the sender hears that it is open",
                                       "carries forward",
                                       "carries back",
                                       "the program reads",
                                       "carries forward late",
                                       "carries back late",
                                       "a completion fails",
                                       "the sender's end breaks",
                                       "the receiver's end breaks",
                                       "port event at the sender",
                                       "port event at the receiver",
                                       "heals, a new connection is needed",
                                       "heals and goes on",
                                       "a write that was not fenced lands",
                                       "timer",
                                       "BREAKS",
                                       "LOSES forward",
                                       "LOSES back",
                                       "DOUBLES forward",
                                       "DOUBLES back",
                                       "OVERTAKES back",
                                       "EARLY timer",
                                       "REFUSES",
                                       "AN END DIES"};
  std::string text = "path " + std::to_string(action.path) + ": " + kNames[uint32_t(action.kind)];
  if (action.kind == ActionKind::kTimer || action.kind == ActionKind::kEarlyTimer) {
    static const char* const kTimers[] = {"watchdog", "resend", "give up", "probe", "reopen"};
    const Event event = timer_event(action.detail % kReceiversTimer);
    text = std::string(kNames[uint32_t(action.kind)]) + " " + kTimers[uint32_t(event.timer)] + " of path " +
           std::to_string(event.path) + (action.detail < kReceiversTimer ? ", sender" : ", receiver");
  }
  if (action.kind == ActionKind::kRefuse)
    text += action.detail == kForward ? ", says the sender's device" : ", says the receiver's device";
  if (action.kind == ActionKind::kBreak)
    text += action.detail == kForward ? " forward" : action.detail == kReverse ? " back" : " both ways";
  return text;
}

std::string Network::summary() const {
  static const char* const kSender[] = {"RUN", "FENCING", "WAIT_RESUME", "FAILED"};
  static const char* const kReceiver[] = {"RUN", "FENCED", "FAILED"};
  static const char kCondition[] = "xcopU";
  const SenderState& s = state_.sender;
  const ReceiverState& r = state_.receiver;
  std::string text = std::string(kSender[uint32_t(s.phase)]) + "(" + std::to_string(s.epoch) + "." +
                     std::to_string(s.attempt) + ") " + std::to_string(s.acked) + "/" +
                     std::to_string(s.transmitted) + "/" + std::to_string(s.posted) + " ";
  for (uint32_t p = 0; p < s.path_count; ++p) text += kCondition[uint32_t(s.paths[p].condition)];
  text += " | " + std::string(kReceiver[uint32_t(r.phase)]) + "(" + std::to_string(r.epoch) + "." +
          std::to_string(r.attempt) + ") " + std::to_string(r.done) + " ";
  for (uint32_t p = 0; p < r.path_count; ++p) text += kCondition[uint32_t(r.paths[p].condition)];
  return text;
}

}  // namespace starling::link::sim
