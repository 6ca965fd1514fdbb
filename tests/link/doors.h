// Where the peers of a test's end call: a listener at each of its ports, and hellos that are not whole yet.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "link/tcp/connection.h"
#include "link/tcp/reactor.h"

namespace starling::link::tcp {

class Doors {
 public:
  using Called = std::function<void(const Hello&, std::unique_ptr<Connection>, const Port&)>;

  // Listens at each of `ports`, whose numbers it sets; they and the reactor outlive it.
  Doors(Reactor& reactor, std::vector<Port>& ports, Called called)
      : reactor_(reactor), called_(std::move(called)) {
    for (Port& port : ports) listeners_.emplace_back(*this, port);
  }

 private:
  struct Caller final : Watched {
    Caller(Doors& doors, Descriptor socket, const Port& port)
        : doors(doors), connection(std::make_unique<Connection>(std::move(socket))), port(port) {
      watch = doors.reactor_.add(connection->fd(), this, false);
    }
    void ready(uint32_t) override { doors.hear(*this); }
    Doors& doors;
    std::unique_ptr<Connection> connection;
    const Port& port;
    uint64_t watch;
  };
  struct Listener final : Watched {
    Listener(Doors& doors, Port& port) : doors(doors), port(port), socket(listen_at(port)) {
      doors.reactor_.add(socket.get(), this, false);
    }
    void ready(uint32_t) override {
      int error = 0;
      while (Descriptor accepted = accept_from(socket.get(), error))
        doors.callers_.push_back(std::make_unique<Caller>(doors, std::move(accepted), port));
    }
    Doors& doors;
    Port& port;
    Descriptor socket;
  };

  // Callers stay in the list: the reactor may still have an event for one.
  void hear(Caller& caller) {
    if (caller.connection == nullptr) return;
    Hello hello{};
    bool whole = false;
    const int error = caller.connection->read_hello(hello, whole);
    if (error == 0 && !whole) return;
    reactor_.remove(caller.watch, caller.connection->fd());
    if (error == 0) called_(hello, std::move(caller.connection), caller.port);
    caller.connection.reset();
  }

  Reactor& reactor_;
  const Called called_;
  std::list<Listener> listeners_;
  std::list<std::unique_ptr<Caller>> callers_;
};

}  // namespace starling::link::tcp
