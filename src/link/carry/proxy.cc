#include "link/carry/proxy.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "link/tcp/near.h"
#include "machine/cpu/doorbell.h"

namespace starling::link::carry {
namespace {

constexpr uint32_t kLooks = 6;  // in vain, before it sleeps
constexpr uint64_t kLeavingNs = 2'000'000'000;  // without progress
constexpr uint32_t kLastLooks = 3;  // of a helper that leaves, while there is something to carry
constexpr uint64_t kLongestSleepMs = 1000;
constexpr uint64_t kGlanceMs = 5;  // between two glances at whether helpers get on
constexpr uint64_t kEagerNs = 1'000'000;  // a thread that polls looks without a pause, after the last news
// Later it sleeps between two looks for such a part of the time that has brought nothing: what comes then
// comes so much later.
constexpr uint64_t kNapShare = 20;
constexpr uint64_t kLongestNapNs = 1'000'000;
constexpr unsigned long kTimerSlackNs = 1000;  // the system's 50 us are a nap of their own
constexpr uint64_t kRestNs = 50'000'000;  // of a listener that cannot accept
constexpr uint64_t kBetweenLinesNs = 10'000'000'000;  // in the log, of the same thing

std::vector<tcp::Port> ports_of(const ProxyOptions& options) {
  std::vector<tcp::Port> ports = tcp::usable_ports(options.interfaces, options.family);
  if (options.interfaces.empty() && !options.device.empty())
    nearest_first(ports, options.device, options.told);
  else if (options.interfaces.empty())
    nearest_first(ports, allowed_cores());
  for (tcp::Port& port : ports) port.congestion = options.congestion;
  return ports;
}

}  // namespace

// Rung by eventfd; what there is to do is seen by looking.
class Proxy::Alarm final : public tcp::Watched {
 public:
  Alarm(int fd, tcp::Reactor& reactor) : fd_(fd) { reactor.add(fd, this, false); }
  void ready(uint32_t) override {
    uint64_t rings;
    [[maybe_unused]] const ssize_t got = ::read(fd_, &rings, sizeof rings);
  }

 private:
  const int fd_;
};

// Where the system has no room for another connection, the callers stay in its queue, and the listener, which
// would be ready at every look, is not watched for a while.
class Proxy::Listener final : public tcp::Watched {
 public:
  Listener(Proxy& proxy, tcp::Port& port) : proxy_(proxy), socket_(tcp::listen_at(port)), port_(port) {
    watch_ = proxy_.reactor_.add(socket_.get(), this, false);
  }
  void ready(uint32_t) override {
    int error = 0;
    try {
      while (tcp::Descriptor socket = tcp::accept_from(socket_.get(), error)) {
        proxy_.greetings_.add(std::make_unique<tcp::Connection>(std::move(socket)), port_,
                              cpu::monotonic_ns());
      }
    } catch (const Error& refused) {
      return rest(refused.happened(), refused.remedy());
    } catch (const std::bad_alloc&) {
      return rest("no memory", "give the process more memory");
    }
    if (error != 0)
      rest(std::strerror(error), tcp::is_exhausted(error) ? "allow the process more open files (ulimit -n)"
                                                          : "look whether the port is well ('ip -s link')");
  }
  uint64_t deadline() const { return again_ns_; }
  void expire(uint64_t now_ns) {
    if (now_ns < again_ns_) return;
    again_ns_ = tcp::Timers::kNever;
    proxy_.reactor_.change(watch_, socket_.get(), false);
  }

 private:
  void rest(const std::string& what, const std::string& remedy) {
    const uint64_t now = cpu::monotonic_ns();
    proxy_.reactor_.pause(watch_, socket_.get());
    again_ns_ = now + kRestNs;
    if (now < next_line_ns_) return;
    next_line_ns_ = now + kBetweenLinesNs;
    log(LogLevel::error, "cannot accept connections of other hosts at ", port_.name, " ",
        tcp::address_text(port_.address), ": ", what, "; ", remedy,
        ". Until then links to hosts that call are missing or broken");
  }

  Proxy& proxy_;
  tcp::Descriptor socket_;
  const tcp::Port port_;
  uint64_t watch_ = 0;
  uint64_t again_ns_ = tcp::Timers::kNever;
  uint64_t next_line_ns_ = 0;
};

Proxy::Proxy(cpu::Arena& arena, const ProxyOptions& options)
    : arena_(arena),
      options_(options),
      port_list_(ports_of(options)),
      event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      helper_event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      greetings_(reactor_, identity_of(arena.name()), options_.lengths,
                 [this](const Hello& hello, std::unique_ptr<tcp::Connection>& connection,
                        const tcp::Port& port) { return introduce(hello, connection, port); }) {
  if (!event_ || !helper_event_)
    throw system_error("cannot make an eventfd", "allow the process more open files (ulimit -n)");
  alarm_ = std::make_unique<Alarm>(event_.get(), reactor_);
  helper_alarm_ = std::make_unique<Alarm>(helper_event_.get(), reactor_);
  cpu::own_event(&arena_.header()->daemon, helper_event_.get());
  reactor_.never_hush(event_.get());
  for (tcp::Port& port : port_list_) listeners_.push_back(std::make_unique<Listener>(*this, port));
  ports_text_ = tcp::ports_text(port_list_);
  port_watch_ = std::make_unique<tcp::PortWatch>(
      reactor_, [this](uint32_t interface_index, bool up) { port_changed(interface_index, up); });
  open_rails();
  if (options_.polls) bulk_ = std::make_unique<tcp::BulkSender>(options_.cores);
  log(LogLevel::info, "links to other hosts by ", ports_text_, "; their threads run on ",
      options_.cores.empty() ? "any core" : std::to_string(options_.cores.size()) + " cores");
  thread_ = start_thread("st-links", [this] { run(); });
}

void Proxy::open_rails() {
  if (options_.rdma == Rdma::kNever) return;
  std::string why;
  rails_ = verbs::open_rails(
      reactor_, {options_.queue_pairs, kCarriedSlotBytes},
      [this](uint32_t interface_index, bool up) { port_changed(interface_index, up); }, why);
  if (rails_ != nullptr) return rails_->open(port_list_);
  if (options_.rdma == Rdma::kAlways)
    throw Error(Code::system, "STARLING_LINK=verbs, but " + why, "set STARLING_LINK=auto, or tcp");
  // Once a context, at the level that users have: they may think that they have RDMA.
  log(LogLevel::warn, "links to other hosts go over TCP: ", why,
      "; STARLING_LINK=tcp says that this is wanted, and nothing is said here");
}

// Registers without the lock: it takes as long as its pages are many.
RegistrationPtr Proxy::enroll(const Region& region, std::unique_lock<std::mutex>& lock) {
  if (rails_ == nullptr) return nullptr;
  const std::vector<verbs::Device*> devices = rails_->devices();
  lock.unlock();
  RegistrationPtr memory = verbs::enroll(devices, region);
  lock.lock();
  return memory;
}

Proxy::~Proxy() {
  {
    std::lock_guard lock(mutex_);
    for (auto& [identity, way] : ways_) guarded(way->link_.get(), [&] { return way->link_->leave(), true; });
  }
  wake();
  uint64_t since = cpu::monotonic_ns();
  for (uint64_t left = unsaid(); left > 0 && cpu::monotonic_ns() - since < kLeavingNs;) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const uint64_t now_left = unsaid();
    if (now_left != left) since = cpu::monotonic_ns();
    left = now_left;
  }
  // Release: pairs with the acquire in run(). Nothing hangs on it; join() below orders the rest.
  ending_.store(true, std::memory_order_release);
  wake();
  thread_.join();
}

uint64_t Proxy::unsaid() {
  std::lock_guard lock(mutex_);
  uint64_t transfers = 0;
  for (const auto& [identity, way] : ways_) transfers += way->link_->unsaid();
  return transfers;
}

void Proxy::wake() { cpu::notify_event(event_.get()); }

// ---- who calls ----------------------------------------------------------------------------------------
// False: its rank is not known yet.
bool Proxy::introduce(const Hello& hello, std::unique_ptr<tcp::Connection>& connection,
                      const tcp::Port& port) {
  const auto found = ways_.find(hello.from);
  if (found == ways_.end()) return false;
  PeerLink& link = *found->second->link_;
  try {
    link.adopt(hello, std::move(connection), port, cpu::monotonic_ns());
  } catch (const Error& refused) {
    // Its sender finds it closed, and calls again, until it gives up.
    log(LogLevel::error, "a connection to rank ", link.peer_rank(), " at ", port.name, " ",
        tcp::address_text(port.address), " is refused: ", refused.happened(), "; ", refused.remedy());
  } catch (const std::exception& broken) {
    link.lose_by(broken);
  }
  return true;
}

Way& Proxy::attach(const RemoteRank& remote, const std::string& ports) {
  const std::vector<tcp::Port> theirs = tcp::parse_ports(ports);
  const auto paths = tcp::pair_ports(port_list_, theirs);
  if (paths.empty() && !theirs.empty())
    throw Error(Code::invalid_argument,
                "no address of this host (" + ports_text_ + ") is of the family of one of rank " +
                    std::to_string(remote.rank) + "'s (" + ports + ")",
                "set STARLING_TCP_FAMILY to ipv4 or ipv6 on all ranks, or name addresses of one family in "
                "STARLING_TCP_INTERFACES");
  if (paths.empty())
    throw Error(Code::mismatch,
                "rank " + std::to_string(remote.rank) + " says that it listens at '" + ports + "'",
                "install the same version of Starling on all ranks");
  std::lock_guard lock(mutex_);
  std::unique_ptr<Way>& way = ways_[identity_of(remote.arena)];
  if (way != nullptr) return *way;
  const Common common{arena_,
                      reactor_,
                      rails_.get(),
                      bulk_.get(),
                      options_.lengths,
                      options_.policy,
                      identity_of(arena_.name()),
                      options_.shadow_bytes,
                      event_.get(),
                      mismatch_,
                      options_.recorded,
                      options_.polls};
  try {
    way =
        std::make_unique<Way>(*this, std::make_unique<PeerLink>(common, remote, paths, cpu::monotonic_ns()));
  } catch (...) {
    ways_.erase(identity_of(remote.arena));
    throw;
  }
  greetings_.introduce(identity_of(remote.arena));
  wake();
  return *way;
}

void Proxy::port_changed(uint32_t interface_index, bool up) {
  for (auto& [identity, way] : ways_) way->link_->port_changed(interface_index, up);
}

// ---- the thread ---------------------------------------------------------------------------------------
void Proxy::run() {
  pin_this_thread(options_.cores);
  if (options_.polls) prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  uint32_t fruitless = 0;
  // Acquire: pairs with the release in ~Proxy().
  while (!ending_.load(std::memory_order_acquire)) {
    bool any;
    {
      std::lock_guard lock(mutex_);
      any = look_at_all();
    }
    if (any) fruitless = 0;
    if (any && options_.polls) news_ns_ = cpu::monotonic_ns();
    if (any) continue;
    if (++fruitless < kLooks)
      sched_yield();
    else if (options_.polls)
      doze();
    else
      sleep_as_thread();
  }
}

// Where blocks do not ring. Acquire: pairs with the release in end_work(): of operations that have ended, the
// last look below sees all that their blocks stored.
void Proxy::doze() {
  const uint64_t ended = ended_.load(std::memory_order_acquire);
  const uint64_t begun = begun_.load(std::memory_order_acquire);
  const uint64_t now = cpu::monotonic_ns();
  if (begun != begun_seen_) news_ns_ = now;
  begun_seen_ = begun;
  const uint64_t in_vain = now - news_ns_;
  if (in_vain < kEagerNs) return void(sched_yield());
  // Either we see an operation that begins now, or who begins it sees that we sleep; pairs with begin_work().
  dozes_.store(true, std::memory_order_seq_cst);
  if (begun_.load(std::memory_order_seq_cst) == begun) {
    // What peers send ends the nap; what our blocks and hosts store is seen after it.
    if (begun != ended)
      reactor_.sleep_unhushed(std::min(in_vain / kNapShare, kLongestNapNs));
    else
      sleep_as_thread();
  }
  dozes_.store(false, std::memory_order_relaxed);
}

void Proxy::begin_work() {
  begun_.fetch_add(1, std::memory_order_seq_cst);
  // Either the thread sees the count before it sleeps, or we see that it does; pairs with doze().
  if (dozes_.load(std::memory_order_seq_cst)) wake();
}

void Proxy::end_work() {
  // Release: what the operation's blocks stored, which its completion has shown us; pairs with doze().
  ended_.fetch_add(1, std::memory_order_release);
}

// What is thrown ends one link, or all where it is not known whose it was: hosts are told, and the thread
// goes on for the others.
template <class Step>
bool Proxy::guarded(PeerLink* link, Step&& step) {
  const auto lose = [&](const std::exception& why) {
    if (link != nullptr) return link->lose_by(why);
    for (auto& [identity, way] : ways_) way->link_->lose_by(why);
  };
  try {
    return step();
  } catch (const std::exception& why) {
    lose(why);
  }
  return true;
}

bool Proxy::look_at_all() {
  const uint64_t now = cpu::monotonic_ns();
  bool any = guarded(nullptr, [&] { return reactor_.poll(0) > 0; });
  for (auto& listener : listeners_) listener->expire(now);
  greetings_.expire(now);
  bool bulky = false;
  for (auto& [identity, way] : ways_) {
    any |= guarded(way->link_.get(), [&] { return way->link_->round(now); });
    bulky |= way->link_->is_bulky();
  }
  if (bulky != is_bulky()) bulky_.store(bulky, std::memory_order_relaxed);
  return any;
}

uint64_t Proxy::next_deadline() const {
  uint64_t next = greetings_.deadline();
  for (const auto& listener : listeners_) next = std::min(next, listener->deadline());
  for (const auto& [identity, way] : ways_) next = std::min(next, way->link_->next_deadline());
  return next;
}

void Proxy::listen() {
  for (auto& [identity, way] : ways_) way->link_->listen();
}
void Proxy::silence() {
  for (auto& [identity, way] : ways_) way->link_->silence();
}

// Our place at the doors, then once more a look at everything: who stores something sees us, or we see it.
void Proxy::sleep_as_thread() {
  uint64_t timeout_ms;
  uint64_t helped;
  {
    std::lock_guard lock(mutex_);
    if (!resting_) listen();
    const bool any = look_at_all();
    const uint64_t next = next_deadline();
    const uint64_t now = cpu::monotonic_ns();
    timeout_ms = next <= now || any ? 0 : std::min((next - now) / 1'000'000 + 1, kLongestSleepMs);
    if (resting_) timeout_ms = std::min(timeout_ms, kGlanceMs);
    wakes_ns_ = now + timeout_ms * 1'000'000;
    helped = helped_;
  }
  if (timeout_ms > 0) reactor_.sleep(int(timeout_ms));
  std::lock_guard lock(mutex_);
  if (!resting_) return silence();
  if (helped_ != helped || helper_sleeps_ || timeout_ms == 0) return;
  resting_ = false;  // they are held up: the work is ours until one of them looks again
  reactor_.hush(false);
}

// ---- who helps ----------------------------------------------------------------------------------------
void Proxy::enter() {
  std::lock_guard lock(mutex_);
  ++helpers_;
  rest();
}

void Proxy::rest() {
  if (resting_) return;
  resting_ = true;
  silence();
  reactor_.hush(true);
}

void Proxy::look() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  ++helped_;
  rest();
  look_at_all();
}

// The thread's place at the doors again, then the last look: as in sleep().
void Proxy::leave() {
  std::lock_guard lock(mutex_);
  if (--helpers_ > 0 || !resting_) {
    look_at_all();
    return;
  }
  resting_ = false;
  listen();
  bool any = true;
  for (uint32_t look = 0; any && look < kLastLooks; ++look) any = look_at_all();
  reactor_.hush(false);
  if (any || next_deadline() < wakes_ns_) wake();
}

// A place at all doors, this rank's own among them: as in sleep_as_thread().
bool Proxy::prepare() {
  // Relaxed: a neighbour that is not known yet is heard when the sleep is over.
  if (neighbours_.load(std::memory_order_relaxed)) return false;
  std::lock_guard lock(mutex_);
  if (helper_sleeps_) return false;
  helper_sleeps_ = true;
  rest();
  listen();
  // Release: own_event() before; pairs with the acquire in ring().
  std::atomic_ref<uint64_t>(arena_.header()->daemon.sleepers).fetch_or(kEventBit, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with the fence in ring()
  return true;
}

void Proxy::sleep(uint64_t longest_ns) {
  uint64_t timeout_ns;
  {
    std::lock_guard lock(mutex_);
    const uint64_t now = cpu::monotonic_ns(), next = next_deadline();
    timeout_ns = look_at_all() || next <= now ? 0 : std::min(longest_ns, next - now);
  }
  if (timeout_ns > 0) reactor_.sleep_unhushed(timeout_ns);
  cancel();
}

void Proxy::cancel() {
  std::lock_guard lock(mutex_);
  helper_sleeps_ = false;
  std::atomic_ref<uint64_t>(arena_.header()->daemon.sleepers)
      .fetch_and(~kEventBit, std::memory_order_relaxed);
  if (resting_) silence();
}

}  // namespace starling::link::carry
