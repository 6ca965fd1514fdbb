// Files of /dev/shm that go with their process when it exits without a word, or a signal ends it: SIGTERM
// above all, by which launchers end the ranks of a job that has lost one.
//
// Nobody is left then who would notice the death, and the segments would hold memory until the next context
// of this user. A signal that the program, or its parent, has given a meaning of its own is left alone; what
// SIGKILL leaves behind, the next context removes.
#pragma once

namespace starling::cpu {

class RemovedAtDeath {
 public:
  // Of an open file. Its name goes if nobody else holds a lock on it: so a peer's goes only if the peer is
  // dead.
  explicit RemovedAtDeath(int fd);
  // Before the file is closed.
  ~RemovedAtDeath();
  RemovedAtDeath(const RemovedAtDeath&) = delete;
  RemovedAtDeath& operator=(const RemovedAtDeath&) = delete;

 private:
  int place_ = -1;  // in the list; -1: the list is full
};

}  // namespace starling::cpu
