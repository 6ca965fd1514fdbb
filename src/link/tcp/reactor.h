// Tells who of those that wait for their sockets can go on. One thread's.
#pragma once
#include <sys/epoll.h>

#include <cstdint>
#include <unordered_map>

#include "link/tcp/socket.h"

namespace starling::link::tcp {

class Watched {
 public:
  virtual ~Watched() = default;
  // events: of epoll. The object may remove itself and others.
  virtual void ready(uint32_t events) = 0;
};

class Reactor {
 public:
  Reactor();

  // Watches the descriptor for reading, and for writing if told. Gives the number to change and remove it by.
  // Throws Error(system), and std::bad_alloc; then it is not watched.
  uint64_t add(int fd, Watched* watched, bool writing);
  void change(uint64_t id, int fd, bool writing);
  // Tells nothing of it until change().
  void pause(uint64_t id, int fd);
  // Before the descriptor is closed. What epoll has told of it already is dropped.
  void remove(uint64_t id, int fd);

  // Waits at most so long; tells all that are ready. Returns how many.
  uint32_t poll(int64_t timeout_ns);
  // Until somebody is ready, or for so long. Tells nobody: any thread may add and remove meanwhile.
  void sleep(int timeout_ms) const;
  // The same, whether or not it is hushed; on kernels before 5.11 for a millisecond more.
  void sleep_unhushed(uint64_t timeout_ns) const;
  // sleep() does not end by those that are watched, but for this descriptor. Any thread, also amid a sleep,
  // which ends when it is undone and somebody is ready.
  void hush(bool hushed);
  void never_hush(int fd);

 private:
  Descriptor epoll_;
  Descriptor outer_;  // of epoll_ itself, and of what is never hushed
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Watched*> watched_;
};

}  // namespace starling::link::tcp
