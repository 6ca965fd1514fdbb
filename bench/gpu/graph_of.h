// Calls that were captured into a CUDA graph. It has to be gone before the communicators of its calls.
#pragma once
#include "gpu_ranks.h"

namespace gpu_bench {

class GraphOf {
 public:
  GraphOf() = default;
  ~GraphOf() {
    if (ready_ != nullptr) cuda(cudaGraphExecDestroy(ready_), "cudaGraphExecDestroy");
  }
  GraphOf(const GraphOf&) = delete;
  GraphOf& operator=(const GraphOf&) = delete;

  // Relaxed: other threads of the process, and of the libraries, go on calling the driver meanwhile.
  template <class Calls>
  void capture(cudaStream_t stream, Calls&& calls) {
    cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    calls();
    cudaGraph_t graph = nullptr;
    cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cuda(cudaGraphInstantiate(&ready_, graph, 0), "cudaGraphInstantiate");
    cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }

  void launch(cudaStream_t stream) { cuda(cudaGraphLaunch(ready_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t ready_ = nullptr;
};

}  // namespace gpu_bench
