// Writes a rank's flight record (wire/flight.h): a few stores for an operation, nothing allocated, no lock of
// its own.
//
// Thread-safety: operations, lanes and faults under the context's lock; groups and joining under a mutex
// here; alive() by the poller alone.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "monitor/flight_file.h"
#include "wire/arena.h"
#include "wire/flight.h"

namespace starling::monitor {

struct FlightOwner {
  std::string arena;
  std::string device;
  uint32_t blocks = 1;
};

// Which lane of which group; ranks of the group if it is a lane of messages, else -1.
struct FlightPlace {
  uint32_t group = kNoFlightGroup;
  int32_t source = -1;
  int32_t destination = -1;
};

struct FlightLaneFacts {
  uint64_t key_low;
  uint64_t key_high;
  std::string name;
  uint32_t size;
  uint32_t rank;
  FlightPlace place;
};

struct FlightGroupFacts {
  uint64_t key_low;
  uint64_t key_high;
  std::string name;
  uint32_t rank;
  bool subgroup;
  std::span<const uint64_t> members;  // flight_id() of each
};

struct FlightSubmission {
  uint32_t lane;
  uint64_t sequence;
  uint64_t bytes;
  uint64_t now_ns;
};

// Names a rank among all.
uint64_t flight_id(const std::string& arena);

class FlightRecorder {
 public:
  explicit FlightRecorder(const FlightOwner& owner);
  // The record stays if there was a fault.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  const FlightRecord& record() const { return record_; }
  // For the writer of its paths.
  FlightRecord& for_paths() { return record_; }

  // Index of the group; kNoFlightGroup: the table is full.
  uint32_t add_group(const FlightGroupFacts& facts);
  void leave_group(uint32_t group);
  // Of the oldest receive from any source; 0: there is none.
  void unmatched(uint32_t group, uint64_t since_ns);
  void joining(const std::string& name, uint32_t own, uint32_t size, uint32_t awaited);
  void joined();
  void linked();

  void open_lane(uint32_t lane, const FlightLaneFacts& facts);
  void close_lane(uint32_t lane);

  // Returns the operation's number, which the next two take.
  uint64_t submitted(const FlightSubmission& what, const Signature& signature) {
    FlightHeader& header = record_.header;
    const uint64_t number = header.submissions + 1;
    FlightOperation& op = place_of(number);
    store(op.number, 0);
    std::atomic_thread_fence(std::memory_order_release);  // no new word is seen with the old number
    store(op.sequence, what.sequence);
    store(op.count, signature.count);
    store(op.bytes, what.bytes);
    store(op.plan_hash, signature.plan_hash);
    store(op.counts_hash, signature.counts_hash);
    store(op.submitted_ns, what.now_ns);
    store(op.started_ns, 0);
    store(op.completed_ns, 0);
    store(op.root, signature.root);
    store(op.lane, what.lane);
    store(op.collective, signature.collective);
    store(op.data_type, signature.data_type);
    store(op.reduce_op, signature.reduce_op);
    store(op.flags,
          uint8_t((signature.varying ? kFlightVarying : 0) | (signature.in_place ? kFlightInPlace : 0)));
    store(op.status, 0);
    store(op.number_again, number);
    // Release: the entry before its number.
    std::atomic_ref<uint64_t>(op.number).store(number, std::memory_order_release);
    store(header.submissions, number);
    if (what.lane < kFlightLanes) store(record_.lanes[what.lane].submitted, what.sequence + 1);
    return number;
  }
  void started(uint64_t number, uint64_t now_ns) {
    if (FlightOperation& op = place_of(number); op.number == number) store(op.started_ns, now_ns);
  }
  void completed(uint64_t number, uint32_t lane, uint32_t status, uint64_t now_ns) {
    if (FlightOperation& op = place_of(number); op.number == number) {
      store(op.status, status);
      store(op.completed_ns, now_ns);
    }
    if (lane < kFlightLanes) store(record_.lanes[lane].completed, record_.lanes[lane].completed + 1);
  }

  void alive(uint64_t now_ns) { store(record_.header.alive_ns, now_ns); }

  // True if the record has it since: for the first fault of a lane, and as long as there is room.
  bool fault(uint32_t lane, uint64_t kind, uint64_t sequence, const std::string& text);

 private:
  template <class T>
  static void store(T& to, std::type_identity_t<T> value) {
    std::atomic_ref<T>(to).store(value, std::memory_order_relaxed);
  }
  FlightOperation& place_of(uint64_t number) {
    return record_.operations[(number - 1) & (kFlightOperations - 1)];
  }
  static void copy_text(char* to, size_t bytes, const std::string& text);

  FlightFile file_;
  FlightRecord& record_;
  std::mutex mutex_;  // groups, members, joining
  uint32_t members_used_ = 0;
  std::vector<bool> broken_;  // by lane: its fault is known
};

}  // namespace starling::monitor
