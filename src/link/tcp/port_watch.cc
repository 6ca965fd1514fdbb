#include "link/tcp/port_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include "base/log.h"

namespace starling::link::tcp {

PortWatch::PortWatch(Reactor& reactor, std::function<void(uint32_t, bool)> changed)
    : reactor_(reactor),
      changed_(std::move(changed)),
      socket_(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE)) {
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (!socket_ || bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    log(LogLevel::info, "no events of network ports here: a dead port is found by its silence");
    socket_ = {};
    return;
  }
  watch_ = reactor_.add(socket_.get(), this, false);
}

PortWatch::~PortWatch() {
  if (socket_) reactor_.remove(watch_, socket_.get());
}

void PortWatch::ready(uint32_t) {
  alignas(nlmsghdr) char buffer[16384];
  for (;;) {
    const ssize_t got = recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got <= 0) return;  // events that did not fit are lost; silence tells then
    auto bytes = uint32_t(got);
    for (auto* head = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(head, bytes);
         head = NLMSG_NEXT(head, bytes)) {
      if (head->nlmsg_type != RTM_NEWLINK && head->nlmsg_type != RTM_DELLINK) continue;
      const auto* link = static_cast<const ifinfomsg*>(NLMSG_DATA(head));
      constexpr unsigned kAlive = IFF_UP | IFF_RUNNING;
      const bool up = head->nlmsg_type == RTM_NEWLINK && (link->ifi_flags & kAlive) == kAlive;
      changed_(uint32_t(link->ifi_index), up);
    }
  }
}

}  // namespace starling::link::tcp
