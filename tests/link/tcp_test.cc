// Goal: what flows over sockets do beside what every link does (conformance_test.cc): they start without a
// path that cannot be connected, record what landed, and pair ports. Method: the suite's rig, over loopback,
// through wires that the test cuts.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "link/tcp_rig.h"
#include "monitor/path_ring.h"

namespace starling::link::conformance {
namespace {

template <class Test>
void checked(Test&& test) {
  try {
    test();
  } catch (const Failure& failure) {
    FAIL() << failure.why;
  }
}

TEST(Tcp, StartsWithoutAPathThatCannotBeConnected) {
  checked([] {
    TcpRig rig({}, bit(0));
    rig.deliver(20);
    rig.heal(0);
    rig.run_until("the first path", [&] { return rig.uses(1) && rig.sender(0)->epoch > 1; });
    rig.deliver(20);
  });
}

// Without wires, so that nobody listens where the peer has died.
class DirectRig final : public SocketRig {
 public:
  explicit DirectRig(const RigOptions& options) : SocketRig(options, 100'000, tcp::TimerLengths()) {
    for (uint32_t rank = 0; rank < 2; ++rank)
      add_end(rank, std::vector<tcp::Port>(options.paths, tcp::usable_ports("lo").front()));
    for (uint32_t from = 0; from < 2; ++from) connect(from, ends_[1 - from]->ports);
    start();
  }
  void fail(uint32_t, Fault) override {}
  void heal(uint32_t) override {}
};

// Not that they could not be opened again since.
TEST(Tcp, PathsSayWhatTheyDiedOf) {
  checked([] {
    DirectRig rig({.give_up_ns = 1'000'000'000});
    rig.deliver(20);
    rig.dead = true;
    rig.die();
    rig.run_until("an error", [&] { return !rig.failure(0, 0).empty(); });
    const std::string text = rig.failure(0, 0);
    EXPECT_NE(text.find(": its connection was closed"), std::string::npos) << text;
    EXPECT_EQ(text.find("connected again"), std::string::npos) << text;
  });
}

// By transfers alone, one path would have all the large ones.
TEST(Tcp, StripesShareTheBytes) {
  checked([] {
    constexpr uint32_t kTransfers = 16, kLarge = 100'000, kEven = 64 << 10;
    std::vector<uint32_t> sizes;
    for (uint32_t k = 0; k < kTransfers; ++k) sizes.push_back(k % 2 == 0 ? 1 : kLarge);
    TcpRig rig({.policy = Policy::kStriping, .patient = true, .sizes = sizes});
    rig.run_until("both paths", [&] { return rig.uses(3); });
    rig.hold(1, true);  // so nothing lands
    rig.traffic[0].limit = kTransfers;
    rig.run_until("all of them under way", [&] { return rig.transmitted(0) == kTransfers; });
    uint64_t bytes[2] = {};
    for (uint32_t k = 0; k < kTransfers; ++k) bytes[rig.sender(0)->path_of[k]] += rig.traffic[0].bytes(k);
    EXPECT_LE(std::max(bytes[0], bytes[1]) - std::min(bytes[0], bytes[1]), kLarge + kEven);
    rig.hold(1, false);
    rig.run_until("delivery", [&] { return rig.all_there(); });
  });
}

// What one direction finds out the other need not find out again, when it has something to send at last.
TEST(Tcp, ASilentPathIsLeftByBothDirectionsThoughOneIsIdle) {
  checked([] {
    TcpRig rig({.policy = Policy::kStriping, .asks_when_idle = false});
    rig.run_until("both paths", [&] { return rig.uses(3); });
    rig.deliver(20);
    // A busy machine may have been asked whether it lives, and have been left for its silence.
    rig.run_until("answers, by both paths", [&] { return !rig.asks() && rig.uses(3); });
    rig.fail(1, conformance::kSilent);
    rig.traffic[0].limit += 40;  // rank 1 sends nothing
    // At once: it is opened again and again, and asked then.
    rig.run_until("the idle direction",
                  [&] { return rig.sender(1)->paths[1].condition != PathCondition::kUp; });
    EXPECT_EQ(rig.sender(1)->paths[1].cause, FailureCause::kPeer) << "it had nothing to ask for";
    rig.run_until("both directions", [&] { return rig.uses(1); });
    rig.deliver(20);
  });
}

// What watchers see of a path: every transfer once, whichever path it went by in the end.
TEST(Tcp, RecordsWhatLanded) {
  checked([] {
    PathRing rings[2] = {};
    TcpRig rig({.policy = Policy::kStriping, .patient = true}, 0, {&rings[0], &rings[1]});
    rig.deliver(200);
    EXPECT_EQ(rings[0].written + rings[1].written, 200u);
    EXPECT_GT(rings[0].written, 0u);
    EXPECT_GT(rings[1].written, 0u);
    uint64_t bytes = 0;
    for (uint64_t k = 0; k < 200; ++k) bytes += sizeof(uint64_t) + rig.traffic[0].bytes(k);
    EXPECT_EQ(rings[0].bytes + rings[1].bytes, bytes);
    for (const PathRing& ring : rings) {
      EXPECT_EQ(ring.left_bytes, 0u);
      EXPECT_EQ(ring.waiting_since_ns, 0u);
      monitor::PathReader reader(ring);
      uint64_t last = 0;
      for (TransferRecord record; reader.next(record); last = record.completed_ns) {
        EXPECT_LE(record.posted_ns, record.completed_ns);
        EXPECT_LE(last, record.completed_ns);
      }
    }
    rig.add(100);
    rig.fail(0, kCut);
    rig.run_until("the other path", [&] { return rig.uses(2); });
    rig.run_until("delivery", [&] { return rig.all_there(); });
    EXPECT_EQ(rings[0].left_bytes, 0u);
    EXPECT_GE(rings[0].closed, 1u);
    EXPECT_LE(rings[0].written + rings[1].written, 300u) << "none twice";
  });
}

}  // namespace
}  // namespace starling::link::conformance

namespace starling::link::tcp {
namespace {

Port port_of(const char* name, uint32_t index, const char* address, uint32_t prefix_bits) {
  return {name, index, parse_address(address).value(), prefix_bits};
}

std::string names_of(const std::vector<Port>& ports) {
  std::string names;
  for (const Port& port : ports) names += port.name + " " + address_text(port.address) + ";";
  return names;
}

std::string refusal(const std::vector<Port>& all, const std::string& wanted, Family family) {
  try {
    return names_of(choose_ports(all, wanted, family));
  } catch (const Error& error) {
    return error.happened();
  }
}

std::string control_of(int fd) {
  char name[32] = {};
  socklen_t bytes = sizeof name - 1;
  return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0 ? name : "none";
}

// Of a connection from a port to itself: of the end that connects, and of the one that accepts.
std::vector<std::string> controls_of(const std::string& congestion) {
  tcp::Port port = tcp::usable_ports("lo").front();
  port.congestion = congestion;
  const tcp::Descriptor listener = tcp::listen_at(port);
  int error = 0;
  const tcp::Descriptor near = tcp::connect_between(port, port, 1000, error);
  pollfd waiting{listener.get(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 10'000), 1);
  const tcp::Descriptor far = tcp::accept_from(listener.get(), error);
  return {control_of(near.get()), control_of(far.get())};
}

TEST(Sockets, HaveTheirPortsCongestionControl) {
  const tcp::Descriptor plain(socket(AF_INET, SOCK_STREAM, 0));
  const std::string usual = control_of(plain.get());
  const bool cubic = setsockopt(plain.get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0;
  const std::string chosen = usual.starts_with("bbr") && cubic ? "cubic" : usual;
  EXPECT_EQ(controls_of(""), (std::vector<std::string>{chosen, chosen}));
  EXPECT_EQ(controls_of(tcp::kUsualCongestion), (std::vector<std::string>{usual, usual}));
  EXPECT_EQ(controls_of("reno"), (std::vector<std::string>{"reno", "reno"}));
  try {
    controls_of("nosuch");
    FAIL() << "a control that is not there";
  } catch (const Error& refused) {
    EXPECT_NE(refused.remedy().find("STARLING_TCP_CONGESTION"), std::string::npos);
  }
}

TEST(Ports, AreNamedByInterfaceOrAddress) {
  // As a system has them: loopback, both families, IPv6 alone, link-local alone, IPv4 alone.
  const std::vector<Port> all = {
      port_of("lo", 1, "127.0.0.1", 8),       port_of("lo", 1, "::1", 128),
      port_of("both", 2, "fe80::2", 64),      port_of("both", 2, "fd00:0:0:2::1", 64),
      port_of("both", 2, "10.0.0.1", 24),     port_of("six", 3, "fe80::3", 64),
      port_of("six", 3, "fd00:0:0:3::1", 64), port_of("near", 4, "fe80::4", 64),
      port_of("four", 5, "10.0.1.1", 24)};
  EXPECT_EQ(names_of(choose_ports(all, "", Family::kAny)), "both 10.0.0.1;six fd00:0:0:3::1;four 10.0.1.1;");
  EXPECT_EQ(names_of(choose_ports(all, "", Family::kIpv6)), "both fd00:0:0:2::1;six fd00:0:0:3::1;");
  EXPECT_EQ(names_of(choose_ports(all, "", Family::kIpv4)), "both 10.0.0.1;four 10.0.1.1;");
  EXPECT_EQ(names_of(choose_ports(all, "six,both,six", Family::kAny)),
            "six fd00:0:0:3::1;both 10.0.0.1;six fd00:0:0:3::1;");
  EXPECT_EQ(names_of(choose_ports(all, "fd00:0:0:2:0:0:0:1,10.0.1.1", Family::kIpv4)),
            "both fd00:0:0:2::1;four 10.0.1.1;")
      << "an address says its family itself";
  EXPECT_EQ(names_of(choose_ports({all[0], all[1], all[7]}, "", Family::kIpv6)), "lo ::1;");

  EXPECT_EQ(refusal(all, "near", Family::kAny),
            "there is no interface 'near' that is up and has an address that is not link-local");
  EXPECT_EQ(refusal(all, "fe80::2", Family::kAny),
            "'fe80::2' is link-local: it names a host on one wire alone, and no interface");
  EXPECT_EQ(refusal(all, "four", Family::kIpv6),
            "there is no interface 'four' that is up and has an IPv6 address");
  EXPECT_EQ(refusal(all, "fd00::9", Family::kAny), "no interface that is up has the address fd00::9");
  EXPECT_EQ(refusal({all[7]}, "", Family::kAny), "no network interface is up and has an address");
}

TEST(Ports, TellAddressesAndNetworksOfEitherFamily) {
  for (const char* text : {"10.0.0.1", "fd00::1", "::1", "2001:db8:0:1:1:1:1:1"})
    EXPECT_EQ(address_text(parse_address(text).value()), text);
  for (const char* text : {"", "10.0.0", "eth0", "eth0.100", "eth0:1", "fe80::1%eth0", "[fd00::1]", "::g"})
    EXPECT_FALSE(parse_address(text)) << text;
  const auto same = [](const char* a, const char* b, uint32_t bits) {
    return same_network(parse_address(a).value(), parse_address(b).value(), bits);
  };
  EXPECT_TRUE(same("10.1.2.3", "10.1.2.200", 24));
  EXPECT_FALSE(same("10.1.2.3", "10.1.3.3", 24));
  EXPECT_TRUE(same("10.1.2.3", "10.1.3.3", 23));
  EXPECT_TRUE(same("fd00:0:0:6::1", "fd00:0:0:7::1", 63));
  EXPECT_FALSE(same("fd00:0:0:6::1", "fd00:0:0:7::1", 64));
  EXPECT_FALSE(same("10.1.2.3", "10.1.2.3", 0));
  EXPECT_FALSE(same("10.1.2.3", "::1", 1)) << "of two families";
}

TEST(Ports, PairsThoseOfOneFamily) {
  const Port a = port_of("a", 1, "10.0.0.1", 24), b = port_of("b", 2, "fd00:0:0:1::1", 64);
  const Port c = port_of("c", 1, "fd00:0:0:2::1", 64), d = port_of("d", 2, "11.0.0.1", 24);
  const auto pairs = pair_ports({a, b}, {c, d});  // of no common network
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].second.name, "d");
  EXPECT_EQ(pairs[1].second.name, "c");
  EXPECT_TRUE(pair_ports({a}, {c}).empty());
  EXPECT_EQ(pair_ports({b}, {d, port_of("e", 3, "fd00:0:0:1::2", 64)}).front().second.name, "e");
}

TEST(Ports, PairsThoseOfOneNetwork) {
  const Port a = port_of("a", 1, "10.0.0.1", 24), b = port_of("b", 2, "10.0.1.1", 24);
  const Port c = port_of("c", 1, "10.0.1.2", 24), d = port_of("d", 2, "10.0.0.2", 24);
  const Port e = port_of("e", 3, "11.0.0.2", 24);
  const auto pairs = pair_ports({a, b}, {c, d, e});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].second.name, "d");
  EXPECT_EQ(pairs[1].second.name, "c");
  EXPECT_EQ(pair_ports({a, b}, {e}).front().first.name, "a");
  std::vector<Port> ports{a, b, port_of("f", 4, "fd00::1", 64)};
  ports[1].number = 4711;
  ports[2].number = 4712;
  EXPECT_EQ(ports_text(ports), "a=10.0.0.1/24:0,b=10.0.1.1/24:4711,f=fd00::1/64:4712");
  EXPECT_EQ(ports_text(parse_ports(ports_text(ports))), ports_text(ports));
  EXPECT_TRUE(parse_ports("nonsense").empty());
}

}  // namespace
}  // namespace starling::link::tcp
