// What can be injected into a simulated execution. The seed draws them (program.cc); each can be set.
#pragma once
#include <cstdint>

namespace starling::sim {

inline constexpr uint32_t kAlways = 65536;  // chances are in 65536

struct Options {
  // The machine.
  uint32_t blocks = 1;
  uint32_t threads = 1;             // per block
  uint32_t mean_slice = 8;          // operations that a fiber runs before others may
  uint32_t op_ns = 20;              // time of one slice, before slowness
  uint32_t slow_chance = 0;         // per fiber: that it is slow
  uint32_t slow_factor = 1;         // by how much at most
  uint32_t stall_chance = 0;        // per slice: that the fiber stands still
  uint64_t stall_ns = 0;            // for so long at most
  uint32_t late_store_chance = 0;   // per store: that others see it late
  uint64_t late_store_ns = 0;       // by so much at most
  uint32_t late_data_chance = 0;    // per piece of data: that others see it only with the next release
  uint32_t ordering_checks = 1;     // happens-before and races on data
  uint32_t cell_bytes = 16;         // of data, that are checked as one; larger is faster and sees less
  uint32_t idle_sleeps =
      1;         // an idle block looks again when something changed; 0: all the time, as a GPU does

  // As on the CPU machine (wire/doorbell.h): idle blocks and pollers hear of nothing but the bell. Else they
  // look again when something changed.
  uint32_t bells = 0;
  uint64_t sleep_ns = 0;  // bells: after so long they look all the same

  // What a GPU adds (gpu.h); for programs with streams.
  uint32_t hardware_queues = 8;  // shared by all streams of a rank; no more than streams: the daemon's too
  uint32_t queue_depth = 64;  // entries that a queue takes before whoever adds one is blocked
  uint32_t launch_limit = 48;  // of them, that the runtime uses (device/stream_device.h, as the next ones)
  uint32_t gate_limit = 2;
  uint32_t start_limit = 64;
  uint32_t gates = 1;  // who holds a stream: a gate, or a wait value
  uint32_t doorbells = 0;  // no start kernels: marks
  uint32_t sm_slots = 6;  // blocks that can be resident
  uint64_t begin_delay_ns = 500;  // a kernel begins so late after its turn, at most
  uint32_t daemon_first = 0;  // StreamFacts::daemon_first: no stream is held but where a daemon is, or alone
  uint32_t guards = 0;  // StreamPolicy::guards: a daemon that stays begins as one block
  uint32_t watch_limit = 0;  // StreamFacts::watch_limit; 0: no StreamPolicy::watches
  uint32_t wide_watches = 0;  // StreamFacts, as the next two
  uint32_t watch_blocks = 1;
  uint64_t wake_ns = 0;
  uint64_t turn_ns = 20'000;
  uint64_t served_ns = 2'000'000;
  uint32_t daemon_kept_out = 0;  // behind streams that stand with watches
  uint32_t rendezvous = 0;  // StreamPolicy::rendezvous, for all that holds no stream
  uint32_t before_streams_chance = 0;  // per lane: that its first operations, or all, are submitted from the
                                       // CPU; kAlways: all of all lanes
  // What is submitted from the CPU begins as a kernel where nothing but such is under way: StreamFacts, as
  // the next three. 0: all goes to the daemon.
  uint32_t call_boxes = 0;
  uint64_t call_row_ns = 0;
  uint64_t call_linger_ns = 0;
  uint64_t call_life_ns = 0;
  uint64_t call_wait_ns = 0;  // three callers in four wait for their call, for so long at most
  uint32_t driver_connects = 0;  // a lane is connected by calls of the driver: what one must not do

  // Hosts, and what is between them (proxy.h).
  uint32_t hosts = 1;  // ranks are dealt out to them
  uint64_t carry_ns = 20'000;  // a transfer is under way so long, at most
  uint32_t path_break_chance = 0;  // per transfer: that the path breaks, with all that is under way on it ...
  uint64_t path_break_ns = 0;  // ... and the next one carries so late, at most
  uint32_t nap_chance = 0;  // per look of a proxy in vain: that it looks again only ...
  uint64_t nap_ns = 0;  // ... after so long, at most
  uint32_t proxies_hear = 1;  // of operations that are under way; 0: what one must not do

  // The daemon's parameters (wire/daemon.h, Scheduling), in ns.
  uint64_t initial_budget = 4001;
  uint64_t minimum_budget = 501;
  uint64_t maximum_budget = 20001;
  uint64_t quit_period = 30011;
  uint64_t residency_limit = 1000003;
  uint32_t success_factor = 4;
  uint32_t position_shift = 1;
  uint32_t fetch_batch = 8;
  uint32_t priority_order = 0;
  uint32_t in_turn = 0;  // 1: tasks are waited on in turn, as DFCCL does
  uint32_t only_heard = 0;  // device::Budget::only_heard, of start kernels
  uint32_t unbounded = 0;  // yielding switched off: for showing what happens then

  // Interference.
  uint32_t forced_park_chance = 0;  // per look at a budget: that it has ended
  uint32_t forced_quit_chance = 0;  // per look at the quit period or residency limit: that it has ended
  uint32_t drain_chance = 0;  // per round of the host's poller: that it raises drain
  uint64_t launch_delay_ns = 2000;  // until a block of a launched kernel begins, at most
  uint64_t restart_ns = 3000;  // a host launches again so long after a quit that left work
  uint64_t missing_ns = 0;  // device::StreamFacts::missing_ns
  uint64_t connect_delay_ns = 0;  // a lane finds a peer's region so late, at most
  uint32_t opens = 0;  // pulled buffers are registered, and peers' hosts open them ...
  uint64_t open_delay_ns = 0;  // ... so late, at most
  uint32_t bounces = 0;  // ... but for so many of four, which they cannot open
  uint32_t late_rank_chance = 0;  // per rank: that its application starts late
  uint64_t late_rank_ns = 0;  // by so much at most
  uint32_t callback_submits =
      0;  // chance that a lane's next operation is submitted by the last one's callback
  uint32_t poller_away_chance = 0;  // per round of the host's poller: that it looks again only ...
  uint64_t poller_away_ns = 0;  // ... after so long, at most
  uint64_t poll_ns = 0;  // a bounded wait looks at least so often, as machines do; 0: when something changed
  uint32_t fence_chance = 0;  // per operation: that it must wait for all blocks to finish the lane's last one
  int32_t dying_rank = -1;  // it stops for ever ...
  uint64_t dying_ns = 0;  // ... at this time
  uint64_t timeout_ns = 0;  // operations older than this break their lane; 0: never
  int32_t aborting_rank = -1;  // it breaks all its lanes of copies ...
  uint64_t aborting_ns = 0;  // ... at this time

  // Memory.
  uint32_t submission_capacity = 64;
  uint32_t completion_capacity = 16;
  uint32_t completion_kind = 1;  // device::CompletionQueueKind
  uint32_t private_slots = 2;
  uint32_t slot_bytes = 4096;
  uint32_t packet_bytes = 128;  // data of a packet message
  uint32_t pool_slots = 8;  // of a rank
  uint32_t plan_room = 4096;  // in a block's fast memory, for each of its plans
  uint64_t first_sequence = 0;  // of every lane
  uint64_t first_message = 0;  // of every connector
  uint64_t first_position = 0;  // of the queues; a multiple of 65536

  // When to give up: nothing that anybody does is progress for so long.
  uint64_t progress_bound_ns = 50'000'000;
  uint64_t step_bound = 400'000'000;
  // For exploration: the host is a few steps, and nothing polls (explore.h).
  uint32_t core_only = 0;
  uint32_t trace_capacity = 0;  // records a block keeps for the story; no effect on the execution

  uint32_t host_of(uint32_t rank) const { return rank % hosts; }
};

}  // namespace starling::sim
