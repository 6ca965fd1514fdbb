#include "monitor/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "base/env.h"
#include "base/hash.h"
#include "machine/cpu/futex.h"
#include "machine/cpu/host_identity.h"

namespace starling::monitor {
namespace {

uint64_t realtime_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
}

}  // namespace

uint64_t flight_id(const std::string& arena) { return hash64(arena); }

FlightRecorder::FlightRecorder(const FlightOwner& owner) : file_(owner.arena), record_(*file_.record()) {
  FlightHeader& header = record_.header;
  const std::string& host = settings().host_id;
  header.bytes = sizeof(FlightRecord);
  header.id = flight_id(owner.arena);
  header.host = hash64(host.empty() ? cpu::host_identity() : host);
  header.created_ns = header.alive_ns = cpu::monotonic_ns();
  header.realtime_offset_ns = realtime_ns() - header.created_ns;
  header.pid = uint32_t(getpid());
  header.blocks = owner.blocks;
  gethostname(header.host_name, sizeof header.host_name - 1);
  copy_text(header.arena, sizeof header.arena, owner.arena);
  copy_text(header.job, sizeof header.job, job_name());
  copy_text(header.device, sizeof header.device, owner.device);
  // Release: the header before the magic that says it is there.
  std::atomic_ref<uint64_t>(header.magic).store(kFlightMagic, std::memory_order_release);
}

FlightRecorder::~FlightRecorder() {
  if (record_.header.fault_count == 0) return;
  store(record_.header.state, uint32_t(FlightState::kEnded));
  alive(cpu::monotonic_ns());
  file_.keep();
}

// Bytes one by one: a reader may look at them meanwhile. The rest stays zero, or becomes it.
void FlightRecorder::copy_text(char* to, size_t bytes, const std::string& text) {
  for (size_t i = 0; i < bytes; ++i) store(to[i], i < text.size() && i + 1 < bytes ? text[i] : '\0');
}

uint32_t FlightRecorder::add_group(const FlightGroupFacts& facts) {
  const std::lock_guard lock(mutex_);
  FlightHeader& header = record_.header;
  uint32_t index = header.group_count;
  // Where the table is full, the group that was left first gives its place.
  if (index == kFlightGroups) {
    uint64_t oldest = ~uint64_t(0);
    for (uint32_t g = 0; g < kFlightGroups; ++g) {
      const FlightGroup& group = record_.groups[g];
      if (group.left_ns == 0 || group.left_ns >= oldest || group.size < facts.members.size()) continue;
      oldest = group.left_ns;
      index = g;
    }
    if (index == kFlightGroups) return kNoFlightGroup;
  }
  FlightGroup& group = record_.groups[index];
  const bool fresh = index == header.group_count;
  const bool room = members_used_ + facts.members.size() <= kFlightMembers;
  if (fresh) store(group.first_member, room ? members_used_ : kNoFlightGroup);
  if (fresh && room) members_used_ += uint32_t(facts.members.size());
  for (size_t m = 0; group.first_member != kNoFlightGroup && m < facts.members.size(); ++m)
    store(record_.members[group.first_member + m], facts.members[m]);
  store(group.key_low, facts.key_low);
  store(group.key_high, facts.key_high);
  store(group.joined_ns, cpu::monotonic_ns());
  store(group.left_ns, 0);
  store(group.unmatched_since_ns, 0);
  store(group.size, uint32_t(facts.members.size()));
  store(group.rank, facts.rank);
  store(group.subgroup, uint32_t(facts.subgroup));
  copy_text(group.name, sizeof group.name, facts.name);
  // Release: the group before the count.
  if (fresh) std::atomic_ref<uint32_t>(header.group_count).store(index + 1, std::memory_order_release);
  return index;
}

void FlightRecorder::leave_group(uint32_t group) {
  const std::lock_guard lock(mutex_);
  if (group != kNoFlightGroup) store(record_.groups[group].left_ns, cpu::monotonic_ns());
}

void FlightRecorder::unmatched(uint32_t group, uint64_t since_ns) {
  if (group != kNoFlightGroup) store(record_.groups[group].unmatched_since_ns, since_ns);
}

void FlightRecorder::joining(const std::string& name, uint32_t own, uint32_t size, uint32_t awaited) {
  const std::lock_guard lock(mutex_);
  FlightHeader& header = record_.header;
  copy_text(header.joining_name, sizeof header.joining_name, name);
  store(header.joining_own, own);
  store(header.joining_size, size);
  store(header.joining_rank, awaited);
  // Release: what is joined before since when.
  if (header.joining_since_ns == 0)
    std::atomic_ref<uint64_t>(header.joining_since_ns).store(cpu::monotonic_ns(), std::memory_order_release);
}

void FlightRecorder::joined() {
  const std::lock_guard lock(mutex_);
  store(record_.header.joining_since_ns, 0);
}

void FlightRecorder::linked() { store(record_.header.linked, 1); }

void FlightRecorder::open_lane(uint32_t lane, const FlightLaneFacts& facts) {
  if (lane >= broken_.size()) broken_.resize(lane + 1);
  broken_[lane] = false;
  if (lane >= kFlightLanes) return;
  FlightLane& entry = record_.lanes[lane];
  const uint64_t number = entry.number_again + 1;
  store(entry.number, 0);
  std::atomic_thread_fence(std::memory_order_release);  // no new word is seen with the old number
  store(entry.key_low, facts.key_low);
  store(entry.key_high, facts.key_high);
  store(entry.submitted, 0);
  store(entry.completed, 0);
  store(entry.opened_ns, cpu::monotonic_ns());
  store(entry.closed_ns, 0);
  store(entry.group, facts.place.group);
  store(entry.size, facts.size);
  store(entry.rank, facts.rank);
  store(entry.source, facts.place.source);
  store(entry.destination, facts.place.destination);
  copy_text(entry.name, sizeof entry.name, facts.name);
  store(entry.number_again, number);
  // Release: the entry before its number.
  std::atomic_ref<uint64_t>(entry.number).store(number, std::memory_order_release);
  if (lane >= record_.header.lane_count) store(record_.header.lane_count, lane + 1);
}

void FlightRecorder::close_lane(uint32_t lane) {
  if (lane < kFlightLanes) store(record_.lanes[lane].closed_ns, cpu::monotonic_ns());
}

bool FlightRecorder::fault(uint32_t lane, uint64_t kind, uint64_t sequence, const std::string& text) {
  if (lane < broken_.size() && broken_[lane]) return false;
  if (lane >= broken_.size()) broken_.resize(lane + 1);
  broken_[lane] = true;
  FlightHeader& header = record_.header;
  if (header.fault_count == kFlightFaults) return false;
  FlightFault& fault = header.faults[header.fault_count];
  store(fault.kind, kind);
  store(fault.sequence, sequence);
  store(fault.time_ns, cpu::monotonic_ns());
  store(fault.lane, lane);
  copy_text(fault.text, sizeof fault.text, text);
  // Release: the fault before the count.
  std::atomic_ref<uint32_t>(header.fault_count).store(header.fault_count + 1, std::memory_order_release);
  return true;
}

}  // namespace starling::monitor
