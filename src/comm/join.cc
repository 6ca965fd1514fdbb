#include "comm/join.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <sstream>

#include "base/env.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/seconds.h"
#include "comm/host_layout.h"
#include "machine/cpu/host_identity.h"
#include "machine/cpu/process_memory.h"

namespace starling {
namespace {

constexpr const char* kReadable = " readable";
constexpr const char* kOwnCores = " cores";
constexpr const char* kAlwaysReads = " always";
constexpr const char* kOpens = " opens";
constexpr std::string_view kSmFree = " sm_free=";  // then a digit, of SmFree
constexpr std::string_view kDeclined = "declined ";  // then the reason
constexpr size_t kLongestReason = 2000;
constexpr std::string_view kPlaces = " places ";  // then one of each rank's host
constexpr std::string_view kTimes = " times ";  // then two numbers: by slots, read
constexpr int64_t kGlanceNs = 1'000'000;  // at what is in a store or is not
constexpr int64_t kDeathNs = 2'000'000'000;  // how often a caller's store is left to look whether peers live

// What a rank tells the others of itself before they map its segment, or link to it: the fields in their
// order.
struct Introduction {
  std::string arena;
  uint64_t size = 0;
  uint64_t blocks = 0;
  uint64_t slot_bytes = 0;  // of the pool, in bytes
  uint64_t pool_slots = 0;
  uint64_t pid = 0;
  uint64_t process_nonce = 0;
  std::string host;
  uint64_t host_name = 0;  // a hash, as that of the host: names may have spaces in them

  std::string text() const {
    std::ostringstream words;
    words << arena << " " << size << " " << blocks << " " << slot_bytes << " " << pool_slots << " " << pid
          << " " << process_nonce << " " << host << " " << host_name;
    return words.str();
  }
};

std::optional<Introduction> parse_introduction(const std::string& text) {
  std::istringstream words(text);
  Introduction parsed;
  if (words >> parsed.arena >> parsed.size >> parsed.blocks >> parsed.slot_bytes >> parsed.pool_slots >>
          parsed.pid >> parsed.process_nonce >> parsed.host >> parsed.host_name &&
      words.eof())
    return parsed;
  return std::nullopt;
}

std::string key_in_store(const CommOptions& options, const char* what, uint32_t rank) {
  return "starling/" + options.name + "/" + what + "/" + std::to_string(rank);
}

void check_place(const CommOptions& options) {
  if (options.size == 0 || options.rank >= options.size || options.size > 0xffff)
    throw Error(Code::invalid_argument,
                "rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) +
                    " ranks is not possible",
                "ranks are 0 to size - 1");
  if (options.name.empty())
    throw Error(Code::invalid_argument, "a communicator needs a name",
                "pass one that is the same on all ranks and unique in the store");
}

std::string text_of(const LaneKey& key) {
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)key.high,
                (unsigned long long)key.low);
  return text;
}

class Joining {
 public:
  Joining(Context& context, const CommOptions& options, Store& store)
      : context_(context),
        options_(options),
        store_(store),
        deadline_(cpu::monotonic_ns() + uint64_t(options.timeout_ns)) {
    group_.members.resize(options.size);
    group_.readable = settings().pull != Pull::kNever && !context.on_gpu();
    group_.always_reads = settings().pull == Pull::kAlways;
    // Where buffers have bounced, slots are as fast and take less memory.
    group_.opens = context.on_gpu() && (group_.always_reads ||
                                        (settings().pull == Pull::kAuto && !context.place().has_bounced()));
    group_.sm_free = options.sm_free.value_or(context.on_gpu() ? settings().sm_free : SmFree::kNever);
    // Where a stream that stands stops others, it would stop the copies that release it.
    if (context.on_gpu() && single_hardware_queue()) group_.sm_free = SmFree::kNever;
    group_.own_cores = long(options.size) <= sysconf(_SC_NPROCESSORS_ONLN);
    host_names_.resize(options.size);
    if (options.rank == 0 && !settings().topology.empty()) by_leaf_ = hosts_by_leaf(settings().topology);
  }

  ~Joining() { context_.flight().joined(); }

  Group run() {
    const ArenaHeader& header = *context_.arena().header();
    const std::string& host = settings().host_id;
    own_ = {context_.arena().name(),
            options_.size,
            header.blocks,
            header.pool_slot_bytes,
            header.pool_slots,
            header.pid,
            header.process_nonce,
            std::to_string(hash64(host.empty() ? cpu::host_identity() : host)),
            hash64(name_of_host(settings()))};
    store_.claim(key_of_rank("member", options_.rank));
    store_.set(key_of_rank("arena", options_.rank), own_.text());
    find_members();
    context_.prepare_group(group_.key, options_.name);
    if (options_.rank == 0)
      gather();
    else
      report();
    return std::move(group_);
  }

 private:
  void find_members() {
    group_.key = key_of({0x5354, 0x524c}, options_.name);
    for (uint32_t rank = 0; rank < options_.size; ++rank) {
      group_.members[rank].world_rank = options_.named(rank);
      Introduction peer = own_;
      if (rank != options_.rank) {
        peer = checked(wait_for("arena", rank, store_.patience_ns()), rank);
        if (peer.host != own_.host) {
          remote_.emplace_back(rank, peer);
          group_.readable = group_.opens = false;
        } else {
          group_.members[rank].peer = attach(peer.arena);
          const bool readable = cpu::can_read(*group_.members[rank].peer.arena->header());
          const PeerMemory& memory = *group_.members[rank].peer.memory;
          group_.readable &= readable;
          group_.opens &= memory.can_open();
          if (!(context_.on_gpu() ? memory.can_copy() : readable)) group_.sm_free = SmFree::kNever;
        }
      }
      group_.members[rank].host = hash64(peer.host);
      host_names_[rank] = peer.host_name;
      group_.members[rank].flight = monitor::flight_id(peer.arena);
      group_.key = key_of(group_.key, peer.arena);
    }
    if (!remote_.empty()) link_to_others();
  }

  // Every rank finds some on other hosts, or none does: so all that are waited for here set their ports.
  void link_to_others() {
    store_.set(key_of_rank("ports", options_.rank), context_.link_ports());
    for (const auto& [rank, peer] : remote_) {
      const link::carry::RemoteRank remote{
          peer.arena,      rank,       uint32_t(peer.pid), peer.process_nonce, peer.pool_slots,
          peer.slot_bytes, peer.blocks};
      group_.members[rank].peer =
          context_.attach_remote(remote, wait_for("ports", rank, store_.patience_ns()));
    }
  }

  Peer attach(const std::string& arena) {
    try {
      return context_.attach(arena);
    } catch (const Error& error) {
      // Gone already: perhaps because it does not fit to a rank whose introduction we have not read yet.
      // It had read that one, so it is there; then this rank says the cause and not the consequence.
      if (error.code() == Code::peer_failed) check_all_that_came();
      throw;
    }
  }

  void check_all_that_came() {
    for (uint32_t rank = 0; rank < options_.size; ++rank)
      if (rank != options_.rank)
        if (auto text = store_.get(key_of_rank("arena", rank), kGlanceNs)) checked(*text, rank);
  }

  void gather() {
    for (uint32_t rank = 1; rank < options_.size; ++rank)
      same_group(wait_for("joined", rank, std::min(store_.patience_ns(), kDeathNs)), rank);
    store_.withdraw(key_of_rank("arena", 0));
    store_.withdraw(key_of_rank("ports", 0));
    group_.times = known_times();
    place_hosts();
    store_.set(key_of_rank("complete", 0), what_was_found());
    try {
      for (uint32_t rank = 1; rank < options_.size; ++rank) wait_until_gone("joined", rank);
    } catch (...) {
      store_.withdraw(key_of_rank("complete", 0));  // who has read it waits for no more
      throw;
    }
    store_.withdraw(key_of_rank("complete", 0));
  }

  void report() {
    store_.set(key_of_rank("joined", options_.rank), what_was_found());
    const std::string found = wait_for("complete", 0, std::min(store_.patience_ns(), kDeathNs));
    same_group(found, 0);
    if (const size_t at = found.find(kTimes); at != std::string::npos) {
      LargeMessageTimes times;
      std::istringstream(found.substr(at + kTimes.size())) >> times.slots_ns >> times.read_ns;
      group_.times = times;
    }
    if (const size_t at = found.find(kPlaces); at != std::string::npos) {
      std::istringstream places(found.substr(at + kPlaces.size()));
      for (Member& member : group_.members) places >> member.host_place;
    }
    store_.withdraw(key_of_rank("arena", options_.rank));
    store_.withdraw(key_of_rank("ports", options_.rank));
    store_.withdraw(key_of_rank("joined", options_.rank));
    wait_until_gone("complete", 0);
  }

  // Rank 0 decides for all: others may have another file, or none.
  void place_hosts() {
    if (remote_.empty()) return;
    std::vector<uint64_t> hosts;
    for (const Member& member : group_.members) hosts.push_back(member.host);
    std::vector<uint64_t> order;
    for (const std::string& name : by_leaf_) order.push_back(hash64(name));
    const std::vector<uint32_t> places = places_by_name(hosts, host_names_, order);
    for (uint32_t rank = 0; rank < options_.size; ++rank) group_.members[rank].host_place = places[rank];
    if (order.empty() || !log_enabled(LogLevel::warn)) return;
    for (uint32_t rank = 0; rank < options_.size; ++rank)
      if (places[rank] >= order.size() &&
          std::find(places.begin(), places.begin() + rank, places[rank]) == places.begin() + rank)
        log_rank(LogLevel::warn, 0, "topology ", settings().topology, " does not have the host of ",
                 name_of(rank), ": it comes after those that it has; `starling topo --json` there adds it");
  }

  std::string wait_for(const char* what, uint32_t rank, int64_t patience_ns) {
    if (options_.interrupted != nullptr) patience_ns = std::min(patience_ns, kInterruptibleNs);
    const std::string key = key_of_rank(what, rank);
    context_.flight().joining(options_.name, options_.rank, options_.size, rank);
    for (;;) {
      const uint64_t now = cpu::monotonic_ns();
      if (now >= deadline_) too_late(what, rank);
      // Before the look: who left in order after it was complete must not be taken for one that failed.
      const uint32_t gone = gone_member();
      if (auto value = store_.get(key, std::min(patience_ns, int64_t(deadline_ - now)))) return *value;
      if (gone != options_.size)
        throw Error(Code::peer_failed,
                    name_of(gone) + " (process " +
                        std::to_string(group_.members[gone].peer.arena->header()->pid) +
                        ") died or gave up while '" + options_.name + "' was being joined",
                    "see that rank's own log for the cause");
      if (options_.interrupted != nullptr && options_.interrupted(options_.user) != 0)
        throw Error(Code::aborted, "joining '" + options_.name + "' was interrupted");
    }
  }

  // Until that rank has taken the key back, or has died.
  void wait_until_gone(const char* what, uint32_t rank) {
    while (store_.holds(key_of_rank(what, rank)) && group_.members[rank].peer.arena->alive()) {
      if (cpu::monotonic_ns() >= deadline_) too_late("leave of the meeting", rank);
      if (options_.interrupted != nullptr && options_.interrupted(options_.user) != 0)
        throw Error(Code::aborted, "joining '" + options_.name + "' was interrupted");
      sched_yield();
    }
  }

  [[noreturn]] void too_late(const char* what, uint32_t rank) {
    std::string text = name_of(rank) + " did not join '" + options_.name + "' of " +
                       std::to_string(options_.size) + " ranks within " +
                       seconds(uint64_t(options_.timeout_ns)) + " (" + name_of(options_.rank) +
                       " waited for its " + what + ")";
    // In a caller's store the later of two processes with one rank has overwritten what the earlier one set.
    if (store_.get(key_of_rank("arena", options_.rank), kGlanceNs).value_or(own_.text()) != own_.text())
      text += "; another process has joined as " + name_of(options_.rank) + " too";
    throw Error(Code::timeout, text,
                "check that all ranks were started, each with a rank of its own, with the same name, size "
                "and store (or "
                "STARLING_JOB, on one host)");
  }

  uint32_t gone_member() const {
    for (uint32_t rank = 0; rank < options_.size; ++rank)
      if (group_.members[rank].peer.arena != nullptr && !group_.members[rank].peer.arena->alive())
        return rank;
    return options_.size;
  }

  // Throws where that rank and this one cannot be one group.
  Introduction checked(const std::string& text, uint32_t rank) const {
    const std::string that = name_of(rank);
    if (text.starts_with(kDeclined))
      throw Error(Code::peer_failed,
                  that + " cannot join '" + options_.name + "': " + text.substr(kDeclined.size()),
                  "mend that on " + that + ", and start the group anew");
    const auto peer = parse_introduction(text);
    if (!peer || peer->slot_bytes != own_.slot_bytes)
      throw Error(
          Code::mismatch, that + " runs another version of Starling, or on another kind of device",
          "install the same version on all ranks, and give all contexts of a group one kind of device");
    if (peer->size != own_.size)
      throw Error(Code::mismatch,
                  that + " joins '" + options_.name + "' as one of " + std::to_string(peer->size) +
                      " ranks, " + name_of(options_.rank) + " as one of " + std::to_string(own_.size),
                  "pass the same size on all ranks, and a name of its own for every group");
    // A lane has a channel for each block: lanes of unequal ranks would never be connected.
    if (peer->blocks != own_.blocks)
      throw Error(Code::mismatch,
                  "the daemon of " + that + " has " + std::to_string(peer->blocks) +
                      " blocks, this rank's has " + std::to_string(own_.blocks),
                  "give all contexts of a group the same number of blocks (STARLING_BLOCKS)");
    return *peer;
  }

  std::string what_was_found() const {
    std::string found = text_of(group_.key) + (group_.readable ? kReadable : "") +
                        (group_.own_cores ? kOwnCores : "") + (group_.always_reads ? kAlwaysReads : "") +
                        (group_.opens ? kOpens : "") + std::string(kSmFree) + char('0' + int(group_.sm_free));
    if (options_.rank == 0 && !remote_.empty()) {
      found += kPlaces;
      for (const Member& member : group_.members) found += std::to_string(member.host_place) + " ";
    }
    if (group_.times)
      found += std::string(kTimes) + std::to_string(group_.times->slots_ns) + " " +
               std::to_string(group_.times->read_ns);
    return found;
  }

  // Also leaves of what was found what the other one found too.
  void same_group(const std::string& value, uint32_t rank) {
    group_.readable &= value.find(kReadable) != std::string::npos;
    group_.own_cores &= value.find(kOwnCores) != std::string::npos;
    group_.always_reads &= value.find(kAlwaysReads) != std::string::npos;
    group_.opens &= value.find(kOpens) != std::string::npos;
    const size_t sm_free = value.find(kSmFree);
    group_.sm_free = sm_free == std::string::npos
                         ? SmFree::kNever
                         : std::min(group_.sm_free, SmFree(value[sm_free + kSmFree.size()] - '0'));
    if (value.substr(0, value.find(' ')) == text_of(group_.key)) return;
    throw Error(
        Code::mismatch,
        name_of(rank) + " found other processes for '" + options_.name + "' than " + name_of(options_.rank),
        "give every process a rank of its own, and every group a name of its own in the store");
  }

  std::string name_of(uint32_t rank) const { return "rank " + std::to_string(options_.named(rank)); }

  std::string key_of_rank(const char* what, uint32_t rank) const {
    return key_in_store(options_, what, rank);
  }

  Context& context_;
  const CommOptions& options_;
  Store& store_;
  const uint64_t deadline_;
  Introduction own_;
  std::vector<std::pair<uint32_t, Introduction>> remote_;  // ranks of other hosts
  std::vector<uint64_t> host_names_;  // of each rank
  std::vector<std::string> by_leaf_;  // hosts in ring order; on rank 0 alone
  Group group_;
};

}  // namespace

Group join_group(Context& context, const CommOptions& options, Store& store) {
  check_place(options);
  return Joining(context, options, store).run();
}

void decline_group(const CommOptions& options, Store& store, const std::string& reason) {
  check_place(options);
  store.set(key_in_store(options, "arena", options.rank),
            std::string(kDeclined) + reason.substr(0, kLongestReason));
}

}  // namespace starling
