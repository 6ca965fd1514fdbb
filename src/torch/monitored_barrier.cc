// A barrier for finding out who is missing. It goes through the store and uses no lane, so that it tells the
// truth when the group's collectives are stuck.
//
//   rank r > 0: sets "arrived/r", waits for "verdict"        rank 0: waits for every "arrived/r", sets
//   "verdict"
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

#include "backend.h"
#include "interruption.h"

namespace starling::torch_adapter {
namespace {

using Clock = std::chrono::steady_clock;

// False if the key is not there by the deadline. Throws what a handler of a signal raised.
bool wait_for_key(c10d::Store& store, const std::string& key, Clock::time_point deadline) {
  for (;;) {
    const auto look = std::min(deadline, Clock::now() + kSignalsEvery);
    if (look_for(store, key, look)) return true;
    if (look == deadline) return false;
    check_signals();
  }
}

// How many barriers there were in groups of this id. Keys stay in the store, and a group that is made when
// this one has gone may have its store and its name: it must not take them for its own.
std::uint64_t next_barrier(std::uint64_t group) {
  static std::mutex mutex;
  static std::map<std::uint64_t, std::uint64_t> barriers;
  const std::lock_guard lock(mutex);
  return barriers[group]++;
}

std::string list_of(const std::vector<int>& ranks) {
  std::ostringstream text;
  for (size_t i = 0; i < ranks.size(); ++i) text << (i == 0 ? "" : ", ") << ranks[i];
  return text.str();
}

}  // namespace

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  const std::shared_ptr<Communicator> communicator = this->communicator();
  c10d::Store& store = communicator->store();
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  const auto deadline = Clock::now() + timeout;
  const std::uint64_t group = starling_comm_id(communicator->get());
  const std::string prefix =
      "monitored_barrier/" + std::to_string(group) + "/" + std::to_string(next_barrier(group)) + "/";
  const auto arrived_key = [&](int rank) { return prefix + "arrived/" + std::to_string(rank); };
  const std::string verdict_key = prefix + "verdict";

  if (getRank() != 0) {
    store.set(arrived_key(getRank()), std::string("1"));
    const bool answered = wait_for_key(store, verdict_key, deadline);
    const std::string verdict = answered ? store.get_to_str(verdict_key) : "rank 0 has not answered";
    if (verdict.empty() || verdict == "ok") return;
    C10_THROW_ERROR(
        DistBackendError,
        c10::str("[Rank ", getRank(), "]: Rank ", getRank(),
                 " successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                 "from rank 0: ",
                 verdict, ". Please check rank 0 logs for faulty rank."));
  }

  if (timeout.count() <= 0) {
    store.set(verdict_key, std::string("rank 0 had no time to wait"));
    C10_THROW_ERROR(DistBackendError, "[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms");
  }
  std::vector<int> missing;
  for (int rank = 1; rank < getSize(); ++rank) {
    if (wait_for_key(store, arrived_key(rank), deadline)) continue;
    missing.push_back(rank);
    if (!wait_all_ranks) break;
  }
  if (missing.empty()) {
    store.set(verdict_key, std::string("ok"));
    return;
  }
  const std::string verdict = c10::str(missing.size() == 1 ? "Rank " : "Ranks ", list_of(missing),
                                       " failed to pass monitoredBarrier in ", timeout.count(), " ms");
  store.set(verdict_key, verdict);
  C10_THROW_ERROR(DistBackendError, "[Rank 0]: " + verdict);
}

}  // namespace starling::torch_adapter
