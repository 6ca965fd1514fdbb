// A group of ranks, and its lanes.
#pragma once
#include <starling/starling.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.h"
#include "comm/chosen_plans.h"
#include "comm/context.h"
#include "comm/host_layout.h"
#include "comm/join.h"
#include "comm/large_messages.h"
#include "comm/store.h"
#include "plan/added.h"
#include "plan/table.h"

namespace starling {

class Communicator final : public PollHook {
 public:
  // Collective: meets the other ranks in the store. Throws Error(timeout) naming the rank that did not come.
  static std::unique_ptr<Communicator> join(Context& context, const CommOptions& options, Store& store);
  ~Communicator() override;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return uint32_t(members_.size()); }
  Context& context() { return context_; }
  uint64_t id() const { return key_.low; }

  RequestPtr submit(const starling_operation& call);
  // As submit() of each in turn, but none stands behind another; of one stream they begin in one kernel where
  // that is possible. `submitted` gets a request for each; if this throws, for those that were submitted.
  void submit_together(std::span<const starling_operation> calls, std::vector<RequestPtr>& submitted);

  Topology topology() const;

  // Which messages go by copy engines, as the ranks have agreed.
  SmFree sm_free() const { return sm_free_; }

  // Whether ranks read large messages where they lie, as STARLING_PULL and the group have it. The same on all
  // ranks.
  bool reads_large_messages() const;
  // None: nothing was timed, because nothing hung on it.
  const std::optional<LargeMessageTimes>& large_message_times() const { return large_message_times_; }

  // Throws Error(invalid_argument) if the plan is for other groups than this, or its name is taken;
  // Error(unsupported) if the daemon is too small for it.
  void add_plan(std::shared_ptr<const Plan> plan, const SizeRange& sizes);

  // Operations that are not told their algorithm follow the table, where it has something for them. Returns
  // the number of its rows for groups like this; 0: none, which is logged, and the library's own choice
  // stays. Throws as ChoiceTable::at(). Every rank uses the same table before its first operation.
  uint32_t use_table(const ChoiceTable& table, LogLevel level = LogLevel::warn);

  // The ranks `ranks` of this communicator, in their new order; no message is exchanged: everybody knows the
  // members' segments already. Null for a rank that is not among them.
  std::unique_ptr<Communicator> subgroup(const std::vector<uint32_t>& ranks, const std::string& name);
  // Collective over this communicator.
  std::unique_ptr<Communicator> split(int color, int key);

  void register_collective(int64_t id, const std::vector<uint32_t>& devices, const starling_operation& shape);
  void run_registered(int64_t id, const void* input, void* output, starling_callback callback, void* user);

  void abort(const std::string& reason);
  // What its destruction begins with: returns when all have ended, those that do not by themselves aborted.
  void end_operations();
  Fault error();
  void set_timeout(int64_t timeout_ns) { timeout_ns_.store(timeout_ns); }
  int64_t timeout_ns() const { return timeout_ns_.load(); }

  // Any-source receives look for a sender. Throws nothing: what fails is the receive.
  bool poll() override;

 private:
  void use_table_of_settings(LogLevel level);
  enum class GroupKind { kGroup, kDeviceSet };
  std::unique_ptr<Communicator> make_subgroup(const std::vector<uint32_t>& ranks, const std::string& name,
                                              GroupKind kind);
  LoweringContext lowering(uint32_t rank, uint32_t size, bool across_hosts);
  LoweringContext lowering_of_pair(const starling_operation& call, uint32_t peer);
  // Of plans in a lane whose ranks are of several hosts, or of one.
  uint32_t block_limit(bool across_hosts) const;
  void time_large_messages(const CommOptions& options);
  std::optional<LargeMessageTimes> timed_in_lane(const LaneKey& key, const CommOptions& options);
  // In ns, from the call to its end on this rank.
  uint64_t time_call(const LaneKey& key, const starling_operation& call, bool reads,
                     const CommOptions& options);
  struct AnySource {
    RequestPtr request;
    starling_operation call;
    uint64_t since_ns;
    uint64_t deadline_ns;
  };
  struct Registered {
    std::shared_ptr<Communicator> group;
    starling_operation shape;  // its pointers lead to the fields below
    std::string lane;
    std::string algorithm;
    std::vector<size_t> tables[4];
  };
  struct Twin {
    LaneKey key;
    std::string name;
  };
  // Sends and receives of a rank to itself wait for each other here, by tag.
  struct SelfCall {
    RequestPtr request;
    starling_operation call;
  };
  struct SelfQueue {
    std::deque<SelfCall> sends;
    std::deque<SelfCall> receives;
  };

  Communicator(Context& context, uint32_t rank, Group group, std::string name, int64_t timeout_ns);

  using Capture = std::optional<uint64_t>;
  static bool is_message(const starling_operation& call) {
    return call.kind == STARLING_SEND || call.kind == STARLING_RECV;
  }
  RequestPtr new_request(const starling_operation& call);
  // The group was aborted: so is the operation.
  bool refused_by_abort(const RequestPtr& request);
  void check_peer(const starling_operation& call) const;
  Departure collective_departure(const starling_operation& call, RequestPtr request, const Capture& capture);
  Departure pair_departure(const starling_operation& call, uint32_t peer, RequestPtr request,
                           const Capture& capture);
  void submit_to(HostLane& lane, Flight&& flight, Capture capture);
  bool submit_in_one_kernel(std::span<const starling_operation> calls, std::vector<RequestPtr>& submitted);
  HostLane& twin_of(HostLane& lane, uint64_t capture);
  RequestPtr submit_to_self(const starling_operation& call, RequestPtr request);
  void check_pair_call(const starling_operation& call);
  static void check_start(const starling_operation& call);
  Capture check_stream_call(const starling_operation& call);
  void copy_to_self(const SelfCall& send, const SelfCall& receive);
  bool match_any_source(AnySource& receive);
  bool match_at_once();
  void poll_by_context();
  bool matched_or_failed(AnySource& receive);
  HostLane& control();
  void note_unmatched();
  // Any-source receives, and calls to oneself, that have no partner.
  void end_unmatched(starling_status status, const std::string& message);
  HostLane& group_lane(const char* name);
  HostLane& default_lane();
  HostLane& pair_lane(uint32_t source, uint32_t destination, uint64_t tag, bool copies);
  LaneKey remember(const LaneKey& key);
  Flight flight_of(const starling_operation& call, const LoweringContext& context, RequestPtr request) const;
  std::string pair_name(uint32_t source, uint32_t destination, uint64_t tag, bool copies) const;
  // No block moves it, but copy engines (sm_free.cc). The same on all ranks that take part.
  bool goes_by_copies(const starling_operation& call, const Capture& capture) const;
  // Of a group of one rank: its stream copies.
  bool goes_alone(const starling_operation& call, const Capture& capture) const;
  // Whatever plan was chosen. In a lane of these members.
  static void lower_to_copies(Lowered& lowered, uint32_t rank, const std::vector<Member>& members);
  HostLane& copy_lane(const char* name);

  Context& context_;
  const uint32_t rank_;
  std::vector<Member> members_;
  bool one_process_ = false;  // all of them
  bool across_hosts_ = false;  // they are of several
  HostLayout hosts_;
  const bool readable_, own_cores_, always_reads_, opens_;  // as in Group
  const SmFree sm_free_;  // likewise
  const bool device_set_;  // of registered collectives: each has a lane, by name, and no other call comes
  std::optional<LargeMessageTimes> large_message_times_;
  const LaneKey key_;
  const std::string name_;
  const uint32_t flight_group_;
  std::atomic<int64_t> timeout_ns_;

  std::mutex made_mutex_;
  std::map<std::string, uint32_t> made_;  // subgroups, those that are gone too, by ranks and name

  std::mutex mutex_;  // guards all below; taken before the context's
  std::vector<LaneKey> lanes_;
  // Lanes stay as long as the communicator: none is looked up by its key twice.
  std::map<std::string, HostLane*, std::less<>> group_lanes_;
  std::map<std::string, HostLane*, std::less<>> copy_lanes_;  // of copies, by the same names
  // By source, destination, tag, and whether they are lanes of copies.
  std::map<std::tuple<uint32_t, uint32_t, uint64_t, bool>, HostLane*> pair_lanes_;
  std::map<std::pair<const HostLane*, uint64_t>, Twin> twins_;  // by lane and capture: where it is captured
  std::map<const HostLane*, uint32_t> captures_;  // of a lane, so far
  ChosenPlans chosen_;
  HostLane* control_ = nullptr;
  HostLane* default_lane_ = nullptr;  // of group_lanes_
  std::deque<AnySource> any_source_;
  std::map<uint64_t, SelfQueue> self_;
  std::map<int64_t, Registered> registered_;
  AddedPlans added_;
  std::shared_ptr<const TopologyTable> table_;  // null: the library's own choice alone
  std::map<std::vector<uint32_t>, std::shared_ptr<Communicator>> device_sets_;
  bool hooked_ = false;
  bool unmatched_ = false;  // it is counted
  uint32_t splits_ = 0;
  std::string aborted_;
};

}  // namespace starling
