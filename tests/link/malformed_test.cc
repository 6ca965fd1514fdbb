// Goal: whatever a peer says, the process goes on: what makes no sense ends the link, with words that name
// the rank, what it was, and the remedy; and callers who say nothing keep nobody out. Method: a proxy whose
// peer is this test, by sockets of its own, which says each wrong thing once.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "link/two_hosts.h"
#include "wire/carried.h"
#include "wire/frame.h"

namespace starling::link::carry {
namespace {

constexpr const char* kName = "starling.malformed.peer";
constexpr uint64_t kLongNs = 60'000'000'000;
constexpr auto kSoon = std::chrono::seconds(10);
constexpr uint32_t kHuge = 1u << 31;

// Nobody answers here: no path may be taken for silent meanwhile.
tcp::TimerLengths patient() {
  tcp::TimerLengths lengths;
  lengths.watchdog_ns = lengths.idle_watchdog_ns = lengths.probe_ns = kLongNs;
  return lengths;
}

tcp::Descriptor listen_at_loopback(uint16_t& port) {
  tcp::Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(fd.get(), any, bytes), 0);
  EXPECT_EQ(listen(fd.get(), 16), 0);
  EXPECT_EQ(getsockname(fd.get(), any, &bytes), 0);
  port = ntohs(address.sin_port);
  return fd;
}

tcp::Descriptor call(Host& host) {
  const tcp::Port port = tcp::parse_ports(host.proxy().ports()).front();
  sockaddr_storage to{};
  const socklen_t bytes = tcp::socket_address(port.address, port.number, to);
  tcp::Descriptor fd(socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), bytes), 0);
  return fd;
}

template <class T>
void say(const tcp::Descriptor& fd, const T& what) {
  [[maybe_unused]] const ssize_t sent = send(fd.get(), &what, sizeof what, MSG_NOSIGNAL);
}

// Rank 1, on a host of its own.
struct Peer {
  Peer() : host(0, patient(), "lo", false) {
    uint16_t port = 0;
    const tcp::Descriptor listener = listen_at_loopback(port);
    RemoteRank remote;
    remote.arena = kName;
    remote.rank = 1;
    host.attach(remote, "lo=127.0.0.1/8:" + std::to_string(port));
    host.open_lane();
    back = tcp::Descriptor(accept(listener.get(), nullptr, nullptr));
    EXPECT_EQ(recv(back.get(), &heard, sizeof heard, MSG_WAITALL), ssize_t(sizeof heard));
  }

  Hello hello() const { return {kHelloMagic, identity_of(kName), heard.from, 0, 1, 1, 0, {}}; }
  void greet(const Hello& hello) {
    path[hello.path % kMaxPaths] = call(host);
    say(path[hello.path % kMaxPaths], hello);
  }

  template <class Body>
  void add(RecordKind kind, uint32_t lane, const Body& body, uint32_t bytes = 0) {
    constexpr uint32_t kBytes = (sizeof(RecordHeader) + sizeof body + 7) & ~7u;
    const RecordHeader header{kind, bytes != 0 ? bytes : kBytes, lane, 0};
    const size_t at = control.size();
    control.resize(at + kBytes);
    std::memcpy(control.data() + at, &header, sizeof header);
    std::memcpy(control.data() + at + sizeof header, &body, sizeof body);
  }
  FrameHeader frame() {
    FrameHeader header{};
    header.kind = FrameKind::kTransfer;
    header.epoch = 1;
    header.sequence = next++;
    header.control_bytes = uint32_t(control.size());
    return header;
  }
  // Records so far.
  void flush() {
    say(path[0], frame());
    send(path[0].get(), control.data(), control.size(), MSG_NOSIGNAL);
    control.clear();
  }
  template <class Body>
  void tell(RecordKind kind, uint32_t lane, const Body& body) {
    add(kind, lane, body);
    flush();
  }
  // The beginning of one.
  void message(const MessagePlace& place, uint32_t bytes, uint32_t sent_bytes = ~0u, uint32_t by = 0,
               Placed placed = Placed::kInFrame) {
    FrameHeader header = frame();
    header.payload_bytes = bytes;
    header.placed = placed;
    std::memcpy(header.place, &place, sizeof place);
    say(path[by], header);
    const std::vector<std::byte> payload(std::min(bytes, sent_bytes));
    send(path[by].get(), payload.data(), payload.size(), MSG_NOSIGNAL);
  }
  static OpenRecord lane() {
    return {1,
            2,
            kShape.size,
            1,
            0,
            kShape.channels,
            kShape.private_slots,
            kShape.slot_bytes,
            0,
            kShape.board_size,
            0,
            0};
  }

  Host host;
  Hello heard{};
  tcp::Descriptor back;  // what the host's own flow says and hears
  tcp::Descriptor path[kMaxPaths];  // by which we send
  uint64_t next = 0;
  std::vector<std::byte> control;
};

bool happens(const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + kSoon;
  while (!what()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

struct Case {
  const char* name;
  const char* words;  // of the error
  std::function<void(Peer&)> say;
  bool greets = true;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class Malformed : public testing::TestWithParam<Case> {};

TEST_P(Malformed, EndsTheLinkInWords) {
  Peer peer;
  if (GetParam().greets) peer.greet(peer.hello());
  GetParam().say(peer);
  ASSERT_TRUE(happens([&] { return peer.host.failed(); })) << "the link goes on";
  const std::string failure = peer.host.way().failure();
  EXPECT_NE(failure.find("link to rank 1 "), std::string::npos) << failure;
  EXPECT_NE(failure.find(GetParam().words), std::string::npos) << failure;
  EXPECT_NE(failure.find("lo "), std::string::npos) << "the port: " << failure;
  EXPECT_NE(failure.find("use the same version of the library on all hosts"), std::string::npos) << failure;
  // Who calls again hears it, and others may still come.
  EXPECT_TRUE(happens([&] {
    const tcp::Descriptor again = call(peer.host);
    say(again, peer.hello());
    FrameHeader header{};
    LinkMessage last{};
    return recv(again.get(), &header, sizeof header, MSG_WAITALL) == sizeof header &&
           recv(again.get(), &last, sizeof last, MSG_WAITALL) == sizeof last &&
           LinkMessageKind(last.kind) == LinkMessageKind::kFailed;
  }));
}

std::vector<Case> cases_of(std::vector<Case> cases) { return cases; }
auto name_of = [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); };

// ---- hellos -------------------------------------------------------------------------------------------
Case hello(const char* name, const char* words, void (*change)(Hello&)) {
  return {name, words,
          [change](Peer& peer) {
            Hello hello = peer.hello();
            change(hello);
            peer.greet(hello);
          },
          false};
}
Case second_hello(const char* name, void (*change)(Hello&)) {
  Case one = hello(name, "not what its first hello said", change);
  one.greets = true;
  return one;
}

INSTANTIATE_TEST_SUITE_P(Hellos, Malformed,
                         testing::ValuesIn(cases_of({
                             hello("NoPaths", "paths", [](Hello& h) { h.path_count = 0; }),
                             hello("ManyPaths", "paths", [](Hello& h) { h.path_count = kMaxPaths + 1; }),
                             hello("PathBeyond", "paths", [](Hello& h) { h.path = 1; }),
                             hello("NoIncarnation", "incarnation", [](Hello& h) { h.incarnation = 0; }),
                             hello("Policy", "policy", [](Hello& h) { h.policy = 77; }),
                             hello("QueuePairs", "queue pairs", [](Hello& h) { h.queue_pairs.count = 99; }),
                             second_hello("PathBeyondTheFirstHello",
                                          [](Hello& h) {
                                            h.path = 7;
                                            h.path_count = 8;
                                            h.incarnation = 2;
                                          }),
                             second_hello("AnotherPolicy",
                                          [](Hello& h) {
                                            h.policy = 1;
                                            h.incarnation = 2;
                                          }),
                         })),
                         name_of);

// ---- frames -------------------------------------------------------------------------------------------
Case frame(const char* name, const char* words, void (*change)(FrameHeader&)) {
  return {name, words, [change](Peer& peer) {
            FrameHeader header = peer.frame();
            change(header);
            say(peer.path[0], header);
          }};
}
Case said(const char* name, const char* words, void (*change)(LinkMessage&)) {
  return {name, words, [change](Peer& peer) {
            FrameHeader header{};
            header.kind = FrameKind::kMessage;
            header.control_bytes = sizeof(LinkMessage);
            LinkMessage message{};
            message.kind = uint32_t(LinkMessageKind::kReport);
            message.epoch = 1;
            change(message);
            const bool reports = message.kind == uint32_t(LinkMessageKind::kReport);
            const tcp::Descriptor& to = reports ? peer.back : peer.path[0];
            say(to, header);
            say(to, message);
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Frames, Malformed,
    testing::ValuesIn(cases_of({
        frame("Kind", "frame", [](FrameHeader& f) { f.kind = FrameKind(9); }),
        frame("ControlBytes", "longer", [](FrameHeader& f) { f.control_bytes = kMostControlBytes + 1; }),
        frame("PayloadBytes", "longer", [](FrameHeader& f) { f.payload_bytes = kCarriedSlotBytes + 1; }),
        frame("Beyond", "window", [](FrameHeader& f) { f.sequence = kFlowWindow; }),
        frame("Placed", "placed", [](FrameHeader& f) { f.placed = Placed::kInSlot; }),
        frame("MessageBytes", "message",
              [](FrameHeader& f) {
                f.kind = FrameKind::kMessage;
                f.control_bytes = 10;
              }),
        frame("MessagePayload", "message",
              [](FrameHeader& f) {
                f.kind = FrameKind::kMessage;
                f.control_bytes = sizeof(LinkMessage);
                f.payload_bytes = 1;
              }),
        Case{"Back", "transfer", [](Peer& peer) { say(peer.back, peer.frame()); }},
        said("LinkMessageKind", "message", [](LinkMessage& m) { m.kind = 77; }),
        said("Done", "never sent", [](LinkMessage& m) { m.done = 1000; }),
        said("Landed", "never sent", [](LinkMessage& m) { m.landed = uint64_t(1) << 63; }),
        said("Incarnations", "never opened", [](LinkMessage& m) { m.incarnations[0] = ~0u; }),
    })),
    name_of);

// ---- messages of connectors ---------------------------------------------------------------------------
Case message(const char* name, const char* words, MessagePlace place, uint32_t bytes = 64) {
  return {name, words, [place, bytes](Peer& peer) { peer.message(place, bytes); }};
}

INSTANTIATE_TEST_SUITE_P(Messages, Malformed,
                         testing::ValuesIn(cases_of({
                             message("Lane", "lane", {9, 0, 0, kLastPiece, 0}),
                             message("LaneMost", "lane", {~0u, 0, 0, kLastPiece, 0}),
                             message("Channel", "channel", {0, 1, 0, kLastPiece, 0}),
                             message("Slot", "slot", {0, 0, 2, kLastPiece, 0}),
                             message("Piece", "slot", {0, 0, 0, 1 | kLastPiece, 0}),
                             message("Length", "slot", {0, 0, 0, kLastPiece, 0}, kShape.slot_bytes + 1),
                             message("NotGranted", "grant", {0, 0, 0, kLastPiece, 2}),
                             message("OutOfTurn", "turn", {0, 0, 1, kLastPiece, 1}),
                         })),
                         name_of);

// ---- records ------------------------------------------------------------------------------------------
Case open(const char* name, const char* words, void (*change)(OpenRecord&)) {
  return {name, words, [change](Peer& peer) {
            OpenRecord record = Peer::lane();
            change(record);
            peer.add(RecordKind::kOpen, 0, record);
            BoardRecord board{};
            board.signature.position = 1;
            peer.tell(RecordKind::kBoard, 0, board);
          }};
}
// Of a lane that is there at both ends.
template <class Body>
Case record(const char* name, const char* words, RecordKind kind, Body body, uint32_t lane = 0) {
  return {name, words, [kind, body, lane](Peer& peer) {
            peer.tell(RecordKind::kOpen, 0, Peer::lane());
            EXPECT_TRUE(peer.host.pair());
            peer.tell(kind, lane, body);
          }};
}
Case cut(const char* name, uint32_t bytes) {
  return {name, "record", [bytes](Peer& peer) {
            peer.add(RecordKind::kOpen, 0, Peer::lane());
            peer.add(RecordKind::kBoard, 0, BoardRecord{}, bytes);
            peer.flush();
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Lanes, Malformed,
    testing::ValuesIn(cases_of({
        Case{"LaneMost", "lane", [](Peer& peer) { peer.tell(RecordKind::kOpen, 0xffffffff, Peer::lane()); }},
        Case{"LaneSkipped", "lane", [](Peer& peer) { peer.tell(RecordKind::kOpen, 1, Peer::lane()); }},
        record("LaneTwice", "lane", RecordKind::kOpen, Peer::lane()),
        open("BoardSizeZero", "board", [](OpenRecord& o) { o.board_size = 0; }),
        open("BoardSizeHuge", "board", [](OpenRecord& o) { o.board_size = kHuge; }),
        open("SizeHuge", "ranks", [](OpenRecord& o) { o.size = kHuge; }),
        open("SizeAndBoardWrap", "ranks", [](OpenRecord& o) { o.size = o.board_size = kHuge; }),
        open("SizeOther", "ours", [](OpenRecord& o) { o.size = 3; }),
        open("RankBeyond", "ranks", [](OpenRecord& o) { o.rank = 2; }),
        open("HearerBeyond", "ranks", [](OpenRecord& o) { o.hearer = 1 << 30; }),
        open("RankOfBoth", "ranks", [](OpenRecord& o) { o.rank = 0; }),
        open("ChannelsMany", "channels", [](OpenRecord& o) { o.channel_count = kHuge; }),
        open("SlotsMany", "slots", [](OpenRecord& o) { o.private_slots = kMaxCredits + 1; }),
        open("SlotsNone", "slots", [](OpenRecord& o) { o.private_slots = 0; }),
        open("SlotsLong", "slots", [](OpenRecord& o) { o.slot_bytes = kNamedSlotBytes + 1; }),
        open("SlotsWhere", "slots", [](OpenRecord& o) { o.slots_on_device = 2; }),
    })),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Records, Malformed,
    testing::ValuesIn(cases_of({
        cut("Short", sizeof(RecordHeader) + sizeof(BoardRecord) - 8),
        cut("Long", 1 << 20),
        cut("BelowItsHeader", 8),
        cut("Empty", 0x10000000),
        Case{"Behind", "record",
             [](Peer& peer) {
               peer.add(RecordKind::kOpen, 0, Peer::lane());
               peer.control.resize(peer.control.size() + 8);
               peer.flush();
             }},
        record("Odd", "record", RecordKind(0), WordRecord{}),
        record("UnknownOfTheirs", "record", RecordKind(14), WordRecord{}),
        record("UnknownOfOurs", "record", RecordKind(25), WordRecord{}),
        record("UnknownOfRanks", "record", RecordKind(~0u), WordRecord{}),
        record("TheirLane", "lane", RecordKind::kBoard, BoardRecord{}, 7),
        record("TheirLaneGone", "lane", RecordKind::kGone, WordRecord{}, 7),
        record("OurLane", "lane", RecordKind::kMet, WordRecord{1}, 7),
        record("BoardWithoutPosition", "position", RecordKind::kBoard, BoardRecord{}),
        record("GrantsChannel", "channel", RecordKind::kGrants, GrantsRecord{3, 1, 1, {}}),
        record("GrantsMany", "grants", RecordKind::kGrants, GrantsRecord{11, 0, 9, {}}),
        record("GrantsSlot", "slot", RecordKind::kGrants, GrantsRecord{3, 0, 1, {2}}),
        record("GrantsSkip", "grants", RecordKind::kGrants, GrantsRecord{100, 0, 1, {}}),
        record("GrantsOfNothing", "grants", RecordKind::kGrants, GrantsRecord{3, 0, 1, {}}),
        Case{"ClosedTwice", "twice",
             [](Peer& peer) {
               peer.add(RecordKind::kOpen, 0, Peer::lane());
               peer.add(RecordKind::kClosed, 0, WordRecord{1});
               peer.tell(RecordKind::kClosed, 0, WordRecord{1});
             }},
        record("OfferChannel", "channel", RecordKind::kOffer, OfferRecord{1, 0, 1, 4096, 64, 64, {}, 1, 0}),
        record("OfferOfNone", "offer", RecordKind::kOffer, OfferRecord{1, 0, 0, 4096, 64, 64, {}, 0, 0}),
        record("OfferWraps", "offer", RecordKind::kOffer, OfferRecord{1, 2, ~0ull, 4096, 64, 64, {}, 0, 0}),
        record("OfferBeyond", "offer", RecordKind::kOffer, OfferRecord{1, 0, 1, ~0ull, 64, 64, {}, 0, 0}),
        record("OfferLong", "offer", RecordKind::kOffer,
               OfferRecord{1, 0, 1, 4096, kNamedSlotBytes + 1, 64, {}, 0, 0}),
        record("SlotsBeyond", "slots", RecordKind::kSlots, SlotsRecord{~0ull, {}}),
    })),
    name_of);

// ---- the rest -----------------------------------------------------------------------------------------
TEST(MalformedPeers, WhatMakesSenseIsNoError) {
  Peer peer;
  peer.greet(peer.hello());
  peer.tell(RecordKind::kOpen, 0, Peer::lane());
  ASSERT_TRUE(peer.host.pair());
  peer.message({0, 0, 0, kLastPiece, 0}, 64);
  EXPECT_TRUE(happens([&] { return peer.host.posted() == 1; }));
  peer.tell(RecordKind::kMet, 0, WordRecord{1});
  EXPECT_TRUE(happens([&] { return acquired(withdrawals_of(peer.host.lane())[1].met) == 1; }));
  EXPECT_EQ(peer.host.way().failure(), "");
}

// A path could go on writing where the message has been read.
TEST(MalformedPeers, ATransferThatComesTwiceEndsTheLink) {
  Peer peer;
  Hello hello = peer.hello();
  hello.path_count = 2;
  hello.policy = uint32_t(Policy::kStriping);
  peer.greet(hello);
  peer.message({0, 0, 0, kLastPiece, 0}, 64, 32);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  hello.path = 1;
  peer.greet(hello);
  peer.next = 0;
  peer.message({0, 0, 0, kLastPiece, 0}, 64, 64, 1);
  ASSERT_TRUE(happens([&] { return peer.host.failed(); }));
  EXPECT_NE(peer.host.way().failure().find("twice"), std::string::npos) << peer.host.way().failure();
}

// What the peer calls gone our host may still look at.
TEST(MalformedPeers, ALaneThatIsGoneEarlyStaysReadable) {
  Peer peer;
  peer.greet(peer.hello());
  peer.tell(RecordKind::kOpen, 0, Peer::lane());
  ASSERT_TRUE(peer.host.pair());
  peer.add(RecordKind::kGone, 0, WordRecord{});
  peer.tell(RecordKind::kMet, 0, WordRecord{1});
  EXPECT_TRUE(happens([&] { return acquired(withdrawals_of(peer.host.lane())[1].met) == 1; }));
  EXPECT_EQ(peer.host.theirs()->board_size, kShape.board_size);
}

bool is_closed(const tcp::Descriptor& fd) {
  char byte;
  return recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST(Strangers, WhoSaysNothingGoesInTime) {
  tcp::TimerLengths lengths;
  lengths.answer_ns = 200'000'000;
  Host host(0, lengths, "lo", false);
  const tcp::Descriptor silent = call(host);
  const tcp::Descriptor half = call(host);
  say(half, kHelloMagic);
  EXPECT_TRUE(happens([&] { return is_closed(silent) && is_closed(half); }));
}

TEST(Strangers, WhoWaitsForAnotherRankIsKeptLonger) {
  tcp::TimerLengths lengths;
  lengths.answer_ns = 100'000'000;
  lengths.give_up_ns = 400'000'000;
  Host host(0, lengths, "lo", false);
  const Hello early{kHelloMagic, identity_of(kName), identity_of(host.name()), 0, 1, 1, 0, {}};
  const auto begin = std::chrono::steady_clock::now();
  const tcp::Descriptor waits = call(host);
  say(waits, early);
  EXPECT_TRUE(happens([&] { return is_closed(waits); }));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::nanoseconds(lengths.give_up_ns));
}

TEST(Strangers, KeepNobodyOut) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  constexpr rlim_t kFiles = 4096;
  if (files.rlim_max < kFiles) GTEST_SKIP() << "the system lets a process have too few files";
  if (files.rlim_cur < kFiles) files.rlim_cur = kFiles;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  tcp::TimerLengths lengths;
  lengths.answer_ns = kLongNs;
  lengths.give_up_ns = 4'000'000'000;
  TwoHosts hosts(lengths);
  std::vector<tcp::Descriptor> strangers;
  for (int k = 0; k < 1100; ++k) strangers.push_back(call(hosts.a));
  EXPECT_TRUE(hosts.join()) << hosts.a.way().failure() << " / " << hosts.b.way().failure();
}

}  // namespace
}  // namespace starling::link::carry
