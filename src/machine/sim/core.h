// The code under test as the simulator calls it: the templates of src/device, made for SimMachine. Tests put
// mutated copies of those headers in its place (docs/MUTATIONS.md).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "machine/sim/copy_work.h"
#include "machine/sim/machine.h"
#include "wire/carried.h"
#include "wire/daemon.h"

namespace starling::sim {

class Gpu;
struct Kernel;

// device::StreamCall, without its namespace.
struct StreamRequest {
  uint32_t stream;
  bool held;
  bool connected;
  bool room;
  bool follows;
  bool copies = false;
  bool rendezvous = false;
  uint32_t before = 0;
  const void* lane = nullptr;
  uint8_t box = 0;
  uint32_t unit_bytes = 0;
  bool joins = false;
};

// device::StreamEntry, without its namespace.
struct StreamTicket {
  uint8_t path;  // device::StreamPath
  uint8_t gate;
  uint8_t waits;
  uint8_t follows;
  uint8_t alone;
  uint32_t holds;
  uint64_t patience;
  uint8_t in_row = 0;
  uint8_t met = 0;
  uint8_t woken = 0;
  uint8_t put = 0;
  uint8_t came = 0;
  uint32_t turns = 0;
  uint64_t stands = 0;
  uint64_t watches = 0;
  uint8_t box = 0;
  uint8_t call = 0;  // device::CallWay
};
// device::Watched, likewise.
struct WatchedTicket {
  StreamTicket* ticket;
  const Handover* handover;
  uint64_t sequence;
};
inline constexpr uint8_t kByKernel = 0, kByQueue = 1, kByMark = 2, kByCopies = 3, kByRendezvous = 4;
inline constexpr uint8_t kPutIntoBox = 2;  // StreamTicket::call

// Of device::Entering, what the simulator knows.
struct StreamEntering {
  StreamTicket ticket;
  Lane* lane;
  const Handover* handover;
  uint64_t* arrival;
  Operation operation;
  int16_t priority;
  uint64_t order;
  uint64_t* captured = nullptr;  // device::StartArguments::captured
};

// device::StreamHost over a Gpu, without its namespace.
class StreamDriver {
 public:
  virtual ~StreamDriver() = default;
  virtual bool may_enter(const StreamRequest& request, const StreamRequest* first) = 0;
  virtual bool may_hold(const StreamTicket* ticket, uint32_t stream) = 0;  // null: of no operation under way
  virtual bool may_stand() = 0;
  virtual StreamTicket enter(const StreamRequest& request) = 0;
  virtual uint32_t hold(StreamTicket& ticket, uint32_t stream) = 0;
  virtual void completed(const StreamTicket& ticket) = 0;
  virtual bool asks_for_calls() = 0;
  virtual void note_calls(bool missing) = 0;
  virtual void note_called(bool under_way) = 0;
  virtual bool wakes_watches() = 0;
  // Of all operations that have watches.
  virtual void turn_watches(const std::vector<WatchedTicket>& all) = 0;
  virtual void poll() = 0;
  virtual void drain() = 0;
  virtual void poison(const Handover& handover, uint64_t newest) = 0;
  virtual uint64_t next_poll() = 0;
  virtual bool settled() = 0;
  virtual bool resident() const = 0;
  virtual uint64_t launches() const = 0;
  virtual void met(StreamTicket& ticket) = 0;
  virtual bool quiet() const = 0;
  // One operation, or several that have entered together.
  virtual void enqueue(uint32_t stream, const std::vector<StreamEntering>& each) = 0;
  virtual void wait_for(uint32_t stream, const Handover& handover, uint64_t sequence,
                        uint32_t watch_blocks) = 0;
  // Captured operations, one or several that begin together, and what a replay puts into its stream for them.
  virtual bool take_gate() = 0;
  virtual void note_replays(bool under_way) = 0;
  virtual Kernel captured_start(const std::vector<StreamEntering>& each) = 0;
  virtual Kernel captured_gate(const Handover& handover, const uint64_t* captured) = 0;
};

// device::CopyHost over a Gpu, without its namespace: what a rank's proxy has under way.
class CopyDriver {
 public:
  using Finished = std::function<void(SimLane*, uint64_t index)>;
  virtual ~CopyDriver() = default;
  virtual void add(const CopyWork& work) = 0;
  // Every operation once, in the order in which they came. True if anything went on.
  virtual bool step(const Finished& finished) = 0;
};

struct CopySetup {
  World* world;
  Gpu* gpu;
};

struct StreamSetup {
  World* world;
  Gpu* gpu;
  const Options* options;
  bool shared_queue;
  AloneWords* alone;  // StreamFacts::alone
  DaemonMemory* daemon;
  void* completions;
  std::byte* pool;
};

// One residency of a daemon: device::DaemonArguments and the block's fast memory.
struct Residency {
  DaemonMemory* daemon;
  void* completions;  // device::CompletionMemory
  uint32_t completion_kind;
  uint64_t launch;
  std::byte* pool_base;
  void* block_state;
};

struct Core {
  const char* name;
  size_t block_state_bytes;
  LeaveReason (*run)(SimMachine&, const Residency&);
  bool (*push)(SimMachine&, SubmissionRing&, uint32_t block_count, const Submission&);
  bool (*pop)(SimMachine&, uint32_t kind, void* completions, uint64_t& token);
  bool (*withdraw)(SimMachine&, uint64_t on_device, uint64_t* out);
  bool (*has_withdrawn)(SimMachine&, const uint64_t* out);
  bool (*was_told)(SimMachine&, const Handover&, uint64_t sequence);
  // Streams (gpu.h). Kernels' arguments are the core's own.
  size_t start_state_bytes;
  std::unique_ptr<StreamDriver> (*make_driver)(const StreamSetup&);
  std::unique_ptr<CopyDriver> (*make_copies)(const CopySetup&);
  LeaveReason (*run_daemon)(SimMachine&, const std::byte* arguments, void* block_state);
  // traces: of the slot's own, one a block; null: none.
  void (*run_start)(SimMachine&, const std::byte* arguments, TraceRing* traces, void* state);
  void (*run_call)(SimMachine&, const std::byte* arguments, void* state);
  void (*run_gate)(SimMachine&, const std::byte* arguments);
  // What proxies do (device/carrying.h).
  void (*look_at_departures)(SimMachine&, const CarriedHalf& departures, Carried&);
  CarriedMessage (*take_message)(const CarriedHalf& arrivals, const CarriedHalf& departures, Carried&);
  GrantsRecord (*take_grants)(const CarriedHalf& departures, uint32_t channel, Carried&);
  void (*deliver_message)(SimMachine&, const CarriedHalf& arrivals);
  void (*deliver_grants)(SimMachine&, const CarriedHalf& arrivals, const GrantsRecord&);
};

// What users run.
const Core& shipped_core();

}  // namespace starling::sim
