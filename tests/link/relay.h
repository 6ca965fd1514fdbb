// A wire that a test can cut: forwards one TCP port to another, on a thread of its own.
#pragma once
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "link/tcp/socket.h"

namespace starling::link::tcp {

enum class Wire {
  kWhole,
  kCut,    // connections are reset, new ones refused
  kSilent,  // nothing passes, nobody is told
  kSilentFromNear,  // nothing that the near end sends passes, nobody is told
  kSilentFromFar,
  kNearClosed,  // connections end for the near end; the far one is not told, and new ones are silent
  kFarClosed,
};

class Relay {
 public:
  // From a port of its own, at `near`, to `far`.
  Relay(const Port& near, const Port& far);
  ~Relay();
  const Port& port() const { return port_; }
  void set(Wire wire) { wire_.store(wire); }

 private:
  static constexpr size_t kMostBytes = 1 << 18;  // that wait in a direction
  static constexpr int kLookMs = 1;

  struct Direction {
    std::string bytes;
    bool ended = false;
  };
  struct Link {
    Descriptor ends[2];
    Direction from[2];
    bool silenced[2] = {false, false};  // what was lost leaves no whole stream behind
    bool is_silent() const { return silenced[0] && silenced[1]; }
  };
  static void disturb(Link& link, Wire wire);
  void run();
  bool forward(Link& link, int from);

  Port port_;
  const Port far_;
  Descriptor listener_;
  std::list<Link> links_;
  std::atomic<Wire> wire_{Wire::kWhole};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

inline Relay::Relay(const Port& near, const Port& far) : port_(near), far_(far) {
  listener_ = listen_at(port_);
  thread_ = std::thread([this] { run(); });
}

inline Relay::~Relay() {
  ending_.store(true);
  thread_.join();
}

inline void Relay::run() {
  while (!ending_.load()) {
    const Wire wire = wire_.load();
    std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
    for (Link& link : links_)
      for (int end = 0; end < 2; ++end) {
        const bool reads = !link.silenced[end] && link.from[end].bytes.size() < kMostBytes;
        const bool writes = !link.silenced[1 - end] && !link.from[1 - end].bytes.empty();
        polled.push_back({link.ends[end].get(), short((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
      }
    ::poll(polled.data(), polled.size(), kLookMs);
    int error;
    while (Descriptor near = accept_from(listener_.get(), error)) {
      if (wire == Wire::kCut) continue;
      Descriptor far = connect_between(port_, far_, 1000, error);
      if (!far) continue;
      links_.emplace_back();
      links_.back().ends[0] = std::move(near);
      links_.back().ends[1] = std::move(far);
    }
    for (auto it = links_.begin(); it != links_.end();) {
      disturb(*it, wire);
      const bool alive = wire != Wire::kCut && (it->is_silent() || (forward(*it, 0) && forward(*it, 1)));
      it = alive ? std::next(it) : links_.erase(it);
    }
  }
}

inline void Relay::disturb(Link& link, Wire wire) {
  const bool ends = wire == Wire::kNearClosed || wire == Wire::kFarClosed;
  link.silenced[0] |= ends || wire == Wire::kSilent || wire == Wire::kSilentFromNear;
  link.silenced[1] |= ends || wire == Wire::kSilent || wire == Wire::kSilentFromFar;
  if (ends) link.ends[wire == Wire::kFarClosed] = {};
}

inline bool Relay::forward(Link& link, int from) {
  if (link.silenced[from]) return true;
  std::string& bytes = link.from[from].bytes;
  char buffer[16384];
  if (bytes.size() < kMostBytes) {
    const ssize_t got = recv(link.ends[from].get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != ENOTCONN)) return false;
    if (got > 0) bytes.append(buffer, size_t(got));
  }
  const ssize_t sent =
      send(link.ends[1 - from].get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != ENOTCONN) return false;
  if (sent > 0) bytes.erase(0, size_t(sent));
  return true;
}

}  // namespace starling::link::tcp
