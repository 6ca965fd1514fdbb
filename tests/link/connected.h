// Two sockets over loopback that are connected, for tests of what goes between them.
#pragma once
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <utility>

#include "link/tcp/socket.h"

namespace starling::link::tcp {

struct Connected {
  Descriptor from;
  Descriptor to;  // never blocks
};

inline Connected over_loopback() {
  const Descriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  EXPECT_EQ(bind(listener.get(), address, sizeof at) | listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), address, &bytes), 0);
  Descriptor from(socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(from.get(), address, sizeof at), 0);
  return {std::move(from), Descriptor(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK))};
}

}  // namespace starling::link::tcp
