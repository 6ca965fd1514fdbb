// Connections that were accepted and belong to no link yet: who calls says hello, and may have to wait until
// this rank has heard of it. Neither takes a place for ever: who says nothing goes in the time that an answer
// to a hello takes; who waits, when it has given up itself. Where there are no places left the oldest of the
// silent ones goes, or the oldest of all. One thread's at a time, the proxy's.
#pragma once
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "link/tcp/connection.h"
#include "link/tcp/ports.h"
#include "link/tcp/reactor.h"
#include "link/tcp/timers.h"

namespace starling::link::carry {

class Greetings {
 public:
  // Takes the connection. False: the rank is not known yet, nothing was done. What it sends meanwhile, the
  // system keeps.
  using Introduce =
      std::function<bool(const Hello& hello, std::unique_ptr<tcp::Connection>& connection, const tcp::Port&)>;
  // identity: ours, whom hellos have to mean.
  Greetings(tcp::Reactor& reactor, uint64_t identity, const tcp::TimerLengths& lengths, Introduce introduce);
  ~Greetings();
  Greetings(const Greetings&) = delete;
  Greetings& operator=(const Greetings&) = delete;

  // Throws Error if it cannot be watched.
  void add(std::unique_ptr<tcp::Connection> connection, const tcp::Port& port, uint64_t now_ns);
  // This rank is known from now on.
  void introduce(uint64_t from);
  void expire(uint64_t now_ns);
  uint64_t deadline() const;

 private:
  class Greeting;
  using List = std::list<std::unique_ptr<Greeting>>;

  void heard(Greeting& greeting);
  void make_room();

  tcp::Reactor& reactor_;
  const uint64_t identity_;
  const uint64_t silent_ns_;
  const uint64_t waiting_ns_;
  const Introduce introduce_;
  List list_;  // the oldest first
};

}  // namespace starling::link::carry
