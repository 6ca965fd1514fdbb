#include "machine/cuda/stream_captures.h"

#include <string>
#include <utility>

#include "machine/cuda/device_guard.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/error.h"

namespace starling::cuda {
namespace {

using Dropped = std::shared_ptr<std::atomic<bool>>;

// By a thread of the driver, which may not call CUDA. Release: all that replays did came before; pairs with
// the acquire of who takes the lane apart.
void CUDART_CB drop(void* user) {
  const std::unique_ptr<Dropped> dropped(static_cast<Dropped*>(user));
  (*dropped)->store(true, std::memory_order_release);
}

[[noreturn]] void refuse(CUresult result, const char* what) {
  throw Error(Code::system, std::string(what) + ": the driver says " + std::to_string(int(result)),
              "capture again, and look at the error of the call before");
}

}  // namespace

StreamCaptures::StreamCaptures(int device)
    : device_(device),
      is_capturing_(driver_function<IsCapturing>("cuStreamIsCapturing")),
      get_info_(find_driver_function<GetInfo>("cuStreamGetCaptureInfo", 12030)) {}

StreamCaptures::~StreamCaptures() {
  const DeviceGuard guard(device_, std::nothrow);
  if (!guard.entered()) return;
  for (const auto& order : orders_) cudaEventDestroy(order->event);
}

// On the path of every operation on a stream: mostly one short call.
std::optional<uint64_t> StreamCaptures::capture_of(device::Stream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // What else the driver may say is not of this stream's capture (a legacy stream beside another's), or comes
  // again when the stream is used.
  if (is_capturing_(static_cast<CUstream>(stream), &status) != CUDA_SUCCESS ||
      status == CU_STREAM_CAPTURE_STATUS_NONE)
    return std::nullopt;
  const Info info = info_of(stream);
  if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    throw Error(Code::invalid_argument, "the capture of the operation's stream was invalidated before",
                "see the error of the call that did it, and capture again");
  return info.number;
}

StreamCaptures::Info StreamCaptures::info_of(device::Stream stream) const {
  if (get_info_ == nullptr)
    throw Error(Code::unsupported, "the driver is too old for operations in CUDA graphs",
                "install a driver for CUDA 12.3 or newer");
  const DeviceGuard guard(device_);
  Info info;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  cuuint64_t number = 0;
  const CUresult result =
      get_info_(static_cast<CUstream>(stream), &info.status, &number, &info.graph, &nodes, &edges, &count);
  if (result != CUDA_SUCCESS) refuse(result, "asking for a stream's capture");
  info.number = number;
  return info;
}

CaptureOrder* StreamCaptures::take_order() {
  {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      CaptureOrder* const order = spare_.back();
      spare_.pop_back();
      return order;
    }
  }
  auto made = std::make_unique<CaptureOrder>();
  check(cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming), "cudaEventCreate");
  const std::lock_guard lock(mutex_);
  return orders_.emplace_back(std::move(made)).get();
}

// In one stream they come in their order by themselves, and the next may be launched early.
void StreamCaptures::come_behind(device::Stream stream, CaptureOrder*& order) {
  const DeviceGuard guard(device_);
  if (order == nullptr) order = take_order();
  // What this handle names depends on the thread.
  const bool any_thread = stream == device::Stream(cudaStreamPerThread);
  if (order->any && (order->stream != stream || any_thread))
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), order->event, 0),
          "capturing the order of a lane's operations");
}

void StreamCaptures::come_before(device::Stream stream, CaptureOrder& order) const {
  const DeviceGuard guard(device_);
  check(cudaEventRecord(order.event, static_cast<cudaStream_t>(stream)),
        "capturing the order of a lane's operations");
  order.stream = stream;
  order.any = true;
}

void StreamCaptures::end_order(CaptureOrder* order) {
  if (order == nullptr) return;
  order->any = false;
  std::lock_guard lock(mutex_);
  spare_.push_back(order);
}

// The graph is the owner from here on, and what is instantiated from it.
void StreamCaptures::watch_graph(device::Stream stream, Dropped dropped) const {
  const Info info = info_of(stream);
  if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "watching a graph");
  const DeviceGuard guard(device_);
  auto user = std::make_unique<Dropped>(std::move(dropped));
  cudaUserObject_t object = nullptr;
  check(cudaUserObjectCreate(&object, user.get(), drop, 1, cudaUserObjectNoDestructorSync),
        "cudaUserObjectCreate");
  (void)user.release();  // drop() has it
  const cudaError_t status = cudaGraphRetainUserObject(info.graph, object, 1, cudaGraphUserObjectMove);
  if (status == cudaSuccess) return;
  cudaUserObjectRelease(object, 1);
  check(status, "cudaGraphRetainUserObject");
}

}  // namespace starling::cuda
