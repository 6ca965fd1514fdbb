// CUDA streams through c10's interface for all devices, so that one source builds against a torch with and
// without CUDA.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <starling/starling.h>

namespace starling::torch_adapter {

c10::Stream current_stream(c10::Device device);
// The cudaStream_t.
void* native_handle(const c10::Stream& stream);
// A cudaStream_t that torch did not make.
c10::Stream external_stream(c10::Device device, void* handle);
// Blocks the calling thread until all that is in the stream has ended.
void synchronize_stream(const c10::Stream& stream);

// Makes a device the calling thread's, and the former one again unless that has no context: on a thread that
// never chose one it is GPU 0, which is another rank's (machine/cuda/device_guard.h).
class CurrentDevice {
 public:
  explicit CurrentDevice(c10::Device device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  c10::Device before_;
};

// The same with a stream, the current one of its device.
class CurrentStream {
 public:
  explicit CurrentStream(const c10::Stream& stream);
  ~CurrentStream();

 private:
  CurrentDevice device_;
  c10::Stream before_;
};

// An event for threads that may never have chosen a device. As c10's own are recorded, waited for and end,
// they make the former device current again whether it has a context or not: a rank's threads would make one
// on GPU 0, with all kernels of the process.
class DeviceEvent {
 public:
  explicit DeviceEvent(c10::Device device) : device_(device), event_(c10::DeviceType::CUDA) {}
  ~DeviceEvent();
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

  void record(const c10::Stream& stream);
  void block(const c10::Stream& stream);  // what comes there next waits for it
  bool query() const;
  void order(const c10::Stream& first, const c10::Stream& then);  // record() and block()

 private:
  const c10::Device device_;
  std::optional<c10::Event> event_;
};

// Lets one stream wait for what is in another now. Any thread.
class StreamOrder {
 public:
  explicit StreamOrder(c10::Device device) : event_(device) {}
  void after(const c10::Stream& then, const c10::Stream& first);

 private:
  std::mutex mutex_;
  DeviceEvent event_;
};

// Those on which operations start are of high priority, so that their blocks find room beside computation.
// Sends and receives have their own: a send that waits for its receiver must not stand before the receive
// that the receiver waits for.
struct OperationStreams {
  const c10::Stream collectives;
  const c10::Stream sends;
  const c10::Stream receives;
  const c10::Stream futures;  // stands for operations of the default lane whose futures were asked for late

  OperationStreams(starling_context* context, c10::Device device);
  const c10::Stream& of(starling_collective kind) const;
};

// For groups whose asynchronous operations hold streams (the option hold_streams). None may wait for another
// that it need not wait for anyway, or orders that differ from rank to rank would hang. So collectives of the
// default lane, which are ordered, hold the one in which they begin. All others begin where they always do,
// hold nothing there, and have one stream stand for all of them.
struct HoldingStreams {
  const c10::Stream stands;

  HoldingStreams(starling_context* context, c10::Device device);
};

// What a group has on one GPU beside its communicator. Its streams live as long as the context.
struct GroupStreams {
  starling_context* const context;
  const c10::Device device;
  const OperationStreams eager;
  const OperationStreams captured;  // branches of the graph that is being captured
  const c10::Stream in_order;  // collectives of the default lane, which all ranks call in one order
  const std::optional<HoldingStreams> holding;  // none: what is asynchronous holds no stream
  StreamOrder order{device};

  // Runs what a stream of the program stands for: one a stream, always the same. None: there are too many.
  std::optional<c10::Stream> companion(void* stream);

  // An operation is about to begin in `in_order`: its number, from 1 on. Before anything is put there for it.
  std::uint64_t begin_in_order() { return ++begun_in_order_; }
  // Has a stream stand for what began with this number, 0: elsewhere; `stand` records an event behind that.
  // For the newest that is the stream in which it began: where two stand, each kernel of the program takes 1
  // us more (docs/GPU_PROBE.md). What comes there later is ordered behind it anyway; but where a later one
  // has begun already, its future would wait for that. False: the event may stand behind what the operation
  // need not wait for, or there is none: the future is complete when the operation is. Never waits for
  // another thread that is in here, whose caller may have to wait for its GPU.
  bool have_stand(std::uint64_t number, const std::function<void(const c10::Stream&)>& stand);

  GroupStreams(starling_context* of_context, c10::Device of_device, bool holds);
  // What is put into the stream is captured into a graph.
  bool captures(const c10::Stream& stream) const;

 private:
  std::atomic<std::uint64_t> begun_in_order_ = 0;
  std::mutex futures_mutex_;
  std::uint64_t newest_late_ = 0;  // number of the newest for which `futures` stands
  std::mutex companions_mutex_;
  std::map<void*, c10::Stream> companions_;
  std::optional<c10::Stream> spare_;  // so that a program's first one is made when the group is
};

}  // namespace starling::torch_adapter
