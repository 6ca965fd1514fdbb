#include "link/tcp/reactor.h"

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace starling::link::tcp {
namespace {

constexpr int kBatch = 64;

epoll_event interest(uint64_t id, bool writing) {
  epoll_event event{};
  event.events = EPOLLIN | (writing ? uint32_t(EPOLLOUT) : 0u);
  event.data.u64 = id;
  return event;
}

}  // namespace

Reactor::Reactor() : epoll_(epoll_create1(EPOLL_CLOEXEC)), outer_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_ || !outer_)
    throw system_error("cannot make an epoll", "allow the process more open files (ulimit -n)");
  never_hush(epoll_.get());
}

void Reactor::never_hush(int fd) {
  epoll_event event = interest(0, false);
  if (epoll_ctl(outer_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    throw system_error("cannot watch a descriptor", "raise fs.epoll.max_user_watches");
}

void Reactor::hush(bool hushed) {
  epoll_event event{};
  event.events = hushed ? 0u : uint32_t(EPOLLIN);
  epoll_ctl(outer_.get(), EPOLL_CTL_MOD, epoll_.get(), &event);
}

uint64_t Reactor::add(int fd, Watched* watched, bool writing) {
  const uint64_t id = next_id_++;
  watched_[id] = watched;
  epoll_event event = interest(id, writing);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    watched_.erase(id);
    throw system_error("cannot watch a socket", "raise fs.epoll.max_user_watches");
  }
  return id;
}

void Reactor::change(uint64_t id, int fd, bool writing) {
  epoll_event event = interest(id, writing);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Reactor::pause(uint64_t id, int fd) {
  epoll_event event{};
  event.data.u64 = id;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Reactor::remove(uint64_t id, int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watched_.erase(id);
}

void Reactor::sleep(int timeout_ms) const {
  epoll_event ready;
  epoll_wait(outer_.get(), &ready, 1, timeout_ms);
}

void Reactor::sleep_unhushed(uint64_t timeout_ns) const {
  epoll_event ready;
  const timespec timeout{time_t(timeout_ns / 1'000'000'000), long(timeout_ns % 1'000'000'000)};
  if (epoll_pwait2(epoll_.get(), &ready, 1, &timeout, nullptr) < 0 && errno == ENOSYS)
    epoll_wait(epoll_.get(), &ready, 1, int(timeout_ns / 1'000'000 + 1));
}

uint32_t Reactor::poll(int64_t timeout_ns) {
  epoll_event events[kBatch];
  // Up, not down: what ends in half a millisecond shall not be looked for a thousand times.
  const int timeout_ms = int(std::min<int64_t>((timeout_ns + 999'999) / 1'000'000, 1'000'000));
  const int count = epoll_wait(epoll_.get(), events, kBatch, timeout_ms);
  for (int k = 0; k < count; ++k) {
    const auto found = watched_.find(events[k].data.u64);
    if (found != watched_.end()) found->second->ready(events[k].events);
  }
  return uint32_t(std::max(count, 0));
}

}  // namespace starling::link::tcp
