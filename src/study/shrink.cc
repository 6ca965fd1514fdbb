#include "study/shrink.h"

#include <algorithm>
#include <map>

#include "base/assert.h"
#include "base/error.h"

namespace starling::study {
namespace {

// Breadth first from `start` along waits_for until it comes back; GPUs in the order of the waits.
std::vector<int> shortest_circle(const std::map<int, const Blocked*>& blocked, int start) {
  std::map<int, int> reached_from;
  std::vector<int> queue{start};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (int next : blocked.at(queue[i])->waits_for) {
      if (next == start) {
        std::vector<int> circle{queue[i]};
        while (circle.back() != start) circle.push_back(reached_from[circle.back()]);
        std::reverse(circle.begin(), circle.end());
        return circle;
      }
      if (reached_from.try_emplace(next, queue[i]).second) queue.push_back(next);
    }
  }
  return {};
}

std::vector<int> shortest_circle(const std::vector<Blocked>& all) {
  std::map<int, const Blocked*> blocked;
  for (const Blocked& each : all) blocked[each.gpu] = &each;
  std::vector<int> best;
  for (const Blocked& each : all) {
    const std::vector<int> circle = shortest_circle(blocked, each.gpu);
    if (!circle.empty() && (best.empty() || circle.size() < best.size())) best = circle;
  }
  STARLING_ASSERT(!best.empty(), "blocked GPUs that wait for each other without a circle");
  return best;
}

// A collective that `waiting` has launched and `later` has only behind what blocks it.
int collective_between(const Program& program, const Blocked& waiting, const Blocked& later) {
  const std::vector<int>& events = program.events[later.gpu];
  for (int collective : waiting.executing) {
    if (std::find(events.begin() + later.event + 1, events.end(), collective) != events.end())
      return collective;
  }
  STARLING_ASSERT(false, "a GPU that waits for another one without a collective between them");
  return -1;
}

Judgement judge_deadlock(const Program& program, Rule rule) {
  Judgement judgement = judge(program, rule);
  if (!judgement.exact) {
    throw Error(Code::invalid_argument, "the events do not deadlock",
                "shrink a sequence of events that does");
  }
  return judgement;
}

void sort_unique(std::vector<int>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

// Of `program` only these GPUs and collectives, and of the synchronizations those that never return.
Shrunk reduce(const Program& program, Rule rule, const std::vector<Blocked>& blocked, std::vector<int> gpus,
              std::vector<int> collectives) {
  Shrunk shrunk;
  sort_unique(gpus);
  sort_unique(collectives);
  shrunk.gpus = std::move(gpus);
  shrunk.collectives = std::move(collectives);

  std::map<int, int> new_gpu, new_collective, new_group;
  for (int gpu : shrunk.gpus) new_gpu.emplace(gpu, static_cast<int>(new_gpu.size()));
  for (int collective : shrunk.collectives) {
    new_collective.emplace(collective, static_cast<int>(new_collective.size()));
    std::vector<int> members;
    for (int gpu : program.members[collective]) {
      if (new_gpu.contains(gpu)) members.push_back(new_gpu[gpu]);
    }
    shrunk.program.members.push_back(std::move(members));
    const int group = program.group[collective];
    shrunk.program.group.push_back(
        new_group.try_emplace(group, static_cast<int>(new_group.size())).first->second);
  }
  for (const Blocked& each : blocked) {
    if (!new_gpu.contains(each.gpu)) continue;
    std::vector<int> kept;
    for (int event = 0; event < static_cast<int>(program.events[each.gpu].size()); ++event) {
      const int what = program.events[each.gpu][event];
      if (what == kSynchronize) {
        if (event == each.event) kept.push_back(what);
      } else if (new_collective.contains(what)) {
        kept.push_back(new_collective[what]);
      }
    }
    shrunk.program.events.resize(shrunk.gpus.size());
    shrunk.program.events[new_gpu[each.gpu]] = std::move(kept);
  }
  STARLING_ASSERT(judge(shrunk.program, rule).exact, "a reduced deadlock that does not deadlock by itself");
  return shrunk;
}

}  // namespace

Shrunk shrink(const Program& program, Rule rule) {
  const Judgement judgement = judge_deadlock(program, rule);
  const std::vector<int> circle = shortest_circle(judgement.blocked);
  const auto blocked = [&](int gpu) {
    return *std::find_if(judgement.blocked.begin(), judgement.blocked.end(),
                         [gpu](const Blocked& each) { return each.gpu == gpu; });
  };
  std::vector<int> collectives;
  for (std::size_t i = 0; i < circle.size(); ++i) {
    collectives.push_back(
        collective_between(program, blocked(circle[i]), blocked(circle[(i + 1) % circle.size()])));
  }
  return reduce(program, rule, judgement.blocked, circle, std::move(collectives));
}

Shrunk taking_part(const Program& program, Rule rule) {
  const Judgement judgement = judge_deadlock(program, rule);
  std::vector<int> gpus, collectives;
  for (const Blocked& each : judgement.blocked) {
    gpus.push_back(each.gpu);
    collectives.insert(collectives.end(), each.executing.begin(), each.executing.end());
  }
  return reduce(program, rule, judgement.blocked, std::move(gpus), std::move(collectives));
}

}  // namespace starling::study
