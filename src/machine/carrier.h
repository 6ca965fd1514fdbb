// What carries messages to other hosts, as seen by a thread that waits for such messages and can as well move
// them: then no other thread has to be woken, for what it sends or for what comes.
#pragma once

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
};

}  // namespace starling
