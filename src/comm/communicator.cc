#include "comm/communicator.h"

#include <unistd.h>

#include <algorithm>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/recycled.h"
#include "base/status.h"
#include "monitor/publish.h"

namespace starling {
namespace {

constexpr const char* kDefaultLane = "default";
constexpr uint64_t kClosingNs = 500'000'000;  // a communicator that is destroyed waits so long for its work
constexpr uint64_t kAbortedNs = 2'000'000'000;  // its daemon drops what was aborted; some milliseconds

uint32_t add_to_flight(Context& context, const LaneKey& key, const std::string& name, uint32_t rank,
                       const std::vector<Member>& members, bool subgroup) {
  std::vector<uint64_t> ids;
  for (const Member& member : members) ids.push_back(member.flight);
  return context.flight().add_group({key.low, key.high, name, rank, subgroup, ids});
}

LaneKey entered(Context& context, const LaneKey& key, const std::string& name) {
  context.enter_group(key, name);
  return key;
}

}  // namespace

std::unique_ptr<Communicator> Communicator::join(Context& context, const CommOptions& options, Store& store) {
  CommOptions bounded = options;
  if (bounded.timeout_ns <= 0) bounded.timeout_ns = int64_t(settings().timeout_s * 1e9);
  Group group = join_group(context, bounded, store);
  const std::string& job = settings().job.empty() ? options.name : settings().job;
  monitor::publish_group(context.arena(), {group.key.high, group.key.low, job, options.rank, options.size});
  auto made = std::unique_ptr<Communicator>(
      new Communicator(context, options.rank, std::move(group), options.name, bounded.timeout_ns));
  made->time_large_messages(bounded);
  made->use_table_of_settings(LogLevel::warn);
  return made;
}

Communicator::Communicator(Context& context, uint32_t rank, Group group, std::string name, int64_t timeout_ns)
    : context_(context),
      rank_(rank),
      members_(std::move(group.members)),
      readable_(group.readable),
      own_cores_(group.own_cores),
      always_reads_(group.always_reads),
      opens_(group.opens),
      sm_free_(group.sm_free),
      device_set_(group.device_set),
      large_message_times_(group.times),
      key_(entered(context, group.key, name)),
      name_(std::move(name)),
      flight_group_(add_to_flight(context, key_, name_, rank, members_, group.subgroup)),
      timeout_ns_(timeout_ns) {
  // The same on all ranks, as their plans must be.
  std::vector<HostOfRank> hosts;
  for (const Member& member : members_) hosts.push_back({member.host, member.host_place});
  hosts_ = host_layout(hosts);
  across_hosts_ = std::any_of(members_.begin(), members_.end(),
                              [](const Member& member) { return member.peer.way != nullptr; });
  one_process_ = settings().pull != Pull::kNever;
  for (const Member& member : members_)
    if (member.peer.arena != nullptr && member.peer.arena->header()->process_nonce != cpu::process_nonce())
      one_process_ = false;
  if (opens_ || sm_free_ != SmFree::kNever) context_.open_buffers(members_);
}

LoweringContext Communicator::lowering(uint32_t rank, uint32_t size, bool across_hosts) {
  return {rank,
          size,
          block_limit(across_hosts),
          &context_.plans(),
          context_.on_gpu(),
          nullptr,
          nullptr,
          one_process_ && !across_hosts,
          readable_ && !across_hosts,
          reads_large_messages(),
          &chosen_,
          opens_ && !across_hosts,
          !always_reads_,
          across_hosts};
}

uint32_t Communicator::block_limit(bool across_hosts) const {
  return across_hosts ? block_limit_between_hosts(context_.place(), context_.block_count())
                      : context_.block_count();
}

Communicator::~Communicator() {
  if (hooked_) context_.remove_hook(this);
  device_sets_.clear();
  registered_.clear();
  end_operations();
  context_.flight().leave_group(flight_group_);
  // An abort stays readable for ranks that have not looked yet: as long as the context lives, and its segment
  // is mapped by them.
  const LaneKey kept = aborted_.empty() ? LaneKey{} : key_of(key_, kControlLane);
  for (const LaneKey& key : lanes_)
    if (key != kept) context_.remove_lane(key);
  context_.leave_group(key_);
}

void Communicator::end_operations() {
  std::vector<LaneKey> lanes;
  {
    std::lock_guard lock(mutex_);
    end_unmatched(STARLING_ABORTED, "the communicator was destroyed");
    lanes = lanes_;
  }
  if (context_.drain(lanes, std::min<uint64_t>(kClosingNs, uint64_t(timeout_ns())))) return;
  abort("the communicator was destroyed while operations were under way");
  context_.drain(lanes, kAbortedNs);
}

RequestPtr Communicator::new_request(const starling_operation& call) {
  if (call.struct_bytes != sizeof(starling_operation))
    throw Error(Code::invalid_argument, "starling_operation has another size than this library's",
                "set struct_bytes to sizeof(starling_operation) and compile with this library's header");
  if (call.callback != nullptr) context_.expect_callbacks();
  return std::allocate_shared<Request>(Recycled<Request>(), call.callback, call.user);
}

bool Communicator::refused_by_abort(const RequestPtr& request) {
  if (aborted_.empty() && is_told_broken(control())) aborted_ = told_fault(control()).text;
  if (aborted_.empty()) return false;
  context_.fail(request, STARLING_ABORTED, aborted_);
  return true;
}

void Communicator::check_peer(const starling_operation& call) const {
  if (call.peer < 0 || uint32_t(call.peer) >= size())
    throw Error(
        Code::invalid_argument,
        "peer " + std::to_string(call.peer) + " is not in the group of " + std::to_string(size()) + " ranks",
        "pass a rank of this communicator, or -1 to receive from any");
}

RequestPtr Communicator::submit(const starling_operation& call) {
  RequestPtr request = new_request(call);
  Capture capture;
  if (call.start != STARLING_START_NOW) capture = check_stream_call(call);
  std::lock_guard lock(mutex_);
  if (refused_by_abort(request)) return request;
  if (!is_message(call)) {
    Departure departure = collective_departure(call, request, capture);
    submit_to(*departure.lane, std::move(departure.flight), capture);
    return request;
  }
  if (call.kind == STARLING_SEND || call.peer != -1) {
    check_peer(call);
    request->set_source(call.peer);
    if (uint32_t(call.peer) == rank_ && capture)
      throw Error(Code::unsupported, "a graph captures a message of a rank to itself", "copy the buffer");
    if (uint32_t(call.peer) == rank_) return submit_to_self(call, std::move(request));
    Departure departure = pair_departure(call, uint32_t(call.peer), request, capture);
    submit_to(*departure.lane, std::move(departure.flight), capture);
    return request;
  }
  check_pair_call(call);
  const int64_t timeout = call.timeout_ns > 0 ? call.timeout_ns : timeout_ns();
  const uint64_t now = cpu::monotonic_ns();
  AnySource receive{request, call, now, now + uint64_t(timeout)};
  receive.call.algorithm = nullptr;  // the caller's text may be gone when a sender is found
  any_source_.push_back(std::move(receive));
  note_unmatched();  // before the look: who sends from now on rings
  if (any_source_.size() == 1 && match_at_once()) return request;
  poll_by_context();
  return request;
}

void Communicator::add_plan(std::shared_ptr<const Plan> plan, const SizeRange& sizes) {
  if (plan->rank_count() != size())
    throw Error(Code::invalid_argument,
                "plan '" + plan->name() + "' is for " + std::to_string(plan->rank_count()) +
                    " ranks, the communicator has " + std::to_string(size()),
                "compile the program for " + std::to_string(size()) + " ranks");
  if (plan->block_count() > context_.block_count())
    throw Error(Code::unsupported,
                "plan '" + plan->name() + "' has " + std::to_string(plan->block_count()) +
                    " blocks, all of which must be resident; the daemon has " +
                    std::to_string(context_.block_count()),
                "compile it with blocks=" + std::to_string(context_.block_count()) +
                    ", or make the context with more blocks (STARLING_BLOCKS)");
  if (plan->collective() == Collective::kCustom && !plan->postcondition())
    log_rank(LogLevel::warn, int(rank_), "plan '", plan->name(),
             "' does not say what its outputs must hold (text of version 1): all but its result was proved; "
             "compile its program anew");
  const bool chosen_by_size = sizes.smallest <= sizes.largest;
  const uint32_t channels = block_limit(across_hosts_);
  if (chosen_by_size && plan->header(0)->channel_count > channels)
    throw Error(
        Code::unsupported,
        "plan '" + plan->name() + "' uses " + std::to_string(plan->header(0)->channel_count) +
            " channels; lanes have as many as the daemon has blocks" +
            (channels < context_.block_count() ? " for what crosses hosts, " : ", ") +
            std::to_string(channels),
        "compile it with blocks=" + std::to_string(channels) + ", or run it by name on a lane of its own");
  const std::lock_guard lock(mutex_);
  added_.add(std::move(plan), sizes);
}

Topology Communicator::topology() const {
  // Not one_process_: that asks for permission to read, too.
  const bool threads = std::all_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.peer.arena == nullptr || member.peer.arena->header()->process_nonce == cpu::process_nonce();
  });
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  // The same on all ranks: of the host that has most.
  std::map<uint64_t, uint32_t> on_host;
  uint32_t most = 0;
  for (const Member& member : members_) most = std::max(most, ++on_host[member.host]);
  return {context_.on_gpu(), threads, size(), most, context_.block_count(), uint32_t(std::max(cores, 1l))};
}

uint32_t Communicator::use_table(const ChoiceTable& table, LogLevel level) {
  const Topology here = topology();
  std::shared_ptr<const TopologyTable> found = table.at(here);
  const std::lock_guard lock(mutex_);
  table_ = std::move(found);
  chosen_.clear();
  if (table_ != nullptr) return uint32_t(table_->size());
  if (rank_ == 0 && log_enabled(level)) {
    std::string others;
    for (const std::string& name : table.topologies()) others += (others.empty() ? "" : ", ") + name;
    log_rank(level, int(rank_), "table of choices ", table.source(), " has nothing for ", here.name(),
             " (it has ", others.empty() ? "no topology" : others,
             "): the library's own choice stays; `starling tune --output ", table.source(), "` adds it");
  }
  return 0;
}

void Communicator::use_table_of_settings(LogLevel level) {
  if (settings().table.empty() || size() == 1) return;
  static const ChoiceTable table = ChoiceTable::load(settings().table);
  use_table(table, level);
}

Departure Communicator::collective_departure(const starling_operation& call, RequestPtr request,
                                             const Capture& capture) {
  LoweringContext context = lowering(rank_, size(), across_hosts_);
  context.added = &added_;
  context.table = table_.get();
  context.hosts = &hosts_;
  const bool copies = goes_by_copies(call, capture);
  if (device_set_ && !copies && !capture) {
    context.channel_limit = group_lane(call.lane).plan_limit();
    context.block_limit = std::min(context.block_limit, context.channel_limit);
  }
  Departure departure{nullptr, flight_of(call, context, std::move(request))};
  if (copies) lower_to_copies(departure.flight.lowered, rank_, members_);
  if (copies)
    departure.lane = &copy_lane(call.lane ? call.lane : kDefaultLane);
  else
    departure.lane = call.lane ? &group_lane(call.lane) : &default_lane();
  return departure;
}

void Communicator::submit_to(HostLane& lane, Flight&& flight, Capture capture) {
  if (!capture) return context_.submit(lane, std::move(flight));
  Departure captured{&twin_of(lane, *capture), std::move(flight)};
  context_.capture({&captured, 1}, *capture);
}

// Where the capture's operations of the lane go: the n-th capture in it is the n-th on all ranks.
HostLane& Communicator::twin_of(HostLane& lane, uint64_t capture) {
  const std::pair<const HostLane*, uint64_t> of(&lane, capture);
  if (twins_.count(of) == 0) {
    std::erase_if(twins_, [this](const auto& twin) { return !context_.has_lane(twin.second.key); });
    const std::string name = lane.name() + " (capture " + std::to_string(captures_[&lane]++) + ")";
    twins_.emplace(of, Twin{remember(key_of(lane.key(), name)), name});
  }
  const Twin& twin = twins_.at(of);
  return context_.twin(twin.key, twin.name, lane);
}

void Communicator::check_start(const starling_operation& call) {
  if (call.start != STARLING_START_ON_STREAM && call.start != STARLING_START_HOLD_STREAM)
    throw Error(Code::invalid_argument, "start " + std::to_string(int(call.start)) + " does not exist",
                "use a value of starling_start");
  if (call.kind == STARLING_RECV && call.peer == -1)
    throw Error(Code::unsupported, "a receive from any source on a stream",
                "name the source, or synchronize the stream and submit without it");
}

// Not captured: waits until its stream has room, before any lock is taken.
Communicator::Capture Communicator::check_stream_call(const starling_operation& call) {
  check_start(call);
  const Capture capture = context_.capture_of(call.stream);
  if (goes_by_copies(call, capture))
    context_.await_room(call.stream);
  else if (!capture)
    context_.await_stream(call.stream, call.start == STARLING_START_HOLD_STREAM);
  return capture;
}

HostLane& Communicator::control() {
  if (control_ == nullptr)
    control_ = &context_.control_lane(remember(key_of(key_, kControlLane)), kControlLane, rank_, members_,
                                      {flight_group_, -1, -1});
  return *control_;
}

HostLane& Communicator::group_lane(const char* name) {
  if (const auto found = group_lanes_.find(name); found != group_lanes_.end()) return *found->second;
  const LaneUse shared = std::string_view(name) == kDefaultLane ? LaneUse::kAnySize : LaneUse::kNamed;
  HostLane& lane =
      context_.lane(remember(key_of(key_, std::string("lane/") + name)), name, rank_, members_,
                    device_set_ ? LaneUse::kRegistered : shared, &control(), {flight_group_, -1, -1});
  group_lanes_.emplace(name, &lane);
  return lane;
}

HostLane& Communicator::default_lane() {
  if (default_lane_ == nullptr) default_lane_ = &group_lane(kDefaultLane);
  return *default_lane_;
}

LaneKey Communicator::remember(const LaneKey& key) {
  const auto at = std::lower_bound(lanes_.begin(), lanes_.end(), key);
  if (at == lanes_.end() || *at != key) lanes_.insert(at, key);
  return key;
}

// Lowered where it stays: it is large.
Flight Communicator::flight_of(const starling_operation& call, const LoweringContext& context,
                               RequestPtr request) const {
  Flight flight(context, call, std::move(request));
  flight.priority = call.priority;
  flight.waited = call.waited == STARLING_WAITED;
  flight.perhaps_waited = call.waited == STARLING_PERHAPS_WAITED && !context_.on_gpu();
  if (flight.perhaps_waited) flight.request->let_waiters_call();
  flight.on_stream = call.start != STARLING_START_NOW;
  flight.held = call.start == STARLING_START_HOLD_STREAM;
  flight.stream = flight.on_stream ? call.stream : nullptr;
  flight.timeout_ns = uint64_t(call.timeout_ns > 0 ? call.timeout_ns : timeout_ns_.load());
  return flight;
}

std::unique_ptr<Communicator> Communicator::subgroup(const std::vector<uint32_t>& ranks,
                                                     const std::string& name) {
  return make_subgroup(ranks, name, GroupKind::kGroup);
}

std::unique_ptr<Communicator> Communicator::make_subgroup(const std::vector<uint32_t>& ranks,
                                                          const std::string& name, GroupKind kind) {
  Group group{{},
              {},
              readable_,
              own_cores_,
              always_reads_,
              opens_,
              large_message_times_,
              true,
              sm_free_,
              kind == GroupKind::kDeviceSet};
  // The name comes last: whatever is in it, no two groups have one text.
  std::string text = (group.device_set ? "device set/" : "group/") + std::to_string(ranks.size());
  uint32_t own = uint32_t(ranks.size());
  for (uint32_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r] >= size() || std::count(ranks.begin(), ranks.end(), ranks[r]) != 1)
      throw Error(Code::invalid_argument, "rank " + std::to_string(ranks[r]) + " in a subgroup of " + name,
                  "pass ranks of the parent, each once");
    if (ranks[r] == rank_) own = r;
    group.members.push_back(members_[ranks[r]]);
    group.members.back().world_rank = r;
    text += "/" + std::to_string(ranks[r]);
  }
  if (own == ranks.size()) return nullptr;
  text += "/" + name;
  {
    // The n-th of one name is the n-th on all of its ranks, whether the earlier ones live or broke.
    std::lock_guard lock(made_mutex_);
    group.key = key_of(key_, text + "#" + std::to_string(made_[text]++));
  }
  auto made =
      std::unique_ptr<Communicator>(new Communicator(context_, own, std::move(group), name, timeout_ns()));
  made->use_table_of_settings(LogLevel::debug);  // a table for the whole group need not have its parts
  return made;
}

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  struct Choice {
    int64_t color, key;
  };
  // The daemon's place must be able to reach it.
  struct Gathered {
    Place& place;
    uint64_t bytes;
    std::byte* memory;
    Gathered(Place& where, uint64_t size) : place(where), bytes(size), memory(where.allocate_shared(size)) {}
    ~Gathered() { place.release_shared(memory, bytes); }
  };
  Gathered gathered(context_.place(), (size() + 1) * sizeof(Choice));
  auto* all = reinterpret_cast<Choice*>(gathered.memory);
  Choice& own = all[size()];
  own = {color, key};
  starling_operation call{};
  call.struct_bytes = sizeof call;
  call.kind = STARLING_ALL_GATHER;
  call.lane = "split";
  call.input = &own;
  call.output = all;
  call.count = 2;
  call.data_type = STARLING_INT64;
  const RequestPtr request = submit(call);
  context_.wait(*request, -1);
  if (request->status() != STARLING_SUCCESS)
    throw Error(Code(int(request->status())), "split failed: " + request->message(), "");
  std::string name;
  {
    std::lock_guard lock(mutex_);
    name = "split " + std::to_string(splits_++) + " color " + std::to_string(color);
  }
  if (color < 0) return nullptr;
  std::vector<uint32_t> ranks;
  for (uint32_t r = 0; r < size(); ++r)
    if (all[r].color == color) ranks.push_back(r);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](uint32_t a, uint32_t b) { return all[a].key < all[b].key; });
  return subgroup(ranks, name);
}

void Communicator::abort(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (aborted_.empty()) aborted_ = "aborted by rank " + std::to_string(rank_) + ": " + reason;
  end_unmatched(STARLING_ABORTED, aborted_);
  control();  // peers look at it, also where they do not know our other lanes
  for (const LaneKey& key : lanes_) context_.break_lane(key, FaultKind::kAborted, aborted_);
  for (auto& [devices, group] : device_sets_) group->abort(reason);
}

void Communicator::end_unmatched(starling_status status, const std::string& message) {
  for (AnySource& receive : any_source_) context_.fail(receive.request, status, message);
  any_source_.clear();
  note_unmatched();
  for (auto& [tag, queue] : self_)
    for (auto* calls : {&queue.sends, &queue.receives}) {
      for (SelfCall& call : *calls) context_.fail(call.request, status, message);
      calls->clear();
    }
}

Fault Communicator::error() {
  std::lock_guard lock(mutex_);
  if (!aborted_.empty()) return {FaultKind::kAborted, aborted_};
  return context_.first_fault(lanes_);
}

}  // namespace starling
