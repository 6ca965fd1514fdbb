#include "comm/large_messages.h"

#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace starling {
namespace {

constexpr uint64_t kBytes = 512 << 10;  // of all parts together; where reading pays, it does from 128 KiB on
constexpr uint32_t kRounds = 24;
constexpr uint32_t kEnoughRounds = 18;  // with fewer, others were there in between, and in the caches
constexpr uint64_t kPatienceNs = 4'000'000;  // no round begins later
constexpr uint64_t kDisturbed = UINT64_MAX;
constexpr const char* kTimingLane = "timing of large messages";

std::mutex mutex;
std::optional<LargeMessageTimes> known;  // guarded by mutex

void remember_times(const LargeMessageTimes& times) {
  const std::lock_guard lock(mutex);
  known = times;
}

starling_operation call_of(starling_collective kind, const void* input, void* output, size_t count,
                           starling_data_type type) {
  starling_operation call{};
  call.struct_bytes = sizeof call;
  call.kind = kind;
  call.input = input;
  call.output = output;
  call.count = count;
  call.data_type = type;
  call.reduce_op = STARLING_MAX;
  call.waited = 1;
  return call;
}

// How often this thread had to leave its core to others.
long times_displaced() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// One call by slots and one read, in ns.
struct Round {
  uint64_t slots_ns = kDisturbed;
  uint64_t read_ns = kDisturbed;
};

// What was not displaced is slowed by others, never sped up: so the least counts. The first round connected
// the lane.
std::optional<LargeMessageTimes> least_of(const std::vector<Round>& rounds) {
  LargeMessageTimes least{kDisturbed, kDisturbed};
  uint32_t good = 0;
  for (size_t r = 1; r < rounds.size(); ++r) {
    if (rounds[r].slots_ns == kDisturbed || rounds[r].read_ns == kDisturbed) continue;
    ++good;
    least.slots_ns = std::min(least.slots_ns, rounds[r].slots_ns);
    least.read_ns = std::min(least.read_ns, rounds[r].read_ns);
  }
  return good < kEnoughRounds ? std::nullopt : std::optional(least);
}

}  // namespace

std::optional<LargeMessageTimes> known_times() {
  const std::lock_guard lock(mutex);
  return known;
}

bool Communicator::reads_large_messages() const {
  if (!one_process_ && !readable_ && !opens_) return false;
  if (always_reads_ || opens_) return true;
  const bool faster = large_message_times_ && large_message_times_->read_ns < large_message_times_->slots_ns;
  return own_cores_ && (one_process_ || faster);
}

void Communicator::time_large_messages(const CommOptions& options) {
  if (one_process_ || !readable_ || !own_cores_ || always_reads_) return;
  if (!large_message_times_) {
    const LaneKey key = key_of(key_, kTimingLane);
    large_message_times_ = timed_in_lane(key, options);
    const std::lock_guard lock(mutex_);
    std::erase(lanes_, key);
    context_.remove_lane(key);
  }
  if (large_message_times_) remember_times(*large_message_times_);
  if (rank_ != 0 || !log_enabled(LogLevel::info)) return;
  if (!large_message_times_)
    return log_rank(LogLevel::info, 0,
                    "large messages go through slots: others wanted the cores when it was "
                    "to be timed whether reading is faster");
  log_rank(LogLevel::info, 0, "large messages ",
           reads_large_messages() ? "are read where they lie" : "go through slots",
           ": an all_gather of 512 KiB takes ", large_message_times_->read_ns / 1000, " us read, ",
           large_message_times_->slots_ns / 1000, " us through slots");
}

// The operations that are chosen between, as programs run them, in a lane of their own. A round counts if no
// rank was displaced in it, and then with the slowest rank's time: all ranks come to the same numbers. None:
// too few count.
std::optional<LargeMessageTimes> Communicator::timed_in_lane(const LaneKey& key, const CommOptions& options) {
  const size_t part = kBytes / size();
  std::vector<std::byte> input(part);
  std::vector<std::byte> output(part * size());
  std::vector<Round> rounds(kRounds);
  try {
    const auto gather = call_of(STARLING_ALL_GATHER, input.data(), output.data(), part, STARLING_UINT8);
    const uint64_t begin = cpu::monotonic_ns();
    // Rank 0 says in its part which round is the last.
    for (uint32_t r = 0; r < kRounds && output[0] == std::byte{0}; ++r) {
      if (cpu::monotonic_ns() - begin >= kPatienceNs) input[0] = std::byte{1};
      rounds[r].slots_ns = time_call(key, gather, false, options);
      rounds[r].read_ns = time_call(key, gather, true, options);
    }
    time_call(key, call_of(STARLING_ALL_REDUCE, rounds.data(), rounds.data(), 2 * kRounds, STARLING_UINT64),
              false, options);
  } catch (...) {
    end_operations();  // before their buffers
    throw;
  }
  return least_of(rounds);
}

uint64_t Communicator::time_call(const LaneKey& key, const starling_operation& call, bool reads,
                                 const CommOptions& options) {
  LoweringContext context = lowering(rank_, size(), across_hosts_);
  context.reads = reads;
  context.chosen = nullptr;  // they are those of programs
  auto request = std::make_shared<Request>(nullptr, nullptr);
  const long displaced = times_displaced();
  const uint64_t begin = cpu::monotonic_ns();
  {
    const std::lock_guard lock(mutex_);
    HostLane& lane = context_.lane(remember(key), kTimingLane, rank_, members_, LaneUse::kNamed, &control(),
                                   {flight_group_, -1, -1});
    context_.submit(lane, flight_of(call, context, request));
  }
  while (!context_.wait(*request, kInterruptibleNs))
    if (options.interrupted != nullptr && options.interrupted(options.user) != 0)
      throw Error(Code::aborted, "joining '" + options.name + "' was interrupted");
  const uint64_t took = cpu::monotonic_ns() - begin;
  if (request->status() != STARLING_SUCCESS) throw Error(code_of(request->status()), request->message());
  return times_displaced() == displaced ? took : kDisturbed;
}

}  // namespace starling
