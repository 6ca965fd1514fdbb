#include "link/carry/greetings.h"

#include <algorithm>
#include <utility>

#include "machine/cpu/futex.h"

namespace starling::link::carry {
namespace {

constexpr size_t kMost = 1024;

}  // namespace

class Greetings::Greeting final : public tcp::Watched {
 public:
  Greeting(Greetings& all, std::unique_ptr<tcp::Connection> connection, const tcp::Port& port,
           uint64_t end_ns)
      : connection_(std::move(connection)), port_(port), end_ns_(end_ns), all_(all) {
    watch_ = all_.reactor_.add(connection_->fd(), this, false);
  }
  ~Greeting() override { unwatch(); }
  void ready(uint32_t) override { all_.heard(*this); }
  void unwatch() {
    if (is_silent_) all_.reactor_.remove(watch_, connection_->fd());
    is_silent_ = false;
  }
  bool is_silent() const { return is_silent_; }

  std::unique_ptr<tcp::Connection> connection_;
  const tcp::Port port_;
  uint64_t end_ns_;
  Hello hello_{};

 private:
  Greetings& all_;
  uint64_t watch_ = 0;
  bool is_silent_ = true;  // has not said hello: it is watched
};

// A sender gives up after that time without a path, and may begin its last call at the end of it.
Greetings::Greetings(tcp::Reactor& reactor, uint64_t identity, const tcp::TimerLengths& lengths,
                     Introduce introduce)
    : reactor_(reactor),
      identity_(identity),
      silent_ns_(lengths.answer_ns),
      waiting_ns_(2 * lengths.give_up_ns),
      introduce_(std::move(introduce)) {}

Greetings::~Greetings() = default;

void Greetings::add(std::unique_ptr<tcp::Connection> connection, const tcp::Port& port, uint64_t now_ns) {
  make_room();
  list_.push_back(std::make_unique<Greeting>(*this, std::move(connection), port, now_ns + silent_ns_));
}

void Greetings::make_room() {
  if (list_.size() < kMost) return;
  const auto silent =
      std::find_if(list_.begin(), list_.end(), [](const auto& one) { return one->is_silent(); });
  list_.erase(silent != list_.end() ? silent : list_.begin());
}

void Greetings::heard(Greeting& greeting) {
  bool whole = false;
  const int error = greeting.connection_->read_hello(greeting.hello_, whole);
  if (error == 0 && !whole) return;
  const auto at =
      std::find_if(list_.begin(), list_.end(), [&](const auto& one) { return one.get() == &greeting; });
  std::unique_ptr<Greeting> own = std::move(*at);
  list_.erase(at);
  own->unwatch();
  if (error != 0 || own->hello_.to != identity_) return;
  if (introduce_(own->hello_, own->connection_, own->port_)) return;
  own->end_ns_ = cpu::monotonic_ns() + waiting_ns_;
  list_.push_back(std::move(own));
}

void Greetings::introduce(uint64_t from) {
  for (auto it = list_.begin(); it != list_.end();) {
    if ((*it)->is_silent() || (*it)->hello_.from != from) {
      ++it;
      continue;
    }
    const std::unique_ptr<Greeting> waiting = std::move(*it);
    it = list_.erase(it);
    introduce_(waiting->hello_, waiting->connection_, waiting->port_);
  }
}

void Greetings::expire(uint64_t now_ns) {
  std::erase_if(list_, [&](const auto& one) { return one->end_ns_ <= now_ns; });
}

uint64_t Greetings::deadline() const {
  uint64_t next = tcp::Timers::kNever;
  for (const auto& one : list_) next = std::min(next, one->end_ns_);
  return next;
}

}  // namespace starling::link::carry
