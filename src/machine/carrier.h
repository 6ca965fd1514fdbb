// What carries messages to other hosts, as seen by a thread that waits for such messages and can as well move
// them: then no other thread has to be woken, for what it sends or for what comes.
#pragma once
#include <cstdint>

namespace starling {

class Carrier {
 public:
  virtual ~Carrier() = default;
  // From here to leave() this thread looks often, and rings for nobody: the carrier's own thread sleeps, but
  // for a glance now and then, should all helpers be held up. Any number of threads may help at a time.
  virtual void enter() = 0;
  // Carries what there is to carry. At once nothing if another thread is at it.
  virtual void look() = 0;
  virtual void leave() = 0;
  // What is under way is so much that looking again does not hasten it: who waits should sleep.
  virtual bool is_bulky() const = 0;

  // By a helper that has looked in vain for a while, to sleep until something comes for it: prepare(), a look
  // at all that it waits for, then sleep(), or cancel() if there was something.
  //
  //   prepare   from here on whoever stores something for this thread rings. False: it must sleep elsewhere,
  //             since another helper sleeps here, or since some ringers could not wake it here
  //   sleep     until something comes from a peer, somebody rings, there is something to do, or so long; ends
  //             what prepare() began
  virtual bool prepare() = 0;
  virtual void sleep(uint64_t longest_ns) = 0;
  virtual void cancel() = 0;
};

}  // namespace starling
