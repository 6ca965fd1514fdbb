// Where a rank's daemon runs, seen from its host: the memory of the daemon, and its launches. Contexts and
// lanes (src/comm) know this alone; a place is the CPU (machine/cpu/place.h) or one GPU (machine/cuda).
//
//   private memory    allocate(): the daemon's alone
//   exported memory   the same, and written by the blocks of peers, who name it by its offset
//   shared memory     allocate_shared(): the host's; the daemon reads and writes it directly
//   network slots     allocate_for_network(): where the place has them
//
// Thread-safety: a place is used under its context's lock, where nothing is said; its executor from any
// thread.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/copy_host.h"
#include "device/daemon.h"
#include "device/stream_host.h"
#include "machine/carrier.h"
#include "machine/completion_listener.h"
#include "machine/cpu/arena.h"
#include "wire/daemon.h"

namespace starling {

// What is put into a stream for one operation.
struct StreamLaunch {
  device::StreamEntry entry{};
  device::Stream stream = nullptr;
  Operation operation{};
  Lane near{};  // a copy of *lane
  Handover handover{};
  Lane* lane = nullptr;
  int16_t priority = 0;
  const PlanHeader* plan = nullptr;  // of the operation, where the host can read it
  uint64_t order = 0;  // device::Entering
  uint64_t* arrival = nullptr;  // device::Entering
  bool patient = false;  // it waits as long as a daemon without progress stays
  // In its lane a peer may be long in coming: its start kernel leaves its place soon if none has come. What
  // the program launches behind it in its stream would wait for that peer too.
  bool hasty = false;
  Scheduling scheduling{};  // the daemon's
};

class CaptureOrder;  // an executor's, which owns them

// What a stream's capture takes for one operation.
struct CapturedLaunch {
  StreamLaunch launch;
  uint64_t* number;  // where its start kernel leaves its number in a replay
  CaptureOrder** order;  // the lane's; points to null at first
};

// Operations ordered on streams of the caller: what device/stream_host.h says of each. The context's lock is
// the host's lock.
class StreamOperations {
 public:
  virtual ~StreamOperations() = default;

  // Under the context's lock. may_enter() may be asked without it: then its answer may be old at once.
  virtual bool may_enter(const device::StreamCall& call) = 0;
  virtual bool may_hold() = 0;
  virtual bool may_hold(const device::StreamEntry& entry, device::Stream stream, bool by_itself) = 0;
  virtual bool may_stand() = 0;
  virtual device::StreamEntry enter(const device::StreamCall& call) = 0;
  // The operation has entered, and is not enqueued.
  virtual void abandon(const device::StreamEntry& entry) = 0;
  virtual uint32_t hold(device::StreamEntry& entry, device::Stream stream, bool by_itself) = 0;
  virtual void completed(const device::StreamEntry& entry) = 0;
  virtual void poison(const Handover& handover, uint64_t newest) = 0;
  // Every block has read every submission.
  virtual bool submissions_read() const = 0;
  // device::StreamHost::asks_for_calls(), note_calls().
  virtual bool asks_for_calls() = 0;
  virtual void note_calls(bool missing) = 0;
  // device::StreamHost::wakes_watches(), turn_watches().
  virtual bool wakes_watches() = 0;
  virtual const device::Watched* turn_watches(const device::WatchLook& look, bool needed) = 0;
  // device::StreamHost::met(), for each operation on kRendezvous.
  virtual void met(device::StreamEntry& entry) = 0;
  // Nothing was parked, or is run by a daemon.
  virtual bool only_kernels() const = 0;

  // One that stands stops launches into all others.
  virtual bool shares_queue() const = 0;
  // The stream's launch queue takes what an operation without a kernel needs.
  virtual bool has_room(device::Stream stream) = 0;

  // Without it; may stand in the driver.
  virtual void enqueue(std::span<const StreamLaunch> together) = 0;
  virtual void wait_for(device::Stream stream, const Handover& handover, uint64_t sequence,
                        uint32_t watch_blocks) = 0;
  // *word := value, in shared memory, when the stream has come there.
  virtual void mark(device::Stream stream, uint64_t* word, uint64_t value) = 0;
  // When the stream has come there.
  virtual void copy(device::Stream stream, std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  // Lives as long as the executor.
  virtual device::Stream make_stream(bool urgent) = 0;

  // ---- captures (docs/design/0019-cuda-graphs.md). Under the context's lock:
  virtual bool may_capture() const = 0;
  virtual bool take_gate() = 0;
  virtual void give_gate() = 0;
  virtual void note_replays(bool under_way) = 0;
  // The lane's capture is over. Null is fine.
  virtual void end_order(CaptureOrder* order) = 0;

  // Without it. The capture that the stream is part of, by a number that no other capture of this process
  // has; none: what is put into it runs. Throws Error(invalid_argument) if the capture was invalidated.
  virtual std::optional<uint64_t> capture_of(device::Stream stream) = 0;
  // Nodes of the stream's capture: one start kernel for one operation, or for several of different lanes,
  // device::kMostTogether at most; the gate for one. Throw Error(system) if the driver refuses. A lane's
  // start kernels come one behind the other, whatever their streams, because they take their numbers as they
  // come.
  virtual void capture(std::span<const CapturedLaunch> together) = 0;
  virtual void capture_wait(device::Stream stream, const Handover& handover, const uint64_t* captured) = 0;
  // `dropped` becomes true when nothing can replay the stream's capture any more, and no replay runs.
  // Likewise.
  virtual void watch_graph(device::Stream stream, std::shared_ptr<std::atomic<bool>> dropped) = 0;
};

// Starts the daemon and knows whether it is resident.
class Executor {
 public:
  virtual ~Executor() = default;

  // Submissions were pushed, or something was stored that a sleeping daemon should see: it is made to look.
  virtual void ring() = 0;
  // By whoever polls for completions. work: operations are on the device; if the daemon is not resident and
  // they wait for it, it is launched again (the event-driven start). True: look again soon.
  virtual bool keep_running(bool work, bool called) = 0;
  // By the last keep_running(): it has something to do within some 50 us.
  virtual bool hurries() const { return false; }

  // Runs one residency on the calling thread, where a daemon can; it ends early after end_early(). False: it
  // cannot, or there is no work. eager: every rank has a core, so long polling is cheap.
  virtual bool run_here(CompletionListener& listener, bool eager) = 0;
  // A caller that waits wants to run the daemon itself: asks the resident one to leave. False: not possible.
  virtual bool ask_to_leave() = 0;
  virtual void end_early() = 0;

  // From now on its threads help this one while they wait. It outlives the executor.
  virtual void set_carrier(Carrier*) {}

  // Returns when what was resident at the call is not any more.
  virtual void synchronize() = 0;
  // Nobody is inside, and every block has read every submission: no block knows a lane that has no
  // operations.
  virtual bool quiet() const = 0;
  // Why no operation will ever complete again; "" while the machine is well.
  virtual std::string failure() const = 0;

  // Null where there are no streams.
  virtual StreamOperations* streams() { return nullptr; }
};

// Where a copy engine of this process writes: an address of ours, or of another process on CPUs.
struct CopyTarget {
  std::byte* address;
  uint32_t process = 0;  // 0: ours
};

// Moves messages without blocks (device/copy_host.h). By one thread.
class CopyEngine {
 public:
  // Waits for copies under way.
  virtual ~CopyEngine() = default;
  // Returns its ticket: they count up, and a queue's copies end in their order. 0: the peer's memory cannot
  // be written now. Never waits for a copy of a GPU's. Throws Error; then no copy of this call is under way.
  virtual uint64_t copy(device::CopyQueue queue, const CopyTarget& to, const std::byte* from,
                        uint64_t bytes) = 0;
  // The newest ticket whose copy, and all before it in the queue, have ended. What they wrote is visible to
  // whoever acquires what is stored after.
  virtual uint64_t completed(device::CopyQueue queue) = 0;
};

// A peer's exported memory, as this rank's blocks address it.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  // Throws Error if the peer's memory cannot be reached.
  virtual std::byte* at(uint64_t offset) = 0;
  // False: at() would call a driver; it is done soon, on another thread. Any thread.
  virtual bool reaches(uint64_t) { return true; }

  // Can our blocks read buffers of the owner's callers that it has registered (wire/registration.h)? True
  // also where they need no registration: in one process.
  virtual bool can_open() const { return false; }
  // Can a copy engine of ours write there without a kernel? Within a GPU the driver may take one.
  virtual bool can_copy() const { return false; }
  // From now on they are opened as they are published. On a caller's thread, under no lock, before the first
  // lane to the owner. Idempotent. Throws Error.
  virtual void open_buffers() {}
  // For our blocks; null: addresses of the owner hold here.
  virtual OpenedTable* opened() const { return nullptr; }
  // By the poller: what was published since is opened soon.
  virtual void look_for_buffers() {}
  // Why a buffer that a message has named cannot be opened; "" while none is missing for good.
  virtual std::string refusal() const { return ""; }
  // Where a copy engine of ours writes to the owner's address, in the allocation of that number; none: it is
  // not open yet. Any thread.
  virtual std::optional<CopyTarget> reach(uint64_t, uint16_t) { return std::nullopt; }
};

// What a place gives and expects.
struct PlaceTraits {
  bool direct;  // the daemon works on the host's memory: plans and tables need no copies there
  bool notifies;  // completions ring at the host's door; else the host has to look
  bool streams;  // operations may be ordered on streams
  uint32_t lane_depth;  // operations of a lane on the device
  uint32_t default_blocks;
  uint32_t lane_limit;
  uint32_t slot_bytes_limit;
  uint32_t packet_bytes_limit;  // data of a packet message
  uint32_t pull_bytes;  // what a block pulls between two looks at what else there is to do
  uint64_t trace_capacity;  // records a block
};

struct Pool {
  uint64_t offset;  // of exported memory
  uint64_t slots;
};

// Slots of messages to other hosts in the place's own memory, which network devices read and write by
// themselves (GPUDirect). Of the host nobody else touches what is in them.
struct NetworkSlots {
  std::byte* memory = nullptr;  // as blocks and copy engines address it; null: the place has none
  std::byte* named = nullptr;  // as network devices know it once it is registered
  int dma_buf = -1;  // it is registered as; -1: by `named` alone
  std::byte* whole = nullptr;  // what the place had to take for it
};

struct DaemonStart {
  DaemonMemory* daemon;  // private memory
  device::CompletionMemory* completions;  // private memory, as the blocks see it
  device::CompletionQueueKind completion_kind;
  const SubmissionRing* submissions;  // as the host sees it
  uint64_t* work;  // DaemonMemory::work
  BlockMemory* blocks;  // private memory
  Scheduling scheduling;
  uint32_t block_count;
};

// What is read out of a place's memory, and when it is there.
class PendingRead {
 public:
  explicit PendingRead(uint64_t bytes) : bytes_(bytes) {}

  // By who asked: it has ended, in vain if the place has failed.
  // Acquire: pairs with the releases below; the bytes are there.
  bool ended() const { return state_.load(std::memory_order_acquire) != State::kUnderWay; }
  bool failed() const { return state_.load(std::memory_order_acquire) == State::kFailed; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // By the place. Release: the bytes.
  std::span<std::byte> to_fill() { return bytes_; }
  void end() { state_.store(State::kThere, std::memory_order_release); }
  void fail() { state_.store(State::kFailed, std::memory_order_release); }

 private:
  enum class State : uint32_t { kUnderWay, kThere, kFailed };
  std::vector<std::byte> bytes_;
  std::atomic<State> state_{State::kUnderWay};
};

class Place {
 public:
  virtual ~Place() = default;

  virtual const PlaceTraits& traits() const = 0;
  // "cpu" or "cuda:0": for messages.
  virtual std::string name() const = 0;
  // "0000:1b:00.0"; "" for a CPU, and where the driver does not say.
  virtual std::string bus_address() const { return ""; }

  // Zeroed, 64-byte aligned. What is not released lives as long as the place. Throws Error(exhausted).
  virtual std::byte* allocate(uint64_t bytes) = 0;
  // The same with whatever was in it: nothing is written, so there is nothing to wait for.
  virtual std::byte* allocate_unwritten(uint64_t bytes) { return allocate(bytes); }
  virtual void release(std::byte* memory, uint64_t bytes) = 0;
  virtual std::byte* allocate_shared(uint64_t bytes) = 0;
  virtual void release_shared(std::byte* memory, uint64_t bytes) = 0;
  // Before a lock is taken under which an operation takes memory: what that may need is had from the driver
  // now. Any thread. Throws Error(exhausted).
  virtual void make_room() {}
  // Can it be? What it is for is asked only if so.
  virtual bool has_network_slots() { return false; }
  // Its content is whatever it was. Throws Error.
  virtual NetworkSlots allocate_for_network(uint64_t /*bytes*/) { return {}; }
  // It is registered, or will not be: from now on only devices and blocks reach it.
  virtual void seal(NetworkSlots&, uint64_t /*bytes*/) {}
  virtual void release_for_network(const NetworkSlots&, uint64_t /*bytes*/) {}
  virtual uint64_t allocate_exported(uint64_t bytes) = 0;
  virtual void release_exported(uint64_t offset, uint64_t bytes) = 0;
  virtual std::byte* exported(uint64_t offset) const = 0;
  // Slots of arena_header()->pool_slot_bytes for the blocks' pools.
  virtual Pool make_pool(uint64_t bytes) = 0;

  // Copies to private or exported memory. What is written later is seen later; 8 bytes are a word that a
  // block or a peer's host may acquire. Returns at once, as begin_read(); any thread, under any lock.
  virtual void write(void* to, const void* from, uint64_t bytes) = 0;
  // The number of what was written last; all up to that of arrived() is there: a submission may speak of it.
  virtual uint64_t written() const { return 0; }
  virtual uint64_t arrived() const { return 0; }
  // Until all up to that number is there; or all that was written before. They wait: not under a lock that
  // others need (base/quick_mutex.h). Throw Error(system).
  virtual void await(uint64_t /*written*/) {}
  virtual void flush() = 0;
  // Why nothing that is written will arrive any more; "" while all is well.
  virtual std::string failure() const { return ""; }
  // Behind all that was written before. Waits, as flush().
  virtual void read(void* to, const void* from, uint64_t bytes) const = 0;
  virtual std::shared_ptr<const PendingRead> begin_read(const void* from, uint64_t bytes) const {
    auto reading = std::make_shared<PendingRead>(bytes);
    read(reading->to_fill().data(), from, bytes);
    reading->end();
    return reading;
  }

  virtual std::unique_ptr<PeerMemory> attach(const std::shared_ptr<cpu::PeerArena>& peer) = 0;
  // Is it in the memory of the device itself? Throws Error(invalid_argument) if the daemon cannot read and
  // write there. Null is fine.
  virtual bool check_buffer(const void* memory, const char* name) const = 0;
  // Blocks of peers in this process will read there (protocol pull). Says in the log, once, if they cannot.
  virtual void check_pulled(const void* memory) const = 0;
  // By which number peers of other processes know the allocation that a buffer is in; it is published when
  // this returns. 0: they cannot open it; or it is one too many, unless it `must` be opened. Any thread.
  virtual uint16_t registration_of(const void*, uint64_t /*bytes*/, bool /*must*/) { return 0; }
  // Memory that they can open, with its number in `registration`; null: they open none. Its content is
  // whatever it was. Any thread. Throws Error(exhausted).
  virtual std::byte* take_opened(uint64_t, uint16_t&) { return nullptr; }
  virtual void give_opened(std::byte*, uint64_t) {}
  // The same, for a buffer that they cannot open, which bounces there: said in the log, once.
  virtual std::byte* take_bounce(uint64_t, uint16_t&) { return nullptr; }
  // Would it bounce? Any thread.
  virtual void try_buffer(const void*) {}
  // Some buffer has bounced, or one that was tried would.
  virtual bool has_bounced() const { return false; }

  virtual std::unique_ptr<Executor> start(const DaemonStart& start) = 0;
  // Null where there is none. Throws Error.
  virtual std::unique_ptr<CopyEngine> make_copy_engine() { return nullptr; }
};

}  // namespace starling
