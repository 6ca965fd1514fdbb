#include "study/program.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/error.h"

namespace starling::study {

void check(const Program& program) {
  const auto fail = [](const std::string& happened) {
    throw Error(Code::invalid_argument, happened, "every member of a collective launches it exactly once");
  };
  std::vector<std::set<int>> launched(program.collectives());
  for (int gpu = 0; gpu < program.gpus(); ++gpu) {
    for (int event : program.events[gpu]) {
      if (event == kSynchronize) continue;
      if (event < 0 || event >= program.collectives())
        fail("collective " + std::to_string(event) + " is unknown");
      if (!launched[event].insert(gpu).second) {
        fail("GPU " + std::to_string(gpu) + " launches collective " + std::to_string(event) + " twice");
      }
    }
  }
  for (int c = 0; c < program.collectives(); ++c) {
    if (launched[c] != std::set<int>(program.members[c].begin(), program.members[c].end())) {
      fail("collective " + std::to_string(c) + " is not launched by its members");
    }
  }
}

namespace {

// Runs the events of all GPUs, turn by turn, one event of each GPU that is not suspended.
class Stepper {
 public:
  Stepper(const Program& program, Rule rule)
      : program_(program),
        rule_(rule),
        next_(program.gpus(), 0),
        launched_(program.collectives()),
        waiting_(program.gpus()),
        suspended_(program.gpus(), false) {
    for (int c = 0; c < program.collectives(); ++c)
      missing_.push_back(static_cast<int>(program.members[c].size()));
  }

  Judgement run() {
    Judgement judgement;
    bool moved = true;
    while (moved) {
      moved = false;
      for (int gpu = 0; gpu < program_.gpus(); ++gpu) {
        if (suspended_[gpu] || next_[gpu] == program_.events[gpu].size()) continue;
        moved = true;
        const int event = program_.events[gpu][next_[gpu]++];
        if (event != kSynchronize) {
          launch(gpu, event);
        } else if (!waiting_[gpu].empty()) {
          suspended_[gpu] = true;
          if (rule_ == Rule::synchronization) judgement.released |= intersects(gpu);
        }
      }
    }
    find_blocked(judgement);
    return judgement;
  }

 private:
  // In the single queue every launch is followed by a wait for its end: nothing behind the head executes.
  void launch(int gpu, int collective) {
    waiting_[gpu].push_back(collective);
    launched_[collective].push_back(gpu);
    if (rule_ == Rule::single_queue) suspended_[gpu] = true;
    if (--missing_[collective] > 0) return;
    for (int member : program_.members[collective]) {
      std::erase(waiting_[member], collective);
      if (waiting_[member].empty()) suspended_[member] = false;
    }
  }

  bool blocks(int collective, int gpu) const {  // `gpu` still has to launch it, and cannot
    const auto in = [gpu](const std::vector<int>& gpus) {
      return std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
    };
    return suspended_[gpu] && in(program_.members[collective]) && !in(launched_[collective]);
  }

  // The released check at a synchronization that suspends `gpu`: its launched collectives meet unlaunched
  // ones of the other suspended GPUs, and its unlaunched ones meet launched ones. It does not ask for the
  // same GPU in both.
  bool intersects(int gpu) const {
    bool launched_meets = false;
    bool unlaunched_meets = false;
    for (int other = 0; other < program_.gpus(); ++other) {
      if (other == gpu || !suspended_[other]) continue;
      for (int c : waiting_[gpu]) launched_meets |= blocks(c, other);
      for (int c : waiting_[other]) unlaunched_meets |= blocks(c, gpu);
    }
    return launched_meets && unlaunched_meets;
  }

  void find_blocked(Judgement& judgement) const {
    for (int gpu = 0; gpu < program_.gpus(); ++gpu) {
      if (!suspended_[gpu]) continue;
      judgement.exact = true;
      Blocked blocked{gpu, static_cast<int>(next_[gpu]) - 1, waiting_[gpu], {}};
      for (int other = 0; other < program_.gpus(); ++other) {
        if (std::any_of(waiting_[gpu].begin(), waiting_[gpu].end(),
                        [&](int c) { return blocks(c, other); })) {
          blocked.waits_for.push_back(other);
        }
      }
      judgement.blocked.push_back(std::move(blocked));
    }
  }

  const Program& program_;
  const Rule rule_;
  std::vector<std::size_t> next_;
  std::vector<std::vector<int>> launched_;   // by collective: GPUs
  std::vector<int> missing_;                 // members that have not launched the collective
  std::vector<std::vector<int>> waiting_;    // launched by the GPU and not complete
  std::vector<bool> suspended_;
};

void append(const Model& model, const RoundEvents& events, int placement, bool whole, Program& program) {
  const Placement& place = model.placements()[placement];
  const Component& component = model.component(place);
  const int first_collective = program.collectives();
  const auto gpu_name = [&](int gpu) { return whole ? place.gpus[gpu] : gpu; };
  for (std::size_t g = 0; g < component.groups.size(); ++g) {
    std::vector<int> members;
    for (int gpu : component.groups[g].gpus) members.push_back(gpu_name(gpu));
    for (int c = 0; c < component.groups[g].collectives; ++c) {
      program.members.push_back(members);
      program.group.push_back(whole ? place.groups[g] : static_cast<int>(g));
    }
  }
  for (int gpu = 0; gpu < component.gpus(); ++gpu) {
    const GpuEvents& mine = events.at(events.first_gpu(placement) + gpu);
    std::vector<int>& out = program.events[gpu_name(gpu)];
    std::size_t synchronization = 0;
    for (int launch = 0; launch < component.lists[gpu].length(); ++launch) {
      for (;
           synchronization < mine.synchronizations.size() && mine.synchronizations[synchronization] == launch;
           ++synchronization) {
        out.push_back(kSynchronize);
      }
      out.push_back(first_collective + component.collective_at(gpu, mine.place_of_launch(launch)));
    }
  }
}

// The single-queue check of the released simulator. A GPU's turn always consumes an element of its list, but
// one whose group still has a collective of this GPU pending is dropped; two different collectives pending in
// one group are called a deadlock.
bool released_single_queue(const Program& program) {
  struct Pending {
    int collective = 0;
    std::set<int> gpus;
  };
  std::map<int, Pending> pending_of;
  std::size_t longest = 0;
  for (const auto& events : program.events) longest = std::max(longest, events.size());
  for (std::size_t turn = 0; turn < longest; ++turn) {
    for (int gpu = 0; gpu < program.gpus(); ++gpu) {
      if (turn >= program.events[gpu].size() || program.events[gpu][turn] == kSynchronize) continue;
      const int collective = program.events[gpu][turn];
      Pending& pending = pending_of[program.group[collective]];
      if (pending.gpus.contains(gpu)) continue;
      if (!pending.gpus.empty() && pending.collective != collective) return true;
      pending.collective = collective;
      pending.gpus.insert(gpu);
      if (pending.gpus.size() == program.members[collective].size()) pending.gpus.clear();
    }
  }
  return false;
}

}  // namespace

Judgement judge(const Program& program, Rule rule) {
  check(program);
  Judgement judgement = Stepper(program, rule).run();
  if (rule == Rule::single_queue) judgement.released = released_single_queue(program);
  return judgement;
}

Program to_program(const Model& model, const RoundEvents& events) {
  Program program;
  program.events.resize(model.gpus());
  for (std::size_t i = 0; i < model.placements().size(); ++i) {
    append(model, events, static_cast<int>(i), true, program);
  }
  return program;
}

Program to_program(const Model& model, const RoundEvents& events, int placement) {
  Program program;
  program.events.resize(model.placements()[placement].gpus.size());
  append(model, events, placement, false, program);
  return program;
}

}  // namespace starling::study
