// What a GPU adds to a simulated rank: streams, hardware queues that they share, a launch queue that fills
// and blocks the caller, SM slots that run out, kernels that begin late, wait and write values, a device
// synchronization that waits for what was put in before it, and calls that wait for it inside of the driver.
//
//   put() ─▶ hardware queue ── head, when its stream's last entry has ended ─▶ kernel: blocks into SM slots
//            (depth: blocks)   a head that has to wait stands before           write, wait value: done here
//                              all that is behind it, of any stream
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "machine/sim/machine.h"

namespace starling::sim {

// From the host, to peers, within the GPU.
inline constexpr uint32_t kCopyEngines = 3;

struct Kernel {
  enum class Kind : uint8_t { kDaemon, kStart, kFill, kCheck, kCompute, kGate, kWatch, kCopy, kCall };
  Kind kind = Kind::kCompute;
  uint32_t blocks = 1;
  uint32_t first = 0;  // number of the first one
  uint32_t lane = 0;   // kFill, kCheck
  uint64_t index = 0;
  uint64_t ns = 0;     // kCompute, and copies
  uint32_t copy = kCopyEngines;  // by that copy engine, which serves one after the other, not in an SM slot
  std::vector<std::byte> arguments{};  // kDaemon, kStart, kGate, kWatch, kCopy, kCall: as the core knows them

  uint32_t stream = 0;
  uint32_t dispatched = 0, ended = 0;
  std::vector<uint32_t> clock;  // what its blocks know at their beginning; then, what they knew at their end
};

// A block that may be resident: its threads, and the kernel that it runs.
struct SmSlot {
  BlockGroup group;
  Kernel* kernel = nullptr;
  uint32_t block = 0;
  uint32_t running = 0;  // threads that have not ended
  uint64_t generation = 0;  // blocks begun so far
};

class Gpu {
 public:
  // Runs one thread of one block of a kernel.
  class Client {
   public:
    virtual ~Client() = default;
    virtual void run_block(SimMachine& machine, const Kernel& kernel, uint32_t slot, uint32_t thread) = 0;
    virtual void progressed() = 0;  // an entry began or ended: hosts that wait look again
  };

  // `streams` of the program; the daemon has two more, and a proxy's copies two.
  void build(World& world, const Options& options, Client& client, uint32_t rank, uint32_t first_unit,
             uint32_t streams);
  void add_fibers();
  void begin();
  uint32_t units() const { return uint32_t(slots_.size()) + 1; }

  // ---- by the host's fibers ----------------------------------------------------------------------------
  // Blocks while the launch queue is full.
  void put(uint32_t stream, const Kernel& kernel, bool ours);
  // Returns at once: a thread of the host puts it in as soon as it can. One at a time.
  void put_later(uint32_t stream, const Kernel& kernel);
  // Likewise what says that the GPU has come there. Others may put something in between the two.
  void herald_later(uint32_t stream);
  // All that was asked for has been put into the stream.
  bool is_put(uint32_t stream) const;
  // And has begun to run.
  bool begun(uint32_t stream) const;
  // The GPU has come to the last herald.
  bool heralded(uint32_t stream) const { return streams_[stream].heralds == 0; }
  void put_write(uint32_t stream, uint64_t* word, uint64_t value);
  void put_wait(uint32_t stream, const uint64_t* word, uint64_t value);
  // All that was put into it has ended; true: what it did is known to the caller.
  bool idle(uint32_t stream);
  // Entries of the runtime that have not begun in the stream's hardware queue.
  uint32_t queued(uint32_t stream) const;
  bool ended(uint32_t stream) const { return streams_[stream].ended == streams_[stream].put; }
  // Returns when all that was put in before has ended.
  void synchronize();
  // The same inside of the driver: nobody puts anything in meanwhile, the daemon included. Of one stream, as
  // a copy to pageable memory does; of all, as the loading of a library's kernels does.
  void wait_in_driver(std::optional<uint32_t> stream);
  // For calls that put nothing in, and need the driver all the same: until it is free.
  void wait_for_driver();

  uint32_t daemon_stream() const { return uint32_t(streams_.size()) - kCopyEngines - 1; }
  uint32_t helper_stream() const { return uint32_t(streams_.size()) - 1; }
  uint32_t copy_stream(uint32_t queue) const { return daemon_stream() + 1 + queue; }
  // What stands in one stream may stand before the daemon, or before other streams.
  static bool shares_queues(const Options& options, uint32_t streams) {
    return options.hardware_queues <= streams;
  }
  void end();

  std::string state() const;
  SmSlot& slot(uint32_t index) { return slots_[index]; }

 private:
  enum class EntryKind : uint8_t { kKernel, kWrite, kWait, kHerald };
  struct Entry {
    EntryKind kind;
    bool ours;
    uint32_t stream;
    std::unique_ptr<Kernel> kernel;
    uint64_t* word;
    uint64_t value;
    uint64_t begins_at;  // 0: not drawn yet
    std::vector<uint32_t> clock;  // what the host knew
    uint64_t number = 0;  // in the order in which they were put in
  };
  struct SimStream {
    uint64_t put = 0, ended = 0;  // entries
    uint32_t heralds = 0;  // asked for, and not come to
    std::vector<uint32_t> clock;  // what is known behind its last entry
    bool busy = false;  // an entry has begun and not ended
  };
  struct CopyEngine {
    std::deque<std::unique_ptr<Kernel>> copies;
    uint64_t ends_at = 0;  // 0: none is under way
  };
  struct Thread {
    Gpu* gpu;
    uint32_t slot, thread, fiber;
  };

  static void run_front(void* gpu) { static_cast<Gpu*>(gpu)->front(); }
  static void run_launcher(void* gpu) { static_cast<Gpu*>(gpu)->launcher(); }
  static void run_thread(void* thread) {
    auto* t = static_cast<Thread*>(thread);
    t->gpu->slot_thread(*t);
  }

  std::deque<Entry>& queue_of(uint32_t stream) { return queues_[queue_index(stream)]; }
  uint32_t queue_index(uint32_t stream) const { return stream % uint32_t(queues_.size()); }
  Entry known(uint32_t stream, Entry entry);
  void add(Entry entry);
  void progressed();
  void launcher();
  bool driver_takes(uint32_t stream) const;
  bool has_room(uint32_t stream);
  void wait_for_room(uint32_t stream);
  void wait_for_entries(uint32_t from_stream, uint32_t to_stream);

  void front();
  bool advance(std::deque<Entry>& queue);
  bool is_kept_out(const Entry& entry) const;
  bool value_is_there(const Entry& entry, SimStream& stream);
  void write_value(const Entry& entry, SimStream& stream);
  bool dispatch();
  bool serve_copies(CopyEngine& engine);
  Kernel* next_to_dispatch();
  void slot_thread(Thread& thread);
  void thread_ended(Thread& thread);
  void kernel_ended(Kernel* kernel);
  void join(std::vector<uint32_t>& to, const uint32_t* from);
  void learn(const std::vector<uint32_t>& clock);

  World* w_ = nullptr;
  const Options* o_ = nullptr;
  Client* client_ = nullptr;
  uint32_t rank_ = 0, first_unit_ = 0, front_fiber_ = 0, launcher_fiber_ = 0;
  std::vector<SimStream> streams_;
  std::vector<std::deque<Entry>> queues_;
  uint64_t entries_ = 0;
  std::deque<Entry> later_;
  // Begun, not ended; in the order in which they began.
  std::deque<std::unique_ptr<Kernel>> resident_;
  CopyEngine engines_[kCopyEngines];
  std::vector<SmSlot> slots_;
  std::vector<Thread> threads_;
  // By a call that waits for the GPU, or for a stream: then copies may be put in (GPU_PROBE.md).
  bool driver_taken_ = false, by_stream_ = false;
  bool ending_ = false;
};

}  // namespace starling::sim
