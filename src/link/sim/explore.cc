#include "link/sim/explore.h"

#include <algorithm>

namespace starling::link::sim {
namespace {

constexpr uint32_t kEndSteps = 4000;  // to the end without faults; more is a livelock

// A set of hashes: open addressing, a power of two of places, at most half full.
class Seen {
 public:
  Seen() : places_(1 << 16) {}
  bool insert(uint64_t hash) {
    hash |= hash == 0;
    if (2 * count_ >= places_.size()) grow();
    uint64_t& place = find(hash);
    if (place == hash) return false;
    place = hash;
    ++count_;
    return true;
  }
  bool contains(uint64_t hash) { return find(hash | (hash == 0)) != 0; }

 private:
  uint64_t& find(uint64_t hash) {
    const uint64_t mask = places_.size() - 1;
    uint64_t at = hash & mask;
    while (places_[at] != 0 && places_[at] != hash) at = (at + 1) & mask;
    return places_[at];
  }
  void grow() {
    std::vector<uint64_t> old(places_.size() * 2);
    old.swap(places_);
    for (const uint64_t hash : old)
      if (hash != 0) find(hash) = hash;
  }

  std::vector<uint64_t> places_;
  uint64_t count_ = 0;
};

class Explorer {
 public:
  Explorer(const FlowSetup& setup, const FlowCore& core, uint64_t limit)
      : start_(setup, core), limit_(limit) {}

  Explored run() {
    push(start_);
    while (!stack_.empty() && result_.failure.empty() && result_.states < limit_) {
      Frame& frame = stack_.back();
      if (frame.next == frame.actions.size()) {
        stack_.pop_back();
        continue;
      }
      const Action action = frame.actions[frame.next++];
      Network network = frame.network;
      ++result_.transitions;
      const std::string problem = network.apply(action);
      if (!problem.empty())
        result_.failure = problem + "\n" + story(nullptr);
      else
        push(network);
    }
    result_.exhausted = stack_.empty();
    return std::move(result_);
  }

 private:
  struct Frame {
    Network network;
    std::vector<Action> actions;
    size_t next = 0;
  };

  void push(const Network& network) {
    if (!seen_.insert(network.hash())) return;
    ++result_.states;
    result_.ends += network.is_over();
    result_.most_epochs = std::max(result_.most_epochs, network.state().sender.epoch);
    result_.deepest = std::max(result_.deepest, uint32_t(stack_.size()));
    const std::string problem = end_of(network);
    if (!problem.empty()) {
      result_.failure = problem;
      return;
    }
    Frame& frame = stack_.emplace_back(Frame{network, {}, 0});
    if (!network.is_over()) network.actions(frame.actions);
  }

  // Whether it comes to an end from here. States on the way do, too.
  std::string end_of(const Network& start) {
    if (ending_.contains(start.hash())) return {};
    Network network = start;
    std::vector<uint64_t> way;
    std::vector<Action> actions, steps;
    uint32_t turn = 0;
    while (!network.is_over()) {
      const uint64_t hash = network.hash();
      if (ending_.contains(hash)) break;
      way.push_back(hash);
      network.actions(actions);
      const Action action = next_without_faults(network, actions, turn);
      steps.push_back(action);
      std::string problem = way.size() > kEndSteps ? "it does not come to an end" : network.apply(action);
      if (!problem.empty()) return problem + "\n" + story(&steps);
    }
    for (const uint64_t hash : way) ending_.insert(hash);
    return {};
  }

  static Action next_without_faults(const Network& network, const std::vector<Action>& actions,
                                    uint32_t& turn) {
    if (!actions.empty() && Network::is_certain(actions[0].kind)) return actions[0];
    const NetworkState& state = network.state();
    bool works = state.dead != kNobody;
    for (uint32_t p = 0; p < network.setup().paths; ++p) works |= !state.paths[p].down;
    if (!works) return {ActionKind::kHeal, 0, 0};
    // Of the timers, the next one after the last that ended.
    const Action* first = nullptr;
    const Action* after = nullptr;
    for (const Action& action : actions) {
      if (action.kind != ActionKind::kTimer) continue;
      if (first == nullptr || action.detail < first->detail) first = &action;
      if (action.detail > turn && (after == nullptr || action.detail < after->detail)) after = &action;
    }
    if (first == nullptr) return {ActionKind::kHeal, 0, 0};
    const Action& chosen = after != nullptr ? *after : *first;
    turn = chosen.detail;
    return chosen;
  }

  // The actions on the stack, and more, with both ends after each.
  std::string story(const std::vector<Action>* more) const {
    Network network = start_;
    std::vector<Action> actions;
    for (const Frame& frame : stack_)
      if (frame.next > 0) actions.push_back(frame.actions[frame.next - 1]);
    if (more != nullptr) actions.insert(actions.end(), more->begin(), more->end());
    std::string text;
    for (size_t k = 0; k < actions.size(); ++k) {
      network.apply(actions[k]);
      if (k < 60 || k + 20 > actions.size())
        text += "  " + network.summary() + "   " + Network::text(actions[k]) + "\n";
      if (k == 60) text += "  ...\n";
    }
    return text;
  }

  Network start_;
  uint64_t limit_;
  std::vector<Frame> stack_;
  Seen seen_;
  Seen ending_;
  Explored result_;
};

}  // namespace

Explored explore(const FlowSetup& setup, const FlowCore& core, uint64_t state_limit) {
  return Explorer(setup, core, state_limit).run();
}

}  // namespace starling::link::sim
