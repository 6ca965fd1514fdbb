// Goal: a proxy that runs out of descriptors, of watches or of memory neither spins nor ends the process: it
// goes on when there is room again, or says by rank, port and remedy why a link ended. Method: the limit on
// open files is lowered; epoll_ctl, accept4 and operator new of this program count and refuse.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "link/two_hosts.h"

namespace {

std::atomic<int> adds_to_refuse{0};
std::atomic<bool> accepts_none{false};
std::mutex accepts_mutex;
std::vector<uint64_t> refused_accepts;  // when
std::atomic<int64_t> allocations_left{INT64_MAX};  // of threads that are not the test's
thread_local bool is_test = false;

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int epoll_ctl(int epoll, int what, int fd, epoll_event* event) noexcept {
  if (what == EPOLL_CTL_ADD && adds_to_refuse.load() > 0 && adds_to_refuse.fetch_sub(1) > 0) {
    errno = ENOSPC;
    return -1;
  }
  static auto* const real = next<int(int, int, int, epoll_event*)>("epoll_ctl");
  return real(epoll, what, fd, event);
}

extern "C" int accept4(int fd, sockaddr* address, socklen_t* bytes, int flags) {
  const uint64_t now = starling::cpu::monotonic_ns();
  static auto* const real = next<int(int, sockaddr*, socklen_t*, int)>("accept4");
  int accepted = -1;
  if (accepts_none)
    errno = EMFILE;
  else
    accepted = real(fd, address, bytes, flags);
  if (accepted < 0 && errno == EMFILE) {
    std::lock_guard lock(accepts_mutex);
    refused_accepts.push_back(now);
    errno = EMFILE;
  }
  return accepted;
}

// Not inlined: the compiler would see free() behind a new that it knows.
__attribute__((noinline)) void* operator new(size_t bytes) {
  if (!is_test && allocations_left.load(std::memory_order_relaxed) != INT64_MAX &&
      allocations_left.fetch_sub(1) == 0)
    throw std::bad_alloc();
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// std::stable_sort asks for its buffer so; the two forms share one operator delete.
__attribute__((noinline)) void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace starling::link::carry {
namespace {

constexpr int kForEver = 1 << 30;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

size_t accepts_refused() {
  std::lock_guard lock(accepts_mutex);
  return refused_accepts.size();
}

// While it lives the process gets no descriptor. UndefinedBehaviorSanitizer makes a pipe to look whether an
// object that it does not know lies in memory, and takes one that it cannot look at for none: under it
// connections are refused by hand.
class NoDescriptors {
 public:
#ifdef STARLING_SANITIZED
  NoDescriptors() { accepts_none = true; }
  ~NoDescriptors() { accepts_none = false; }
#else
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit_), 0);
    const rlimit none{0, limit_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit_), 0); }

 private:
  rlimit limit_{};
#endif
};

class ProxyFailures : public testing::Test {
 protected:
  void SetUp() override { is_test = true; }
  void TearDown() override {
    adds_to_refuse = 0;
    allocations_left = INT64_MAX;
  }
  // There and back.
  static bool exchange(TwoHosts& hosts, uint64_t messages) {
    for (uint64_t k = 0; k < messages; ++k)
      if (!hosts.a.send(k, 100) || !hosts.b.receive(k, 100) || !hosts.b.send(k, 100) ||
          !hosts.a.receive(k, 100))
        return false;
    return true;
  }
};

TEST_F(ProxyFailures, ListenersRestWithoutDescriptors) {
  TwoHosts hosts;
  const tcp::Port lo = tcp::usable_ports("lo").front();
  tcp::Port theirs = tcp::parse_ports(hosts.a.proxy().ports()).front();
  // Made before there is no room for more; it calls after.
  const tcp::Descriptor caller(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  const socklen_t address_bytes = tcp::socket_address(theirs.address, theirs.number, address);
  testing::internal::CaptureStderr();
  {
    const NoDescriptors none;
    EXPECT_EQ(connect(caller.get(), reinterpret_cast<sockaddr*>(&address), address_bytes), 0);
    EXPECT_TRUE(wait_until([] { return accepts_refused() >= 4; }));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(log, "cannot accept connections"), 1u) << log;
  EXPECT_NE(log.find("ulimit -n"), std::string::npos) << log;
  for (size_t k = 1; k < 4; ++k)
    EXPECT_GE(refused_accepts[k] - refused_accepts[k - 1], 50'000'000u) << "it does not rest";
  ASSERT_TRUE(hosts.join()) << hosts.a.way().failure() << hosts.b.way().failure();
  EXPECT_TRUE(exchange(hosts, 5));
}

TEST_F(ProxyFailures, GoOnWhenThereAreWatchesAgain) {
  TwoHosts hosts;
  adds_to_refuse = 5;
  ASSERT_TRUE(hosts.join()) << hosts.a.way().failure() << hosts.b.way().failure();
  EXPECT_LE(adds_to_refuse.load(), 0);
  EXPECT_TRUE(exchange(hosts, 5));
}

TEST_F(ProxyFailures, NameRankPortAndRemedyWithoutWatches) {
  tcp::TimerLengths lengths;
  lengths.give_up_ns = 300'000'000;
  TwoHosts hosts(lengths);
  adds_to_refuse = kForEver;
  EXPECT_FALSE(hosts.join());
  ASSERT_TRUE(wait_until([&] { return hosts.a.failed() && hosts.b.failed(); }));
  const std::string failure = hosts.a.way().failure();
  for (const char* part : {"rank 1", "lo 127.0.0.1", "fs.epoll.max_user_watches"})
    EXPECT_NE(failure.find(part), std::string::npos) << failure;
  EXPECT_EQ(hosts.a.shadow()->closed, 2u);
}

// Each allocation of the proxies' threads fails once: the link does its work all the same, or it says what it
// ended by; and the proxies end in good order.
TEST_F(ProxyFailures, SurviveEachAllocationThatFails) {
  tcp::TimerLengths lengths;
  lengths.give_up_ns = 200'000'000;
  size_t told = 0;
  for (int64_t allocation = 0; allocation < 120; allocation += 1 + allocation / 4) {
    TwoHosts hosts(lengths);
    allocations_left = allocation;
    const bool well = hosts.join() && exchange(hosts, 20);
    allocations_left = INT64_MAX;
    if (well) continue;
    ASSERT_TRUE(wait_until([&] { return hosts.a.failed() || hosts.b.failed(); }));
    const std::string failure = hosts.a.way().failure() + hosts.b.way().failure();
    EXPECT_NE(failure.find("rank "), std::string::npos) << failure;
    EXPECT_NE(failure.find("lo 127.0.0.1"), std::string::npos) << failure;
    told += failure.find("no memory") != std::string::npos;
  }
  EXPECT_GT(told, 0u);
}

// The paths are well, and nobody would give up for two minutes.
TEST_F(ProxyFailures, ThePeerHearsAtOnceThatALinkBroke) {
  tcp::TimerLengths lengths;
  lengths.give_up_ns = 2 * std::chrono::nanoseconds(kBound).count();
  TwoHosts hosts(lengths);
  ASSERT_TRUE(hosts.join());
  allocations_left = 5;
  EXPECT_FALSE(exchange(hosts, 1000));
  allocations_left = INT64_MAX;
  ASSERT_TRUE(wait_until([&] { return hosts.a.failed() && hosts.b.failed(); })) << "it calls in vain";
  const std::string both = hosts.a.way().failure() + hosts.b.way().failure();
  EXPECT_NE(both.find("no memory"), std::string::npos) << both;
  EXPECT_NE(both.find(" gave up"), std::string::npos) << both;
}

// A firewall lets b call a, and not the reverse: a gives up, while b's own flow is well, and would wait for
// two minutes.
TEST_F(ProxyFailures, WhoCannotBeCalledHearsThatThePeerGaveUp) {
  tcp::TimerLengths soon, late;
  soon.give_up_ns = 500'000'000;
  late.give_up_ns = 2 * std::chrono::nanoseconds(kBound).count();
  Host a(0, soon, "lo", false), b(1, late, "lo", false);
  std::string nobody = b.proxy().ports();
  nobody.replace(nobody.rfind(':') + 1, std::string::npos, "1");
  a.attach(b, nobody);
  b.attach(a);
  b.open_lane();
  ASSERT_TRUE(wait_until([&] { return a.failed(); }));
  EXPECT_NE(a.way().failure().find("no path to rank 1 lives"), std::string::npos);
  ASSERT_TRUE(wait_until([&] { return b.failed(); })) << "nobody told it";
  const std::string told = b.way().failure();
  EXPECT_NE(told.find("rank 0 gave up"), std::string::npos) << told;
  EXPECT_EQ(told.find("has not failed"), std::string::npos) << told;
}

}  // namespace
}  // namespace starling::link::carry
