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

uint8_t value_of(uint32_t sender, uint64_t message, uint64_t at) {
  return uint8_t((at * 2654435761u >> 13) + message * 31 + sender * 7);
}

struct Message {
  Rank& rank;
  uint32_t sender;
  uint64_t number;
  std::vector<uint8_t> bytes;
  starling_request* request = nullptr;

  bool sends() const { return rank.rank == sender; }
  void start(uint64_t tag, int64_t timeout_ns = 0) {
    for (uint64_t at = 0; sends() && at < bytes.size(); ++at) bytes[at] = value_of(sender, number, at);
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
    for (uint64_t at = 0; !sends() && at < bytes.size(); ++at)
      expect(bytes[at] == value_of(sender, number, at), "wrong bytes");
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
      for (uint64_t at = 0; at < message.bytes.size(); ++at)
        expect(message.bytes[at] == value_of(0, k, at), "wrong bytes of a message in time");
    std::fill(message.bytes.begin(), message.bytes.end(), 0xee);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto written = [](uint8_t byte) { return byte != 0xee; };
    expect(std::none_of(message.bytes.begin(), message.bytes.end(), written), "written after the end");
  }
}

int be_rank(uint32_t number, const std::string& job, void (*play)(Rank&)) {
  setenv("STARLING_JOB", job.c_str(), 1);
  setenv("STARLING_HOST_ID", number == 0 ? "a" : "b", 1);
  setenv("STARLING_TCP_INTERFACES", "lo,lo", 1);
  starling_context_options c{};
  c.struct_bytes = sizeof c;
  c.blocks = 2;
  c.arena_bytes = uint64_t(1) << 30;
  Rank rank{nullptr, nullptr, number, 2};
  expect(starling_context_create(&c, &rank.context) == STARLING_SUCCESS, "context");
  starling_comm_options o{};
  o.struct_bytes = sizeof o;
  o.rank = number;
  o.size = 2;
  o.name = "world";
  o.timeout_ns = kBoundNs;
  expect(starling_comm_create(rank.context, &o, &rank.comm) == STARLING_SUCCESS, "join");
  play(rank);
  expect(starling_comm_destroy(rank.comm) == STARLING_SUCCESS, "leave");
  expect(starling_context_destroy(rank.context) == STARLING_SUCCESS, "end");
  return 0;
}

void expect_right(const char* name, void (*play)(Rank&)) {
  const std::string job = std::string("named ") + name + " " + std::to_string(getpid());
  pid_t processes[2];
  for (uint32_t rank = 0; rank < 2; ++rank) {
    processes[rank] = fork();
    if (processes[rank] == 0) _exit(be_rank(rank, job, play));
  }
  for (const pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    EXPECT_EQ(status, 0) << "of process " << process;
  }
}

TEST(NamedMessages, AreRightWhateverTheirSizes) { expect_right("sizes", all_sizes); }
TEST(NamedMessages, LeaveBuffersAloneAtTimeouts) { expect_right("timeouts", times_out); }

}  // namespace
}  // namespace starling::testing
