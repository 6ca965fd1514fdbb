// Makes more of a path than the socket that it begins with: queue pairs, whose addresses cross in the hello
// and in the answer to it. Where one end cannot, the path stays a socket.
#pragma once
#include <memory>

#include "link/channel.h"
#include "link/tcp/connection.h"
#include "wire/queue_pairs.h"

namespace starling::link {

// One end of one incarnation, on its way.
class Upgrade {
 public:
  virtual ~Upgrade() = default;
  virtual const QueuePairs& ours() const = 0;
  // With what the other end says. None: it does not work after all, and the connection is closed.
  virtual std::unique_ptr<Channel> finish(const QueuePairs& theirs,
                                          std::unique_ptr<tcp::Connection> connection) = 0;
};

class Upgrades {
 public:
  virtual ~Upgrades() = default;
  // Over this port. None: the port can do no more than sockets. `sending`: at the flow's sender; the receiver
  // has `count` queue pairs like it, and has taken back offers before that number.
  virtual std::unique_ptr<Upgrade> begin_sending(const tcp::Port& ours) = 0;
  virtual std::unique_ptr<Upgrade> begin_receiving(const tcp::Port& ours, uint32_t count,
                                                   uint64_t offers_void) = 0;
};

}  // namespace starling::link
