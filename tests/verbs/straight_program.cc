// Large messages over Soft-RoCE, in a guest that has two rails (init.sh): who sends writes into the buffer
// where the message is wanted, and nobody copies; every byte is checked. Ranks are processes (job.h), which
// say how many bytes went straight.
//
//   straight_program cases [NAME...]  one line for each: CASE name passed, or CASE name failed: why
//   straight_program figures ROUNDS   FIGURE kind bytes way ms, for both ways, and what registering takes
// long: a guest boots for all of its cases.
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <optional>

#include "link/verbs/rails.h"
#include "verbs/job.h"

namespace starling {
namespace {

using namespace guest;

constexpr size_t kBytes = (2 << 20) + 8;  // the last message is a short one
constexpr uint64_t kSmall = 64 << 10;     // more than all that is not large, of a case

// By words: an emulated processor takes long for bytes.
std::vector<std::byte> bytes_of(uint32_t rank, uint32_t round, size_t bytes) {
  std::vector<std::byte> all(bytes);
  const uint64_t seed = (uint64_t(rank) << 32 | round) * 0x9e3779b97f4a7c15;
  for (size_t at = 0; at + 8 <= bytes; at += 8) {
    const uint64_t word = (seed + at * 0x2545f4914f6cdd1d) & 0x7f7f7f7f7f7f7f7f;  // never kMark nor kSpoilt
    std::memcpy(all.data() + at, &word, 8);
  }
  return all;
}
constexpr std::byte kMark{0xc8}, kSpoilt{0xee};

starling_operation message(starling_collective kind, void* buffer, size_t bytes, uint64_t tag) {
  starling_operation operation{};
  operation.struct_bytes = sizeof operation;
  operation.kind = kind;
  operation.input = operation.output = buffer;
  operation.count = bytes;
  operation.data_type = STARLING_UINT8;
  operation.tag = tag;
  return operation;
}

Request submit(const Rank& rank, starling_collective kind, void* buffer, size_t bytes, uint64_t tag) {
  starling_operation operation = message(kind, buffer, bytes, tag);
  operation.peer = int32_t(1 - rank.number);
  return {rank, operation};
}
Request send(const Rank& rank, void* from, size_t bytes, uint64_t tag) {
  return submit(rank, STARLING_SEND, from, bytes, tag);
}
Request receive(const Rank& rank, void* to, size_t bytes, uint64_t tag) {
  return submit(rank, STARLING_RECV, to, bytes, tag);
}

// One byte each way: what either rank has said before is known there.
void meet(const Rank& rank) {
  char out = 1, in = 0;
  Request coming = receive(rank, &in, 1, 9);
  send(rank, &out, 1, 9).wait();
  coming.wait();
}

void check_bytes(const std::vector<std::byte>& bytes, uint32_t from, uint32_t round) {
  const std::vector<std::byte> right = bytes_of(from, round, bytes.size());
  const auto wrong = std::mismatch(bytes.begin(), bytes.end(), right.begin()).first - bytes.begin();
  if (size_t(wrong) != bytes.size())
    throw Failure{"byte " + std::to_string(wrong) + " of round " + std::to_string(round) + " is wrong"};
}

// Both ways at once. The buffers are new ones each time, where the heap had others before.
void exchange(const Rank& rank, uint32_t round, bool expected) {
  std::vector<std::byte> input = bytes_of(rank.number, round, kBytes), output(kBytes);
  Request coming = receive(rank, output.data(), kBytes, 1);
  if (expected) meet(rank);  // both have said where they want it
  send(rank, input.data(), kBytes, 1).wait();
  std::fill(input.begin(), input.end(), kSpoilt);
  coming.wait();
  check_bytes(output, 1 - rank.number, round);
}
void expected_messages(const Rank& rank, uint32_t round) { exchange(rank, round, true); }
void messages_at_any_time(const Rank& rank, uint32_t round) { exchange(rank, round, false); }

// A large all-reduce and all-gather, and messages.
void all_of_it(const Rank& rank, uint32_t round) {
  const size_t count = 300'000 + round % 3;
  std::vector<float> input(count), sums(count), all(count * rank.size);
  for (size_t at = 0; at < count; ++at) input[at] = value(rank.number, round, at);
  Request(rank, operation(STARLING_ALL_REDUCE, input, sums)).wait();
  Request(rank, operation(STARLING_ALL_GATHER, input, all)).wait();
  for (size_t at = 0; at < count; ++at) {
    if (sums[at] != sum(rank.size, round, at)) throw Failure{"a sum is wrong"};
    for (uint32_t of = 0; of < rank.size; ++of)
      if (all[of * count + at] != value(of, round, at)) throw Failure{"a gathered element is wrong"};
  }
}
void everything(const Rank& rank, uint32_t round) {
  all_of_it(rank, round);
  exchange(rank, round, round % 2 == 0);
}

// From buffer to buffer: an all-gather, an all-to-all, and an all-gather in place.
void large_collectives(const Rank& rank, uint32_t round) {
  const uint32_t peer = 1 - rank.number;
  const std::vector<std::byte> own = bytes_of(rank.number, round, kBytes);
  std::vector<std::byte> input(own), all(2 * kBytes), parts(2 * kBytes), to_all(2 * kBytes);
  starling_operation gather = message(STARLING_ALL_GATHER, input.data(), kBytes, 0);
  gather.output = all.data();
  Request(rank, gather).wait();
  std::fill(input.begin(), input.end(), kSpoilt);
  for (uint32_t to = 0; to < 2; ++to) std::copy(own.begin(), own.end(), &to_all[to * kBytes]);
  starling_operation exchange = message(STARLING_ALL_TO_ALL, to_all.data(), kBytes, 0);
  exchange.output = parts.data();
  Request(rank, exchange).wait();
  std::fill(to_all.begin(), to_all.end(), kSpoilt);
  for (const auto* got : {&all, &parts})
    for (uint32_t of = 0; of < 2; ++of)
      check_bytes({&(*got)[of * kBytes], &(*got)[of * kBytes] + kBytes}, of, round);
  std::fill(&all[peer * kBytes], &all[peer * kBytes] + kBytes, kSpoilt);
  gather.input = &all[rank.number * kBytes];
  Request(rank, gather).wait();
  check_bytes({&all[peer * kBytes], &all[peer * kBytes] + kBytes}, peer, round);
}
// What each rank had sent; the first message of one may be copied where that of the other is not.
struct Sent {
  uint64_t straight[kRanks] = {}, copied[kRanks] = {};
};
Sent sent_by(const Job& job) {
  Sent sent;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    sent.straight[rank] = job.straight_bytes(rank);
    sent.copied[rank] = job.copied_bytes(rank);
  }
  return sent;
}

void expect_straight(const Job& job, const Sent& before, uint64_t least, uint64_t most_copied) {
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    if (job.straight_bytes(rank) < before.straight[rank] + least ||
        job.copied_bytes(rank) > before.copied[rank] + most_copied)
      throw Failure{"rank " + std::to_string(rank) + ": " + std::to_string(job.straight_bytes(rank)) +
                    " bytes went straight, " + std::to_string(job.copied_bytes(rank)) + " were copied"};
}

// ---- what is straight
// ---------------------------------------------------------------------------------------
void messages_are_not_copied() {
  Job job(expected_messages);
  job.go_on(1);  // no path was open yet when its buffers were named
  const Sent before = sent_by(job);
  job.go_on(3);
  expect_straight(job, before, 3 * (kBytes - 8), kSmall);
  job.end();
}
void messages_at_any_time_are_right() {
  Job job(messages_at_any_time);
  job.go_on(6);
  job.end();
}
// From slot to slot. Who begins first may not have heard yet where the other's slots lie.
void collectives_go_from_slot_to_slot() {
  Job job(all_of_it);
  job.go_on(4);
  const uint64_t sent = uint64_t(4) * 300'000 * sizeof(float);
  expect_straight(job, {}, sent, sent);
  const Sent before = sent_by(job);
  job.go_on(2);
  expect_straight(job, before, 2 * 300'000 * sizeof(float), kSmall);  // a lane that is known
  job.end();
}
void large_collectives_are_not_copied() {
  Job job(large_collectives);
  job.go_on(2);
  const Sent before = sent_by(job);
  job.go_on(2);
  expect_straight(job, before, 2 * 3 * (kBytes - 8), kSmall);
  job.end();
}
// They name nothing there: hosts would have to copy what they name.
void large_collectives_on_devices_are_right() {
  Job job(large_collectives, {{"STARLING_GPUDIRECT", "anywhere"}});
  job.go_on(3);
  job.end();
}
void all_is_copied_if_wanted() {
  Job job(everything, {{"STARLING_VERBS_STRAIGHT", "0"}});
  job.go_on(2);
  if (job.straight_bytes(0) != 0 || job.copied_bytes(0) < 2 * kBytes) throw Failure{"it went straight"};
  job.end();
}

// ---- what fails
// -----------------------------------------------------------------------------------------------
template <class Fail>
void outlives(Fail&& fail) {
  Job job(everything);
  job.go_on(2);
  fail();
  job.go_on(3);
  heal(0);
  job.return_to_the_first_rail();
  const uint64_t straight = job.straight_bytes(0);
  job.go_on(2);
  if (job.straight_bytes(0) < straight + 2 * kBytes) throw Failure{"it does not go straight any more"};
  job.end();
}
void large_messages_outlive_a_port() {
  outlives([] { port(0, 'a', false); });
}
void large_messages_outlive_lost_data() {
  outlives([] { lose(0, 'a', "100%"); });
}
void large_messages_outlive_lost_answers() {
  outlives([] { lose(0, 'b', "100%"); });
}
void large_collectives_outlive_a_port() {
  Job job(large_collectives);
  job.go_on(2);
  port(0, 'a', false);
  job.go_on(3);
  heal(0);
  job.return_to_the_first_rail();
  job.end();
}
void large_messages_outlive_loss() {
  Job job(everything);
  job.go_on(2);
  for (const int rail : {0, 1})
    for (const char end : {'a', 'b'}) lose(rail, end, "2%");
  job.go_on(3);
  for (const int rail : {0, 1}) heal(rail);
  job.go_on(2);
  job.end();
}

uint64_t pinned_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmPin:")) return std::stoull(line.substr(6)) << 10;
  return 0;
}
void limit_locked_memory() {
  const rlimit limit{pinned_bytes() + (1 << 20), pinned_bytes() + (1 << 20)};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) throw Failure{"cannot set a limit"};
}
void limited(const Rank& rank, uint32_t round) {
  meet(rank);
  if (round == 1) limit_locked_memory();
  if (round > 0) exchange(rank, round, true);
}
void what_cannot_be_registered_is_copied() {
  Job job(limited, {{kNoRightToLock, "1"}});
  job.go_on(4);
  if (job.straight_bytes(0) != 0 || job.copied_bytes(0) < 3 * kBytes) throw Failure{"it was registered"};
  job.end();
}

// A memory file is no dma-buf, and Soft-RoCE takes none: this is how a system without GPUDirect says so.
void register_a_gpus_memory() {
  const int file = memfd_create("a GPU's", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, 1 << 16) != 0) throw Failure{"cannot make a file"};
  link::tcp::Reactor reactor;
  std::string why;
  const auto rails = link::verbs::open_rails(reactor, {{}, 4096}, [](uint32_t, bool) {}, why);
  if (rails == nullptr) throw Failure{why};
  rails->open(link::tcp::usable_ports("a0"));
  void* memory = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const link::Region region{static_cast<std::byte*>(memory), 1 << 16, file, true};
  if (rails->devices().empty()) throw Failure{"there is no device"};
  if (link::verbs::enroll(rails->devices(), region) != nullptr) throw Failure{"it was taken for a dma-buf"};
}
// In a process of its own: settings are read once, and the ranks to come inherit them.
void a_gpus_memory_is_refused_in_words() {
  const pid_t process = fork();
  if (process == 0) try {
      register_a_gpus_memory();
      _exit(0);
    } catch (const Failure& failure) {
      std::printf("%s\n", failure.why.c_str());
      std::fflush(stdout);
      _exit(1);
    }
  int status = 0;
  waitpid(process, &status, 0);
  if (status != 0) throw Failure{"it was not refused; above is why"};
}

// ---- what was given back
// -------------------------------------------------------------------------------------- Rail 0 is so slow
// that a message is under way for seconds; nobody takes that for silence.
void slow_down(char end) {
  hinder(0, end, "rate " + std::to_string(int(8000 / slowness())) + "kbit limit 10000");
}
const Job::Settings kPatient = {{"STARLING_VERBS_TIMEOUT", "21"}, {"STARLING_PROBE_S", "100"}};

void wait_for_the_first_byte(const std::byte& first) {
  while (std::atomic_ref<std::byte>(const_cast<std::byte&>(first)).load() == kMark) usleep(1000);
}

starling_comm* second_comm(const Rank& rank, const std::string& name = "other") {
  starling_comm_options options{};
  options.struct_bytes = sizeof options;
  options.rank = rank.number;
  options.size = rank.size;
  options.name = name.c_str();
  starling_comm* other = nullptr;
  check(starling_comm_create(rank.context, &options, &other));
  return other;
}

enum class Ending { kReceiverAborts, kReceiverTimesOut, kSenderAborts };

// The other rank's process; both say it.
pid_t other_process(const Rank& rank) {
  pid_t own = getpid(), other = 0;
  Request coming = receive(rank, &other, sizeof other, 8);
  send(rank, &own, sizeof own, 8).wait();
  coming.wait();
  return other;
}

void wait_for(Request& request) {
  try {
    request.wait();
  } catch (const Failure&) {
    return;
  }
  throw Failure{"the message came, and was to be ended amid it"};
}

// Rank 0 sends, rank 1 receives, and one of them ends it amid the message, and uses its buffer for something
// else at once. The other one's process stands still meanwhile, so that it can do nothing about it: but its
// device goes on with what was posted, for seconds. Another group goes on behind it, and goes straight again.
template <Ending kEnding>
void broken_round(const Rank& rank, uint32_t round) {
  if (round > 0) return void(pause());  // its group is broken
  const Rank other{rank.context, second_comm(rank), rank.number, rank.size};
  exchange(other, 0, true);
  const pid_t peer = other_process(other);
  const bool receives = rank.number == 1;
  const bool ends = receives == (kEnding != Ending::kSenderAborts);
  const std::vector<std::byte> sent = bytes_of(0, 0, 2 * kBytes);
  std::vector<std::byte> buffer = receives ? std::vector<std::byte>(sent.size(), kMark) : sent;
  starling_operation operation =
      message(receives ? STARLING_RECV : STARLING_SEND, buffer.data(), buffer.size(), 1);
  operation.peer = int32_t(1 - rank.number);
  if (kEnding == Ending::kReceiverTimesOut && receives)
    operation.timeout_ns = int64_t(patiently(2'000'000'000));
  std::optional<Request> request;
  meet(other);
  if (receives) request.emplace(rank, operation);
  if (!receives) slow_down('a');
  meet(other);
  const uint64_t before = packets_sent(0);
  if (!receives) request.emplace(rank, operation);
  // From here on nothing else goes there: it would stand behind the message.
  if (ends) {
    if (receives) wait_for_the_first_byte(buffer[0]);
    while (packets_sent(0) < before + 60) usleep(1000);
    kill(peer, SIGSTOP);
    if (kEnding != Ending::kReceiverTimesOut) check(starling_comm_abort(rank.comm, "the test wants it"));
  }
  wait_for(*request);
  for (size_t at = 0; receives && at < buffer.size(); ++at)
    if (buffer[at] == kSpoilt) throw Failure{"what was sent was read after it was given back"};
  std::fill(buffer.begin(), buffer.end(), receives && ends ? kMark : kSpoilt);
  if (ends) {
    usleep(useconds_t(patiently(3'000'000)));
    kill(peer, SIGCONT);
    if (receives && std::any_of(buffer.begin(), buffer.end(), [](std::byte b) { return b != kMark; }))
      throw Failure{"something landed after the buffer was given back"};
  }
  if (rank.number == 0) heal(0);
  for (uint32_t more = 1; more < 5; ++more) exchange(other, more, true);
  check(starling_comm_destroy(other.comm));
}

template <Ending kEnding>
void nothing_lands_later() {
  Job job(broken_round<kEnding>, kPatient);
  job.go_on(1);
  // Those of the group that goes on, but for what was named while the paths were broken.
  expect_straight(job, {}, 3 * (kBytes - 8), 8 * kBytes);
}

// As broken_round(), amid an all-to-all that rank 1 ends: what is under way to it does not land, and what it
// writes into its own buffer is not read.
void broken_collective_round(const Rank& rank, uint32_t round) {
  if (round > 0) return void(pause());
  const Rank other{rank.context, second_comm(rank), rank.number, rank.size};
  exchange(other, 0, true);
  const pid_t peer = other_process(other);
  const bool ends = rank.number == 1;
  const std::vector<std::byte> part = bytes_of(rank.number, 0, 2 * kBytes);
  std::vector<std::byte> input(part), output(2 * part.size(), kMark);
  input.insert(input.end(), part.begin(), part.end());
  large_collectives(rank, 0);  // the lane is paired
  starling_operation operation = message(STARLING_ALL_TO_ALL, input.data(), part.size(), 0);
  operation.output = output.data();
  meet(other);
  slow_down(ends ? 'b' : 'a');
  meet(other);
  const std::byte* coming = &output[(1 - rank.number) * part.size()];
  Request request(rank, operation);
  if (ends) {
    wait_for_the_first_byte(*coming);
    kill(peer, SIGSTOP);
    check(starling_comm_abort(rank.comm, "the test wants it"));
  }
  wait_for(request);
  const auto is_spoilt = [](std::byte b) { return b == kSpoilt; };
  if (std::any_of(output.begin(), output.end(), is_spoilt))
    throw Failure{"what was sent was read after it was given back"};
  std::fill(input.begin(), input.end(), kSpoilt);
  std::fill(output.begin(), output.end(), kMark);
  if (ends) {
    usleep(useconds_t(patiently(3'000'000)));
    kill(peer, SIGCONT);
  }
  meet(other);
  if (std::any_of(output.begin(), output.end(), [](std::byte b) { return b != kMark; }))
    throw Failure{"something landed after the buffer was given back"};
  if (rank.number == 0) heal(0);
  for (uint32_t more = 1; more < 5; ++more) exchange(other, more, true);
  check(starling_comm_destroy(other.comm));
}
void nothing_lands_after_an_aborted_collective() {
  Job job(broken_collective_round, kPatient);
  job.go_on(1);
}

void nothing_lands_after_an_abort() { nothing_lands_later<Ending::kReceiverAborts>(); }
void nothing_lands_after_a_timeout() { nothing_lands_later<Ending::kReceiverTimesOut>(); }
void nothing_is_read_after_an_abort() { nothing_lands_later<Ending::kSenderAborts>(); }

// A message that rank 1 was promised does not come, and it ends that. Rank 0 is well and leaves their lane.
void ended_in_vain(const Rank& rank, uint32_t round) {
  const Rank other{rank.context, second_comm(rank, "other " + std::to_string(round)), rank.number, rank.size};
  exchange(other, round, true);
  std::vector<std::byte> output(kBytes);
  std::optional<Request> promised;
  if (rank.number == 1) promised.emplace(receive(other, output.data(), kBytes, 1));
  meet(rank);
  if (rank.number == 1) {
    check(starling_comm_abort(other.comm, "the test wants it"));
    wait_for(*promised);
  }
  meet(rank);
  check(starling_comm_destroy(other.comm));
  exchange(rank, round, true);
}
// Not always: a rank whose processor is taken away leaves late.
void no_path_breaks_where_the_peer_is_well() {
  constexpr int kChances = 10;
  Job job(ended_in_vain);
  job.go_on(2);
  for (int k = 0; k < kChances; ++k) {
    const uint64_t before = job.closed_paths();
    job.go_on(2);
    if (job.closed_paths() == before) return job.end();
  }
  throw Failure{"it broke paths each time"};
}

constexpr Case kCases[] = {
    {"messages_are_not_copied", messages_are_not_copied},
    {"messages_at_any_time_are_right", messages_at_any_time_are_right},
    {"collectives_go_from_slot_to_slot", collectives_go_from_slot_to_slot},
    {"large_collectives_are_not_copied", large_collectives_are_not_copied},
    {"large_collectives_on_devices_are_right", large_collectives_on_devices_are_right},
    {"all_is_copied_if_wanted", all_is_copied_if_wanted},
    {"large_messages_outlive_a_port", large_messages_outlive_a_port},
    {"large_messages_outlive_lost_data", large_messages_outlive_lost_data},
    {"large_messages_outlive_lost_answers", large_messages_outlive_lost_answers},
    {"large_messages_outlive_loss", large_messages_outlive_loss},
    {"large_collectives_outlive_a_port", large_collectives_outlive_a_port},
    {"what_cannot_be_registered_is_copied", what_cannot_be_registered_is_copied},
    {"a_gpus_memory_is_refused_in_words", a_gpus_memory_is_refused_in_words},
    {"nothing_lands_after_an_abort", nothing_lands_after_an_abort},
    {"nothing_lands_after_a_timeout", nothing_lands_after_a_timeout},
    {"nothing_is_read_after_an_abort", nothing_is_read_after_an_abort},
    {"nothing_lands_after_an_aborted_collective", nothing_lands_after_an_aborted_collective},
    {"no_path_breaks_where_the_peer_is_well", no_path_breaks_where_the_peer_is_well},
};

// ---- figures
// ----------------------------------------------------------------------------------------------------
int rounds_of_figures = 3;
constexpr size_t kFigureBytes[] = {2 << 20, 8 << 20};

template <class Do>
void figure(const Rank& rank, const char* kind, size_t bytes, Do&& once) {
  for (int round = -1; round < rounds_of_figures; ++round) {
    meet(rank);
    const uint64_t begin = cpu::monotonic_ns();
    once();
    const double ms = double(cpu::monotonic_ns() - begin) / 1e6;
    if (round >= 0 && rank.number == 0)
      std::printf("FIGURE %s %zu %s %.2f\n", kind, bytes, getenv("STARLING_VERBS_STRAIGHT"), ms);
  }
  std::fflush(stdout);
}
void figures_round(const Rank& rank, uint32_t) {
  for (const size_t bytes : kFigureBytes) {
    std::vector<std::byte> buffer(bytes, std::byte(1)), back(bytes);
    // There and back; the answer is wanted before the question goes.
    figure(rank, "there_and_back", bytes, [&] {
      Request coming = receive(rank, back.data(), bytes, 1);
      if (rank.number == 1) coming.wait();
      send(rank, buffer.data(), bytes, 1).wait();
      if (rank.number == 0) coming.wait();
    });
    std::vector<float> input(bytes / sizeof(float), 1), output(input.size());
    figure(rank, "all_reduce", bytes,
           [&] { Request(rank, operation(STARLING_ALL_REDUCE, input, output)).wait(); });
  }
}
// What an operation pays at either end, and what it pays for a copy instead. Memory that was written before.
void figures_of_registering() {
  link::tcp::Reactor reactor;
  std::string why;
  const auto rails = link::verbs::open_rails(reactor, {{}, 4096}, [](uint32_t, bool) {}, why);
  if (rails == nullptr) throw Failure{why};
  rails->open(link::tcp::usable_ports("a0"));
  for (const size_t bytes : {size_t{256} << 10, size_t{1} << 20, size_t{4} << 20, size_t{16} << 20}) {
    std::vector<std::byte> memory(bytes, std::byte(1)), to(bytes, std::byte(2));
    for (int k = 0; k < rounds_of_figures; ++k) {
      uint64_t begin = cpu::monotonic_ns();
      const auto registration = link::verbs::enroll(rails->devices(), {memory.data(), bytes});
      std::printf("FIGURE register %zu - %.3f\n", bytes, double(cpu::monotonic_ns() - begin) / 1e6);
      if (registration == nullptr) throw Failure{"cannot register"};
      begin = cpu::monotonic_ns();
      std::memcpy(to.data(), memory.data(), bytes);
      std::printf("FIGURE copy %zu - %.3f\n", bytes, double(cpu::monotonic_ns() - begin) / 1e6);
    }
  }
}
int run_figures(int rounds) {
  rounds_of_figures = rounds;
  figures_of_registering();
  for (const char* straight : {"0", "1", "0", "1"}) {
    setenv("STARLING_VERBS_STRAIGHT", straight, 1);
    Job job(figures_round);
    job.go_on(1);
    job.end();
  }
  return 0;
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  using namespace starling;
  if (argc >= 2 && std::strcmp(argv[1], "cases") == 0) return run_those(kCases, argc - 2, argv + 2);
  try {
    if (argc == 3 && std::strcmp(argv[1], "figures") == 0) return run_figures(std::atoi(argv[2]));
  } catch (const Failure& failure) {
    std::printf("FIGURES failed: %s\n", failure.why.c_str());
    return 1;
  }
  std::fprintf(
      stderr,
      "usage: straight_program cases [NAME...] | figures ROUNDS (in a guest: tests/verbs/guest.py)\n");
  return 2;
}
