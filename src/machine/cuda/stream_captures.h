// What the driver knows of a stream that is being captured into a graph.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "machine/place.h"

namespace starling {

// Of the start kernels of one lane and capture.
class CaptureOrder {
 public:
  cudaEvent_t event = nullptr;  // recorded behind the last one
  device::Stream stream = nullptr;  // whose it is
  bool any = false;
};

}  // namespace starling

namespace starling::cuda {

class StreamCaptures {
 public:
  explicit StreamCaptures(int device);
  ~StreamCaptures();
  StreamCaptures(const StreamCaptures&) = delete;
  StreamCaptures& operator=(const StreamCaptures&) = delete;

  // As in StreamOperations.
  std::optional<uint64_t> capture_of(device::Stream stream) const;
  void watch_graph(device::Stream stream, std::shared_ptr<std::atomic<bool>> dropped) const;
  // As in CudaStreamDevice.
  void come_behind(device::Stream stream, CaptureOrder*& order);
  void come_before(device::Stream stream, CaptureOrder& order) const;
  void end_order(CaptureOrder* order);

 private:
  using IsCapturing = CUresult (*)(CUstream, CUstreamCaptureStatus*);
  // Since CUDA 12.3. The form before it fails where edges of the capture have data, as those of kernels that
  // are launched early have.
  using GetInfo = CUresult (*)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                               const CUgraphEdgeData**, size_t*);
  struct Info {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    uint64_t number = 0;
    CUgraph graph = nullptr;
  };
  Info info_of(device::Stream stream) const;
  CaptureOrder* take_order();

  const int device_;
  const IsCapturing is_capturing_;
  const GetInfo get_info_;
  std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<CaptureOrder>> orders_;
  std::vector<CaptureOrder*> spare_;  // no call of the driver ends one: the poller does
};

}  // namespace starling::cuda
