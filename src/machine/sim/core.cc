// The core as the simulator calls it.
// long: a planted bug's copy of the core is made of this file and src/device (tests/sim/make_mutants.py).
#include "machine/sim/core.h"

#include <cstring>

#include "device/bind.h"
#include "device/carrying.h"
#include "device/copy_host.h"
#include "device/daemon_block.h"
#include "device/start.h"
#include "device/stream_host.h"
#include "device/submission_queue.h"
#include "device/withdrawal.h"
#include "machine/sim/gpu.h"

namespace starling::sim {

static_assert(device::Machine<SimMachine>);

// Found by argument-dependent lookup, and better than the template: every move of data passes the shadow
// (copy_slice() of machine/sim/machine.h too).
inline void combine(SimMachine& m, const device::Combine& c) {
  Move move;
  for (uint32_t s = 0; s < c.source_count; ++s) move.sources[s] = c.sources[s];
  for (uint32_t d = 0; d < c.destination_count; ++d) move.destinations[d] = c.destinations[d];
  move.bytes = c.bytes;
  move.source_count = c.source_count;
  move.destination_count = c.destination_count;
  move.scaled_source = c.scaled_source;
  move.divisor = c.divisor;
  move.factor = c.factor;
  move.data_type = c.data_type;
  move.reduce_op = c.reduce_op;
  m.move(move);
}

// The arithmetic of packets likewise; their words go through the machine one by one.
inline void reduce_unit(SimMachine& m, const device::Combine& c, const Pack* in, Pack& out) {
  Move move{};
  move.source_count = c.source_count;
  move.scaled_source = c.scaled_source;
  move.divisor = c.divisor;
  move.factor = c.factor;
  move.data_type = c.data_type;
  move.reduce_op = c.reduce_op;
  m.reduce_unit(move, in, &out);
}

}  // namespace starling::sim

// In the core's own namespace: each planted bug's core has its own (tests/sim/make_mutants.py).
namespace starling::device {

using namespace sim;

// Behind those that the kernel has already.
template <class Arguments>
void keep(Kernel& kernel, const Arguments& arguments) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&arguments);
  kernel.arguments.insert(kernel.arguments.end(), bytes, bytes + sizeof arguments);
}

// device::StreamDevice over a Gpu. A device::Stream is the stream's number, one more.
class GpuDevice {
 public:
  GpuDevice(World& world, Gpu& gpu) : w_(world), g_(gpu) {}

  static device::Stream handle_of(uint32_t stream) {
    return reinterpret_cast<device::Stream>(uintptr_t(stream) + 1);
  }

  void launch_daemon(const device::DaemonArguments& arguments) {
    if (daemon_resident()) w_.scheduler.fail("a daemon is launched behind another one");
    g_.herald_later(g_.daemon_stream());
    put_daemon(g_.daemon_stream(), arguments, arguments.guards ? 1 : arguments.daemon->block_count);
  }
  bool daemon_put() { return g_.is_put(g_.daemon_stream()); }
  bool daemon_come() { return g_.heralded(g_.daemon_stream()); }
  bool daemon_begun() const { return g_.begun(g_.daemon_stream()); }
  bool daemon_resident() { return !daemon_put() || !g_.idle(g_.daemon_stream()); }
  void launch_helpers(const device::DaemonArguments& arguments) {
    if (helpers_resident()) w_.scheduler.fail("helpers are launched behind others");
    device::DaemonArguments helping = arguments;
    helping.first = 1;
    put_daemon(g_.helper_stream(), helping, arguments.daemon->block_count - 1);
  }
  bool helpers_resident() { return !g_.is_put(g_.helper_stream()) || !g_.idle(g_.helper_stream()); }
  void launch_start(device::Stream stream, const device::StartArguments* const* starts, uint32_t count) {
    Kernel kernel;
    kernel.kind = Kernel::Kind::kStart;
    kernel.blocks = 0;
    for (uint32_t k = 0; k < count; ++k) {
      kernel.blocks += starts[k]->operation.block_count;
      keep(kernel, *starts[k]);
    }
    put(number_of(stream), kernel);
  }
  void launch_call(device::Stream stream, const device::CallArguments& call) {
    put(number_of(stream), call_kernel(call));
  }
  void launch_call_later(device::Stream stream, const device::CallArguments& call) {
    g_.put_later(number_of(stream), call_kernel(call));
  }
  void launch_gate(device::Stream stream, const device::GateArguments& gate) {
    Kernel kernel;
    kernel.kind = Kernel::Kind::kGate;
    keep(kernel, gate);
    put(number_of(stream), kernel);
  }
  void launch_watch(device::Stream stream, const device::DaemonArguments& arguments, uint32_t blocks) {
    Kernel kernel;
    kernel.kind = Kernel::Kind::kWatch;
    kernel.blocks = blocks;
    keep(kernel, arguments);
    put(number_of(stream), kernel);
  }
  void write_value(device::Stream stream, uint64_t* word, uint64_t value) {
    g_.put_write(number_of(stream), word, value);
  }
  void wait_value(device::Stream stream, const uint64_t* word, uint64_t value) {
    g_.put_wait(number_of(stream), word, value);
  }
  void wait_and_write(device::Stream stream, const uint64_t* word, uint64_t* then, uint64_t value) {
    g_.put_wait(number_of(stream), word, value);
    g_.put_write(number_of(stream), then, value);
  }
  bool idle(device::Stream stream) { return g_.idle(number_of(stream)); }
  uint32_t queued(device::Stream stream) { return g_.queued(number_of(stream)); }
  void release(uint64_t* word, uint64_t value) { SimMachine(w_, nullptr, 0, 0).store_release(word, value); }
  uint64_t now() { return w_.scheduler.now(); }

  // What `capture` puts into a stream: one kernel, which is not put in.
  template <class Capture>
  Kernel captured(Capture&& capture) {
    Kernel kernel;
    captured_ = &kernel;
    capture();
    captured_ = nullptr;
    return kernel;
  }

 private:
  static uint32_t number_of(device::Stream stream) { return uint32_t(uintptr_t(stream) - 1); }
  static Kernel call_kernel(const device::CallArguments& call) {
    Kernel kernel;
    kernel.kind = Kernel::Kind::kCall;
    keep(kernel, call);
    return kernel;
  }
  void put_daemon(uint32_t stream, const device::DaemonArguments& arguments, uint32_t blocks) {
    Kernel kernel;
    kernel.kind = Kernel::Kind::kDaemon;
    kernel.blocks = blocks;
    kernel.first = arguments.first;
    keep(kernel, arguments);
    g_.put_later(stream, kernel);
  }
  void put(uint32_t stream, const Kernel& kernel) {
    if (captured_ != nullptr)
      *captured_ = kernel;
    else
      g_.put(stream, kernel, true);
  }

  World& w_;
  Gpu& g_;
  Kernel* captured_ = nullptr;
};
static_assert(device::StreamDevice<GpuDevice>);

class GpuDriver final : public StreamDriver {
 public:
  explicit GpuDriver(const StreamSetup& s)
      : s_(s),
        machine_(*s.world, nullptr, 0, 0),
        device_(*s.world, *s.gpu),
        host_(machine_, device_, {s.options->launch_limit, s.options->gate_limit,
                                  s.options->start_limit,  s.shared_queue,
                                  s.options->restart_ns,   s.options->quit_period,
                                  s.options->daemon_first, s.alone,
                                  s.options->missing_ns,   s.options->watch_limit,
                                  s.options->wide_watches, s.options->watch_blocks,
                                  s.options->wake_ns,      s.options->turn_ns,
                                  s.options->served_ns,    ~uintptr_t(0),
                                  make_calls(*s.world),    s.options->call_boxes,
                                  s.options->call_row_ns,  s.options->call_linger_ns,
                                  s.options->call_life_ns},
              {s.options->gates != 0, s.options->doorbells != 0, s.options->guards != 0,
               s.options->rendezvous != 0, s.options->watch_limit != 0},
              {s.daemon, completions(), kind(), 0, s.pool, 0, 0, 0, s.options->watch_limit != 0},
              {&s.daemon->submissions, s.daemon->block_count, s.daemon->work,
               s.options->watch_limit != 0 ? &s.daemon->parts->dismissed : &s.daemon->drain}) {}

  bool may_enter(const StreamRequest& request, const StreamRequest* first) override {
    device::StreamCall call = call_of(request);
    device::StreamCall first_call{};
    if (first != nullptr) first_call = call_of(*first);
    if (first != nullptr) call.first = &first_call;
    return host_.may_enter(call);
  }
  bool may_hold(const StreamTicket* ticket, uint32_t stream) override {
    return ticket == nullptr ? host_.may_hold()
                             : host_.may_hold(entry_of(*ticket), GpuDevice::handle_of(stream), true);
  }
  bool may_stand() override { return host_.may_stand(); }
  StreamTicket enter(const StreamRequest& request) override {
    return ticket_of(host_.enter(call_of(request)));
  }
  uint32_t hold(StreamTicket& ticket, uint32_t stream) override {
    device::StreamEntry entry = entry_of(ticket);
    const uint32_t watch_blocks = host_.hold(entry, GpuDevice::handle_of(stream), true);
    ticket = ticket_of(entry);
    return watch_blocks;
  }
  void completed(const StreamTicket& ticket) override { host_.completed(entry_of(ticket)); }
  bool asks_for_calls() override { return host_.asks_for_calls(); }
  void note_calls(bool missing) override { host_.note_calls(missing); }
  void note_called(bool under_way) override { host_.note_called(under_way); }
  bool wakes_watches() override { return host_.wakes_watches(); }
  void turn_watches(const std::vector<WatchedTicket>& all) override {
    std::vector<device::StreamEntry> entries;
    for (const WatchedTicket& one : all) entries.push_back(entry_of(*one.ticket));
    device::WatchLook look;
    for (size_t k = 0; k < all.size(); ++k)
      look.add(machine_, {&entries[k], all[k].handover, all[k].sequence});
    host_.turn_watches(look, host_.wakes_watches());
    for (size_t k = 0; k < all.size(); ++k) *all[k].ticket = ticket_of(entries[k]);
  }
  void poll() override { host_.poll(); }
  void drain() override { host_.drain(); }
  void poison(const Handover& handover, uint64_t newest) override { host_.poison(handover, newest); }
  uint64_t next_poll() override { return host_.next_poll(); }
  bool settled() override { return host_.settled(); }
  bool resident() const override { return host_.resident(); }
  uint64_t launches() const override { return host_.launches(); }
  void met(StreamTicket& ticket) override {
    device::StreamEntry entry = entry_of(ticket);
    host_.met(entry);
    ticket = ticket_of(entry);
  }
  bool quiet() const override { return host_.quiet(); }
  void enqueue(uint32_t stream, const std::vector<StreamEntering>& each) override {
    std::vector<device::StartArguments> starts = starts_of(each);
    std::vector<device::Entering> entering = entering_of(each, starts);
    host_.enqueue(GpuDevice::handle_of(stream), entering.data(), uint32_t(entering.size()));
  }
  void wait_for(uint32_t stream, const Handover& handover, uint64_t sequence,
                uint32_t watch_blocks) override {
    host_.wait_for(GpuDevice::handle_of(stream), handover, sequence, watch_blocks);
  }
  bool take_gate() override { return host_.take_gate(); }
  void note_replays(bool under_way) override { host_.note_replays(under_way); }
  Kernel captured_start(const std::vector<StreamEntering>& each) override {
    std::vector<device::StartArguments> starts = starts_of(each);
    std::vector<device::Entering> entering = entering_of(each, starts);
    return device_.captured(
        [&] { host_.capture(GpuDevice::handle_of(0), entering.data(), uint32_t(entering.size())); });
  }
  Kernel captured_gate(const Handover& handover, const uint64_t* captured) override {
    return device_.captured([&] { host_.capture_wait(GpuDevice::handle_of(0), handover, captured); });
  }

 private:
  std::vector<device::StartArguments> starts_of(const std::vector<StreamEntering>& each) const {
    std::vector<device::StartArguments> starts;
    for (const StreamEntering& e : each) {
      device::StartArguments& start =
          starts.emplace_back(start_of(*e.lane, *e.handover, e.operation, e.priority));
      start.captured = e.captured;
      if (StreamPath(e.ticket.path) == StreamPath::kKernel)
        ProgramBinder(*e.operation.plan, e.operation).bind(start.bound);
    }
    return starts;
  }
  static std::vector<device::Entering> entering_of(const std::vector<StreamEntering>& each,
                                                   std::vector<device::StartArguments>& starts) {
    std::vector<device::Entering> entering;
    for (size_t k = 0; k < each.size(); ++k)
      entering.push_back(
          {entry_of(each[k].ticket), each[k].handover, each[k].arrival, &starts[k], each[k].order});
    return entering;
  }
  device::StartArguments start_of(Lane& lane, const Handover& handover, const Operation& operation,
                                  int16_t priority) const {
    const Options& o = *s_.options;
    return {
        operation,
        lane,
        handover,
        &lane,
        s_.daemon,
        priority,
        0,
        {o.initial_budget, o.maximum_budget, o.success_factor, uint16_t(o.unbounded), uint16_t(o.only_heard)},
        0,
        nullptr,
        o.priority_order ? s_.daemon->blocks : nullptr,
        nullptr,
        operation.plan == nullptr ? 0 : operation.plan->total_bytes};
  }
  static device::StreamCall call_of(const StreamRequest& r) {
    return {GpuDevice::handle_of(r.stream),
            r.held,
            r.connected,
            r.room,
            r.follows,
            r.copies,
            r.rendezvous,
            r.before,
            r.lane,
            nullptr,
            r.box,
            r.unit_bytes,
            0,
            r.joins};
  }
  static device::StreamEntry entry_of(const StreamTicket& t) {
    return {device::StreamPath(t.path),
            t.gate,
            t.waits,
            t.follows,
            t.alone,
            t.holds,
            t.patience,
            t.in_row,
            t.met,
            t.woken,
            t.put,
            t.came,
            t.turns,
            t.stands,
            t.watches,
            t.box,
            device::CallWay(t.call)};
  }
  static StreamTicket ticket_of(const device::StreamEntry& e) {
    return {uint8_t(e.path), e.gate,   e.waits,   e.follows, e.alone,        e.holds,
            e.patience,      e.in_row, e.met,     e.woken,   e.put,          e.came,
            e.turns,         e.stands, e.watches, e.box,     uint8_t(e.call)};
  }
  CallBox* make_calls(World& world) const {
    const uint32_t boxes = s_.options->call_boxes;
    if (boxes == 0) return nullptr;
    CallBox* const calls = world.memory.region().make<CallBox>(boxes);
    // By whoever has the block then.
    for (uint32_t b = 0; b < boxes; ++b) world.memory.allow_many_writers(&calls[b].left);
    return calls;
  }
  device::CompletionMemory* completions() const {
    return static_cast<device::CompletionMemory*>(s_.completions);
  }
  device::CompletionQueueKind kind() const {
    return device::CompletionQueueKind(s_.options->completion_kind);
  }

  StreamSetup s_;
  SimMachine machine_;
  GpuDevice device_;
  device::StreamHost<SimMachine, GpuDevice> host_;
};

// What device::CopyHost asks of an engine: the GPU's streams for copies, with a word behind each copy.
class GpuCopies {
 public:
  GpuCopies(SimMachine& machine, const CopySetup& setup) : m_(machine), g_(*setup.gpu) {
    for (uint32_t q = 0; q < kCopyQueues; ++q)
      queues_[q] = {g_.copy_stream(q), setup.world->memory.region().make<uint64_t>(), 0};
  }

  uint64_t copy(const CopySend& send) {
    Queue& queue = queues_[uint32_t(send.queue())];
    std::byte* to = send.to;
    // The offer's fields are there: its word was acquired.
    if (send.offer != nullptr)
      to = reinterpret_cast<std::byte*>(m_.load_relaxed(&send.offer->address)) + send.piece.offset;
    Kernel kernel;
    kernel.kind = Kernel::Kind::kCopy;
    kernel.copy = 1 + uint32_t(send.queue());
    kernel.ns = 1 + send.bytes / 8;
    const CopyArguments arguments{to, send.from, send.bytes};
    keep(kernel, arguments);
    g_.put(queue.stream, kernel, true);
    g_.put_write(queue.stream, queue.ended, ++queue.given);
    return queue.given;
  }
  uint64_t last(CopyQueue queue) const { return queues_[uint32_t(queue)].given; }
  uint64_t completed(CopyQueue queue) { return m_.load_acquire(queues_[uint32_t(queue)].ended); }

 private:
  struct Queue {
    uint32_t stream;
    uint64_t* ended;
    uint64_t given;
  };
  SimMachine& m_;
  Gpu& g_;
  Queue queues_[kCopyQueues];
};

class GpuCopyDriver final : public CopyDriver {
 public:
  explicit GpuCopyDriver(const CopySetup& setup)
      : machine_(*setup.world, nullptr, 0, 0), engine_(machine_, setup), host_(machine_, engine_) {}

  void add(const CopyWork& work) override {
    CopyJob job{nullptr, work.sequence, work.fault, work.mark, work.done, {}, {}};
    for (const CopyPart& part : work.sends)
      job.sends.push_back({part.offer,
                           nullptr,
                           part.from,
                           part.to,
                           part.bytes,
                           {part.offset, part.piece, part.pieces},
                           part.passes_on});
    for (const CopyPart& part : work.receives) job.receives.push_back({part.offer, part.to, part.bytes, 0});
    jobs_.push_back({std::move(job), work.lane, work.index});
  }

  bool step(const Finished& finished) override {
    bool any = false;
    std::erase_if(jobs_, [&](Job& job) {
      const auto step = host_.step(job.job);
      any |= step != Host::Step::kNothing;
      if (step == Host::Step::kFinished) finished(job.lane, job.index);
      return step == Host::Step::kFinished;
    });
    return any;
  }

 private:
  using Host = CopyHost<SimMachine, GpuCopies>;
  struct Job {
    CopyJob job;
    SimLane* lane;
    uint64_t index;
  };
  SimMachine machine_;
  GpuCopies engine_;
  Host host_;
  std::vector<Job> jobs_;
};

inline void run_start_kernel(SimMachine& m, const std::byte* bytes, TraceRing* traces, void* state) {
  const auto* each = reinterpret_cast<const device::StartArguments*>(bytes);
  uint32_t block = m.block_index();
  device::StartArguments arguments = each[device::operation_of_block(each, block)];
  arguments.trace = traces;
  m.become(block);
  device::run_start(m, arguments, *static_cast<device::StartState*>(state));
}

inline void run_call_kernel(SimMachine& m, const std::byte* bytes, void* state) {
  const auto& arguments = *reinterpret_cast<const device::CallArguments*>(bytes);
  device::run_calls(m, arguments, *static_cast<device::CallState*>(state));
}

inline void run_gate_kernel(SimMachine& m, const std::byte* bytes) {
  device::GateArguments gate;
  std::memcpy(&gate, bytes, sizeof gate);
  if (m.thread_index() == 0) hold_captured(m, gate);
}

}  // namespace starling::device

namespace starling::sim {

const Core& shipped_core() {
  static constexpr Core kCore{
      "shipped",
      sizeof(device::BlockState),
      [](SimMachine& m, const Residency& r) {
        const device::DaemonArguments arguments{
            r.daemon, static_cast<device::CompletionMemory*>(r.completions),
            device::CompletionQueueKind(r.completion_kind), r.launch, r.pool_base};
        return device::run_daemon(m, arguments, *static_cast<device::BlockState*>(r.block_state));
      },
      [](SimMachine& m, SubmissionRing& ring, uint32_t block_count, const Submission& submission) {
        return device::push_submission(m, ring, block_count, submission);
      },
      [](SimMachine& m, uint32_t kind, void* completions, uint64_t& token) {
        return device::pop(m, device::CompletionQueueKind(kind),
                           *static_cast<device::CompletionMemory*>(completions), token);
      },
      [](SimMachine& m, uint64_t on_device, uint64_t* out) { return device::withdraw(m, on_device, out); },
      [](SimMachine& m, const uint64_t* out) { return device::has_withdrawn(m, out); },
      [](SimMachine& m, const Handover& handover, uint64_t sequence) {
        return device::was_told(m, handover, sequence);
      },
      std::max(sizeof(device::StartState), sizeof(device::CallState)),
      [](const StreamSetup& setup) -> std::unique_ptr<StreamDriver> {
        return std::make_unique<device::GpuDriver>(setup);
      },
      [](const CopySetup& setup) -> std::unique_ptr<CopyDriver> {
        return std::make_unique<device::GpuCopyDriver>(setup);
      },
      [](SimMachine& m, const std::byte* bytes, void* block_state) {
        device::DaemonArguments arguments;
        std::memcpy(static_cast<void*>(&arguments), bytes, sizeof arguments);
        return device::run_daemon(m, arguments, *static_cast<device::BlockState*>(block_state));
      },
      &device::run_start_kernel,
      &device::run_call_kernel,
      &device::run_gate_kernel,
      &device::look_at_departures<SimMachine>,
      &device::take_message,
      &device::take_grants,
      &device::deliver_message<SimMachine>,
      &device::deliver_grants<SimMachine>};
  return kCore;
}

}  // namespace starling::sim
