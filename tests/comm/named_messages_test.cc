// Goal: large messages between hosts are right whatever their sizes, and whoever comes first; their buffers
// are their callers' when the request has ended, also when it ended by an error. Method: two processes that
// take themselves for hosts, each with its own checks; what a caller does with its buffer behind a request is
// what ThreadSanitizer looks at here.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "comm/threads.h"
#include "wire/carried.h"

namespace starling::testing {
namespace {

constexpr uint64_t kNamed = kNamedBytes;
constexpr int64_t kBoundNs = 100'000'000'000;

// In a rank's process: what is not so ends it.
void expect(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "process %d: %s: %s\n", getpid(), what, starling_last_error());
  _exit(1);
}

// What `times` ranks send, or its sum, from byte `begin` on. ThreadSanitizer is to look at what becomes of
// buffers, not at this: it would take most of the time.
__attribute__((no_sanitize("thread"))) void write_pattern(uint8_t* to, uint64_t count, uint64_t begin,
                                                          uint32_t times, uint64_t added) {
  for (uint64_t k = 0; k < count; ++k) to[k] = uint8_t(times * ((begin + k) * 2654435761u >> 13) + added);
}
// Of which message, and of which rank.
uint64_t added_by(uint32_t sender, uint64_t message) { return message * 31 + sender * 7; }

std::vector<uint8_t> pattern(uint32_t sender, uint64_t message, uint64_t count) {
  std::vector<uint8_t> bytes(count);
  write_pattern(bytes.data(), count, 0, 1, added_by(sender, message));
  return bytes;
}
bool same(const uint8_t* bytes, const std::vector<uint8_t>& wanted) {
  return wanted.empty() || std::memcmp(bytes, wanted.data(), wanted.size()) == 0;
}

struct Message {
  Rank& rank;
  uint32_t sender;
  uint64_t number;
  std::vector<uint8_t> bytes;
  starling_request* request = nullptr;

  bool sends() const { return rank.rank == sender; }
  void start(uint64_t tag, int64_t timeout_ns = 0) {
    if (sends() && !bytes.empty())
      std::memcpy(bytes.data(), pattern(sender, number, bytes.size()).data(), bytes.size());
    starling_operation op = operation(sends() ? STARLING_SEND : STARLING_RECV);
    op.data_type = STARLING_UINT8;
    op.peer = int32_t(1 - rank.rank);
    op.input = op.output = bytes.data();
    op.count = bytes.size();
    op.tag = tag;
    op.timeout_ns = timeout_ns;
    expect(starling_submit(rank.comm, &op, &request) == STARLING_SUCCESS, "submit");
  }
  starling_status end() {
    const starling_status status = starling_wait(request, kBoundNs);
    starling_request_free(request);
    return status;
  }
  // Ended well; the caller uses the buffer at once.
  void finish() {
    expect(end() == STARLING_SUCCESS, "wait");
    expect(sends() || same(bytes.data(), pattern(sender, number, bytes.size())), "wrong bytes");
    std::fill(bytes.begin(), bytes.end(), 0xee);
  }
};

void all_sizes(Rank& rank) {
  uint64_t number = 0;
  for (const uint64_t size : {kNamed - 1, kNamed, kNamed + 1, 3 * kNamed + 17, uint64_t(5), 9 * kNamed})
    for (const uint32_t late : {0u, 1u, 2u}) {
      Message there{rank, 0, number, std::vector<uint8_t>(size)};
      Message back{rank, 1, number++, std::vector<uint8_t>(size)};
      if (rank.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      there.start(size % 2);
      back.start(size % 2);
      there.finish();
      back.finish();
    }
}

// The receive comes and goes before its message, which is under way, has come: in the middle of it, or
// before, or never, as the moment wills. Nothing is written, or read, from then on.
void times_out(Rank& rank) {
  for (uint64_t k = 0; k < 6; ++k) {
    Message met{rank, 0, k, std::vector<uint8_t>(8)};
    met.start(100 + k);
    met.finish();
    Message message{rank, 0, k, std::vector<uint8_t>(24 * kNamed)};
    message.start(100 + k, rank.rank == 1 ? 1'000'000 + int64_t(k) * 4'000'000 : kBoundNs);
    const starling_status status = message.end();
    if (status == STARLING_SUCCESS && rank.rank == 1)
      expect(same(message.bytes.data(), pattern(0, k, message.bytes.size())),
             "wrong bytes of a message in time");
    std::fill(message.bytes.begin(), message.bytes.end(), 0xee);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    expect(same(message.bytes.data(), std::vector<uint8_t>(message.bytes.size(), 0xee)),
           "written after the end");
  }
}

// ---- collectives ----------------------------------------------------------------------------------------

struct Collective {
  Rank& rank;
  starling_collective kind;
  uint64_t part;  // bytes
  bool in_place;
  uint64_t number;
  std::vector<uint8_t> input = {}, output = {};
  starling_request* request = nullptr;

  // Parts of each buffer; 0: the rank has none.
  uint64_t parts_in() const {
    if (kind == STARLING_SCATTER && rank.rank != 0) return 0;
    return kind == STARLING_ALL_TO_ALL || kind == STARLING_SCATTER || kind == STARLING_REDUCE_SCATTER
               ? rank.size
               : 1;
  }
  uint64_t parts_out() const {
    if (kind == STARLING_GATHER && rank.rank != 0) return 0;
    return kind == STARLING_ALL_TO_ALL || kind == STARLING_GATHER || kind == STARLING_ALL_GATHER ? rank.size
                                                                                                 : 1;
  }
  bool reduces() const { return kind == STARLING_ALL_REDUCE || kind == STARLING_REDUCE_SCATTER; }
  // What the output has to be.
  std::vector<uint8_t> wanted() const {
    const bool spread =
        kind == STARLING_ALL_TO_ALL || kind == STARLING_SCATTER || kind == STARLING_REDUCE_SCATTER;
    const uint64_t begin = spread ? rank.rank * part : 0;
    std::vector<uint8_t> bytes(parts_out() * part);
    for (uint32_t p = 0; p < parts_out(); ++p) {
      const bool of_root = kind == STARLING_SCATTER || kind == STARLING_BROADCAST;
      uint64_t added = added_by(of_root ? 0 : p, number);
      for (uint32_t r = 1; reduces() && r < rank.size; ++r) added += added_by(r, number);
      write_pattern(bytes.data() + p * part, part, begin, reduces() ? rank.size : 1, added);
    }
    return bytes;
  }
  void start(int64_t timeout_ns = 0) {
    input = pattern(rank.rank, number, parts_in() * part);
    output.assign(parts_out() * part, 0xee);
    starling_operation op = operation(kind);
    op.data_type = STARLING_UINT8;
    op.count = part;
    op.reduce_op = STARLING_SUM;
    op.timeout_ns = timeout_ns;
    op.input = input.data();
    op.output = output.data();
    if (in_place) {
      const bool gathers = kind == STARLING_ALL_GATHER;
      std::vector<uint8_t>& one = parts_out() >= parts_in() ? output : input;
      if (&one == &output) std::copy(input.begin(), input.end(), &output[gathers ? rank.rank * part : 0]);
      op.input = &one[gathers ? rank.rank * part : 0];
      op.output = &one[kind == STARLING_REDUCE_SCATTER ? rank.rank * part : 0];
    }
    expect(starling_submit(rank.comm, &op, &request) == STARLING_SUCCESS, "submit");
  }
  void finish() {
    expect(starling_wait(request, kBoundNs) == STARLING_SUCCESS, "wait");
    starling_request_free(request);
    const uint8_t* result =
        in_place && kind == STARLING_REDUCE_SCATTER ? &input[rank.rank * part] : output.data();
    expect(same(result, wanted()), "a wrong byte");
    std::fill(input.begin(), input.end(), 0xee);  // the caller's again
    std::fill(output.begin(), output.end(), 0xee);
  }
};

constexpr starling_collective kCollectives[] = {
    STARLING_ALL_TO_ALL, STARLING_ALL_GATHER, STARLING_GATHER,        STARLING_SCATTER,
    STARLING_BROADCAST,  STARLING_ALL_REDUCE, STARLING_REDUCE_SCATTER};
constexpr bool may_be_in_place(starling_collective kind) {
  return kind != STARLING_GATHER && kind != STARLING_SCATTER && kind != STARLING_BROADCAST;
}

// Sanitizers take long for bytes, and see in few operations what they see in many.
#ifdef STARLING_SANITIZED
constexpr uint64_t kParts[] = {kNamed, 2 * kNamed + 17, 5}, kPairs = 4, kRounds = 1;
#else
constexpr uint64_t kParts[] = {kNamed - 1, kNamed, 2 * kNamed + 17, 5, 3 * kNamed}, kPairs = 12, kRounds = 4;
#endif

void all_collectives(Rank& rank) {
  uint64_t number = 0;
  for (const starling_collective kind : kCollectives)
    for (const bool in_place : {false, true})
      for (const uint64_t part : kParts) {
        if (in_place && !may_be_in_place(kind)) continue;
        Collective one{rank, kind, part, in_place, number++};
        if (number % (rank.size + 1) == rank.rank) std::this_thread::sleep_for(std::chrono::milliseconds(4));
        one.start();
        one.finish();
      }
}

// Two of a lane at a time: peers may be at the second one already, in its output, when the first goes on
// here.
void two_at_a_time(Rank& rank) {
  for (uint64_t number = 0; number < kPairs; ++number) {
    const starling_collective kind = kCollectives[number % std::size(kCollectives)];
    Collective first{rank, kind, kNamed + number, false, 2 * number};
    Collective second{rank, STARLING_ALL_TO_ALL, 2 * kNamed, false, 2 * number + 1};
    first.start();
    second.start();
    if (number % rank.size == rank.rank) second.finish();
    first.finish();
    if (number % rank.size != rank.rank) second.finish();
  }
}

// Many of a lane at a time, small ones and one of nothing among them: each is numbered behind those before
// it.
void many_at_a_time(Rank& rank) {
  constexpr uint64_t kParts[] = {3 * kNamed, 5,          2 * kNamed + 17, kNamed,
                                 0,          2 * kNamed, kNamed - 1,      3 * kNamed + 1};
  for (uint64_t round = 0; round < kRounds; ++round) {
    std::vector<std::unique_ptr<Collective>> all;
    for (const uint64_t part : kParts) {
      const uint64_t number = round * std::size(kParts) + all.size();
      const starling_collective kind = kCollectives[number * 5 % std::size(kCollectives)];
      const bool in_place = number % 3 == 0 && may_be_in_place(kind);
      all.push_back(std::make_unique<Collective>(rank, kind, part, in_place, number));
      all.back()->start();
      if (number % 5 == rank.rank) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    for (const auto& one : all) one->finish();
  }
}

void say(Rank& rank, uint32_t from, uint32_t to) {
  Message word{rank, from, 0, std::vector<uint8_t>(1)};
  if (rank.rank != from && rank.rank != to) return;
  starling_operation op = operation(word.sends() ? STARLING_SEND : STARLING_RECV);
  op.data_type = STARLING_UINT8;
  op.peer = int32_t(from + to - rank.rank);
  op.input = op.output = word.bytes.data();
  op.count = 1;
  expect(starling_submit(rank.comm, &op, &word.request) == STARLING_SUCCESS, "submit a word");
  expect(word.end() == STARLING_SUCCESS, "a word");
}

// Rank 1 has done its part of a gather, which waits for rank 2, and begins the all-to-all behind it: what it
// has for rank 0 comes to its place though rank 0 is still at the gather.
void the_second_comes_amid_the_first(Rank& rank) {
  Collective before{rank, STARLING_ALL_TO_ALL, kNamed, false, 0};
  before.start();
  before.finish();  // the lane is there
  Collective first{rank, STARLING_GATHER, kNamed, false, 1};
  Collective second{rank, STARLING_ALL_TO_ALL, kNamed, false, 2};
  if (rank.rank == 0) {
    first.start();
    second.start();
    say(rank, 0, 1);
    const uint64_t first_byte = second.part;  // of rank 1's; the others wait for rank 2's
    const uint8_t wanted = second.wanted()[first_byte];
    const auto has_come = [&] {
      return std::atomic_ref<uint8_t>(second.output[first_byte]).load() == wanted;
    };
    for (int ms = 0; ms < 20'000 && !has_come(); ++ms)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    expect(has_come(), "what comes next is told its place too late");
    say(rank, 0, 2);
  } else {
    say(rank, 0, rank.rank);
    first.start();
    second.start();
  }
  first.finish();
  second.finish();
}

int be_rank(uint32_t number, uint32_t size, const std::string& job, void (*play)(Rank&)) {
  setenv("STARLING_JOB", job.c_str(), 1);
  setenv("STARLING_HOST_ID", std::to_string(number).c_str(), 1);
  setenv("STARLING_TCP_INTERFACES", "lo,lo", 1);
  starling_context_options c{};
  c.struct_bytes = sizeof c;
  c.blocks = 2;
  c.arena_bytes = uint64_t(1) << 30;
  Rank rank{nullptr, nullptr, number, size};
  expect(starling_context_create(&c, &rank.context) == STARLING_SUCCESS, "context");
  starling_comm_options o{};
  o.struct_bytes = sizeof o;
  o.rank = number;
  o.size = size;
  o.name = "world";
  o.timeout_ns = kBoundNs;
  expect(starling_comm_create(rank.context, &o, &rank.comm) == STARLING_SUCCESS, "join");
  play(rank);
  expect(starling_comm_destroy(rank.comm) == STARLING_SUCCESS, "leave");
  expect(starling_context_destroy(rank.context) == STARLING_SUCCESS, "end");
  return 0;
}

void expect_right(const char* name, void (*play)(Rank&), uint32_t size = 2) {
  const std::string job = std::string("named ") + name + " " + std::to_string(getpid());
  std::vector<pid_t> processes(size);
  for (uint32_t rank = 0; rank < size; ++rank) {
    processes[rank] = fork();
    if (processes[rank] == 0) _exit(be_rank(rank, size, job, play));
  }
  for (const pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    EXPECT_EQ(status, 0) << "of process " << process;
  }
}

TEST(NamedMessages, AreRightWhateverTheirSizes) { expect_right("sizes", all_sizes); }
TEST(NamedMessages, LeaveBuffersAloneAtTimeouts) { expect_right("timeouts", times_out); }
TEST(NamedCollectives, AreRightBetweenTwo) { expect_right("two", all_collectives); }
TEST(NamedCollectives, AreRightBetweenThree) { expect_right("three", all_collectives, 3); }
TEST(NamedCollectives, AreRightTwoAtATime) { expect_right("at a time", two_at_a_time, 3); }
TEST(NamedCollectives, AreRightManyAtATime) { expect_right("many", many_at_a_time, 3); }
#ifndef STARLING_SANITIZED  // which may not know that the byte that is looked at is the library's yet
TEST(NamedCollectives, ComeAmidThoseBefore) { expect_right("amid", the_second_comes_amid_the_first, 3); }
#endif

}  // namespace
}  // namespace starling::testing
