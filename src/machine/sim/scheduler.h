// Fibers on virtual time. The fiber whose time is earliest runs; ties and delays come from the seed.
//
//   running --step()--> its slice ends: a delay, then again
//           --sleep()-> until woken, or until its deadline
//           --block()-> until somebody calls resume()
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "machine/sim/agenda.h"
#include "machine/sim/fiber.h"
#include "machine/sim/options.h"
#include "machine/sim/random.h"

namespace starling::sim {

inline constexpr uint64_t kForever = ~uint64_t(0) >> 16;

struct Move;

enum class FiberState : uint8_t { kReady, kSleeping, kBlocked, kEnded };

// What every switch touches comes first, in a cache line of its own.
struct alignas(64) Fiber {
  Context context;
  uint64_t deadline;  // of the next sleep: the earliest time at which something it asked about ends
  uint32_t rank;
  uint32_t slowness;
  FiberState state;
  bool woken;        // something it looked at changed since it last slept
  bool deaf;         // what it looked at may change: it sleeps until somebody wakes it
  bool rung;         // somebody woke it since it began to listen
  bool must_expire;  // explored: time has passed, its looks at budgets find them ended until it sleeps
  void (*entry)(void*);
  void* argument;
  // Explored:
  const uint64_t* next_word;  // what its next operation touches, if that is a word,
  const Move* next_move;      // or if it moves data; both null: nothing that others see
  bool started;               // it stands before an operation, not at its beginning
  bool due;                   // its budget ends in this round of the clock
  uint32_t expiries;          // budgets that may still end early
};

class Scheduler {
 public:
  // Who makes stores visible when their time comes (memory.h).
  using Commit = void (*)(void* memory, uint32_t fiber);

  void reset(const Options& options, uint64_t seed, Commit commit, void* memory);

  uint32_t add(uint32_t rank, void (*entry)(void*), void* argument);

  // Runs until every fiber ended, nothing can happen any more, or a fiber failed.
  void run();

  // ---- by the running fiber --------------------------------------------------------------------------
  void step(const uint64_t* word = nullptr) {
    if (--slice_ != 0) return;
    if (exploring_) current().next_word = word;
    end_slice();
  }
  // Before a look at what has not changed since the last look: others most likely leave it as it is, so that
  // only every fourth counts.
  void step_lightly(const uint64_t* word) {
    if (exploring_ || ++light_steps_ % 4 == 0) step(word);
  }
  // Explored: moving data is an operation, too.
  void step(const Move& move) {
    if (!exploring_) return;
    current().next_move = &move;
    end_slice();
  }
  // Lets others run in any case.
  void yield() { end_slice(); }
  // Notes a time at which the next sleep has to end.
  void note_deadline(uint64_t time) {
    if (time < current().deadline) current().deadline = time;
  }
  // Until woken or the deadline; forgets the deadline. Returns at once if woken since the last sleep.
  void sleep();
  // The same, but what it looked at may change unheard: until somebody calls wake(). Returns at once if that
  // was since listen(), after which it looks at everything once more.
  void listen() { current().rung = false; }
  void sleep_until_rung();
  // Until resume().
  void block();
  // Ends the run; does not return.
  [[noreturn]] void fail(std::string why);

  // ---- about others ----------------------------------------------------------------------------------
  void wake(uint32_t fiber) {
    fibers_[fiber].rung = true;
    rouse(fiber);
  }
  // Something that it looked at changed.
  void notice(uint32_t fiber) {
    if (!fibers_[fiber].deaf) rouse(fiber);
  }
  void resume(uint32_t fiber, uint64_t delay_ns);
  // Before time goes on.
  void resume_at_once(uint32_t fiber);
  // Stores of the fiber become visible then; an earlier wish stands.
  void commit_at(uint64_t time, uint32_t fiber);
  // None of the rank's fibers runs again.
  void kill(uint32_t rank) { dead_[rank / 64 % 64] |= uint64_t(1) << (rank % 64); }
  bool dead(uint32_t rank) const { return (dead_[rank / 64 % 64] >> (rank % 64)) & 1; }

  // ---- exploration (explore.h): somebody else chooses --------------------------------------------------
  void explore() { exploring_ = true; }
  bool exploring() const { return exploring_; }
  // Lets the fiber run up to its next operation.
  void run_fiber(uint32_t fiber);
  // One of two outcomes; both are to be explored.
  bool (*choose)(void* explorer) = nullptr;
  void* explorer = nullptr;
  // A fiber's stack from where it stands: its local state.
  std::span<const std::byte> stack_of(uint32_t fiber) {
    const auto* from = static_cast<const std::byte*>(fibers_[fiber].context);
    return {from, static_cast<const std::byte*>(stacks_.top(fiber))};
  }
  // What is done between the two is one step.
  void begin_atomic() { atomic_ = exploring_; }
  void end_atomic() { atomic_ = false; }
  // Told of each word that is touched inside of such a step.
  void (*touched)(void* explorer, const uint64_t* word) = nullptr;

  uint64_t now() const { return now_; }
  uint32_t current_id() const { return running_; }
  Fiber& current() { return fibers_[running_]; }
  Fiber& fiber(uint32_t id) { return fibers_[id]; }
  uint32_t fiber_count() const { return uint32_t(fibers_.size()); }
  Random& random() { return random_; }
  const Options& options() const { return *options_; }

  void note_progress() { last_progress_ = now_; }
  uint64_t slices() const { return slices_; }
  const std::string& failure() const { return failure_; }
  bool all_ended() const { return ended_ == fibers_.size(); }

 private:
  static constexpr uint32_t kMain = ~0u;

  static void enter(boost::context::detail::transfer_t from);
  // Participants of the agenda: fiber f is 2 f, its stores that become visible are 2 f + 1. The key is the
  // time, and random bits that order what happens at one time.
  uint64_t key_at(uint64_t time);
  void schedule(uint32_t fiber, uint64_t time) { agenda_.set(2 * fiber, key_at(time)); }
  void rouse(uint32_t fiber);
  void draw_slice();
  void end_slice();
  void explored_step();
  // Runs whatever comes next; returns when the caller's turn has come.
  void switch_away();
  // The next fiber to run; ~0u when nothing can happen or a bound is passed.
  uint32_t next();
  void jump(uint32_t to);
  void arrived(Context from);

  const Options* options_ = nullptr;
  Random random_;
  StackPool stacks_;
  std::vector<Fiber> fibers_;
  Agenda agenda_;
  std::vector<uint32_t> at_once_;  // fibers that go on before time does, the next one last
  Commit commit_ = nullptr;
  void* memory_ = nullptr;
  Context main_{};
  uint64_t now_ = 0;
  uint64_t last_progress_ = 0;
  uint64_t slices_ = 0;
  uint32_t slice_ = 1;
  uint32_t light_steps_ = 0;
  uint32_t running_ = 0;
  uint32_t previous_ = 0;
  uint32_t ended_ = 0;
  uint64_t dead_[64] = {};
  bool exploring_ = false;
  bool atomic_ = false;
  std::string failure_;
};

}  // namespace starling::sim
