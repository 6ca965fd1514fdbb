// What the host side of stream-ordered operations (device/stream_host.h) asks of the runtime below it: CUDA's
// driver, or the simulator. Rules and reasons: docs/design/0007-start-as-a-kernel.md.
//
// None of these waits for another rank, allocates, or synchronizes with the device. Those that take a stream
// put one entry into it and may stand in the driver while its launch queue is full, or behind a call that
// waits there for the GPU: they are called without the host's lock. The others are called under it, and
// return at once: who polls has to hear of completions and of dead peers whatever stands in the driver.
#pragma once
#include <concepts>
#include <cstdint>

#include "device/call.h"
#include "device/daemon.h"
#include "device/gate.h"
#include "device/start.h"

namespace starling::device {

// A stream of the caller: cudaStream_t, or what the simulator makes of it.
using Stream = void*;

// Operations whose start kernel was launched and whose completion was not read: places of a ParkedRing.
inline constexpr uint32_t kStartLimit = 1024;

// What is known of the machine when the context is made.
struct StreamFacts {
  // Entries that may stand in a stream's launch queue before the runtime makes its callers wait. Below the
  // depth at which the driver would (1,021 on CUDA), with room for the daemon and for what others launch.
  uint32_t launch_limit;
  // Start kernels of which one block may stay as a gate at the same time, so that SM slots are left for the
  // daemon and for one more start kernel.
  uint32_t gate_limit;
  // Operations whose start kernel was launched and whose completion was not read: the places of a ParkedRing.
  uint32_t start_limit;
  // 1: what stands in one stream may stand before launches of another, the daemon's included (one hardware
  // queue; CUDA_DEVICE_MAX_CONNECTIONS=1). Then no stream is held unless a daemon is there already, and that
  // one stays (StreamHost::may_hold).
  uint32_t shared_queue;
  uint64_t restart_ns;  // a daemon that left work behind is launched again so long after it left
  uint64_t quit_ns;  // shared_queue, daemon_first: the host ends a residency in which nothing completed for
                     // so long
  // 1: a launch may stand behind a call of another thread that waits for a stream (a copy to pageable
  // memory): no stream is held unless a daemon is there, which stays; or unless the operation does without
  // (StreamEntry::alone), or the stream has a block of its own at hand (StreamPolicy::watches).
  uint32_t daemon_first = 0;
  AloneWords* alone = nullptr;  // daemon_first: shared with start kernels
  // How long what was left to a daemon is left alone where each of it waits for a rank that has not called it
  // (StreamHost::note_calls); 0: not at all.
  uint64_t missing_ns = 0;
  // Streams that may stand for watches at the same time, so that multiprocessors are left for all else.
  uint32_t watch_limit = 0;
  // Of these, those whose watches have so many blocks: where a daemon does not come for long, one alone moves
  // a large operation slowly. The others' have one.
  uint32_t wide_watches = 0;
  uint32_t watch_blocks = 1;
  // A daemon that was asked for has not come for so long: watches are woken (StreamHost::wakes_watches).
  uint64_t wake_ns = 0;
  uint64_t turn_ns = 0;  // a stream that stands comes to its watch within so long after it was woken
  uint64_t served_ns = 0;  // a watch that serves, and completes nothing for so long, does so in vain
  uintptr_t ambiguous = ~uintptr_t(0);  // a handle that names another stream on each thread: has none
  // Streams in which what the CPU calls begins, each with a box (device/call_host.h), zero, in the host's
  // memory.
  CallBox* calls = nullptr;
  uint32_t call_boxes = 0;
  // A call so soon after the last one's end begins in a kernel that stays for more: for so long without one
  // (0: none stays), and since it began.
  uint64_t call_row_ns = 0;
  uint64_t call_linger_ns = 0;
  uint64_t call_life_ns = 0;
};

// clang-format off
//   launch_daemon(a)         asks for one kernel of `block_count` blocks, or of one if a.guards, on the daemon's own
//                            stream, which somebody else launches soon; it runs until it leaves (device/daemon.h). Called only when
//                            daemon_resident() is false: a second one behind the first could stand before
//                            everybody's launches
//   daemon_put()             the one that was asked for last is in its stream: what comes into any stream from now on,
//                            and whoever enters the driver, comes behind it; or it never will be, and whoever
//                            completes operations knows of that
//   daemon_come()            the device has come to its stream's end before it, and begins new kernels; or it never
//                            will. Who waits for daemon_put() as well knows that it runs as soon as there is room,
//                            where nobody lets a stream stand meanwhile
//   daemon_begun()           a block of it has run: nothing keeps it out any more
//   daemon_resident()        once launched: not yet known to have ended, whatever its helpers do. False: all that
//                            it stored is visible (acquire)
//   launch_helpers(a)        likewise for the residency's other blocks, numbered from 1 on, in a stream of their own.
//                            Called only when helpers_resident() is false
//   helpers_resident()       helpers were asked for, and are not yet known to have ended
//   launch_start(s, a, n)    one start kernel on stream s for n operations, kMostTogether at most (device/start.h): the blocks
//                            of a[0], then those of a[1], and so on; *a[k] are copied
//   launch_call(s, c)        one kernel of one block on stream s (device/call.h); launch_call_later(s, c): the same,
//                            by somebody else, soon
//   launch_gate(s, g)        one kernel of one warp on stream s (device/gate.h)
//   launch_watch(s, a, n)    one kernel of n blocks of the daemon on stream s, behind a wait, which ends when *a.awaited has come to a.until
//   write_value(s, w, v)     when the stream comes there: *w := v (release of all that the stream did before)
//   wait_value(s, w, v)      the stream stands until int64(*w - v) >= 0, cyclic (acquire)
//   wait_and_write(s, w, t, v)  the same, then *t := v, which orders nothing
//   idle(s)                  all that was put into s, by anybody, has ended; true acquires what it did
//   queued(s)                entries that this runtime put into the launch queue behind s and that may not have
//                            begun: an upper bound, by marks put in now and then
//   release(w, v)            *w := v from the CPU at once, although streams wait for w and nothing can be launched:
//                            a plain store into mapped memory, never an entry of a stream
//   now()                    nanoseconds of a monotone clock
template <class D>
concept StreamDevice = requires(D d, const DaemonArguments& daemon, const StartArguments* const* starts,
                                const GateArguments& gate, const CallArguments& call, Stream stream,
                                uint64_t* word, const uint64_t* seen, uint64_t value, uint32_t count) {
  d.launch_daemon(daemon);
  { d.daemon_put() } -> std::same_as<bool>;
  { d.daemon_come() } -> std::same_as<bool>;
  { d.daemon_begun() } -> std::same_as<bool>;
  { d.daemon_resident() } -> std::same_as<bool>;
  d.launch_helpers(daemon);
  { d.helpers_resident() } -> std::same_as<bool>;
  d.launch_start(stream, starts, count);
  d.launch_call(stream, call);
  d.launch_call_later(stream, call);
  d.launch_gate(stream, gate);
  d.launch_watch(stream, daemon, count);
  d.write_value(stream, word, value);
  d.wait_value(stream, seen, value);
  d.wait_and_write(stream, seen, word, value);
  { d.idle(stream) } -> std::same_as<bool>;
  { d.queued(stream) } -> std::convertible_to<uint32_t>;
  d.release(word, value);
  { d.now() } -> std::same_as<uint64_t>;
};
// clang-format on

}  // namespace starling::device
