#include "machine/cuda/place.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

#include "base/env.h"
#include "base/log.h"
#include "base/quick_mutex.h"
#include "machine/cuda/copy_engine.h"
#include "machine/cuda/device_guard.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/error.h"
#include "machine/cuda/executor.h"
#include "machine/cuda/peer_memory.h"
#include "machine/cuda/registered_memory.h"

namespace starling::cuda {
namespace {

// What peers have open of a GPU's memory, which stays allocated when the program frees it: one of so many
// parts at most (docs/design/0011-direct.md).
constexpr uint64_t kOpenedParts = 16;

uint64_t host_page() { return uint64_t(sysconf(_SC_PAGESIZE)); }
uint64_t whole_pages(uint64_t bytes) { return (bytes + host_page() - 1) & ~(host_page() - 1); }
uint64_t network_bytes(uint64_t bytes) { return whole_pages(bytes) + host_page(); }
std::byte* page_in(std::byte* memory) { return reinterpret_cast<std::byte*>(whole_pages(uintptr_t(memory))); }

uint64_t opened_at_most(int device) {
  const DeviceGuard guard(device);
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return total / kOpenedParts;
}

// Before anything else asks the driver for memory of the device.
int checked_device(int device) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0)
    throw Error(Code::unsupported,
                std::string("no GPU can be used here: ") +
                    (status == cudaSuccess ? "none is visible" : cudaGetErrorString(status)),
                "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use device cpu");
  if (device >= count)
    throw Error(Code::invalid_argument, "cuda:" + std::to_string(device) + " does not exist",
                "this process sees GPUs 0 to " + std::to_string(count - 1));
  return device;
}

}  // namespace

CudaPlace::CudaPlace(int device, cpu::Arena& arena)
    : device_(checked_device(device)),
      arena_(arena),
      memory_(device, arena),
      pinned_(device),
      copies_(device),
      allocations_(device),
      registrations_(memory_.exports().registrations, allocations_, opened_at_most(device)) {}

const PlaceTraits& CudaPlace::traits() const {
  // No trace: a record costs a release to memory that others read, on the path of every instruction.
  static constexpr PlaceTraits kTraits{.direct = false,
                                       .notifies = false,
                                       .streams = true,
                                       .lane_depth = kGpuLaneDepth,
                                       .default_blocks = 32,
                                       .lane_limit = 4096,
                                       .slot_bytes_limit = 1 << 17,
                                       .packet_bytes_limit = 8192,
                                       .pull_bytes = 4 << 20,
                                       .trace_capacity = 0};
  return kTraits;
}

std::byte* CudaPlace::allocate(uint64_t bytes) {
  std::byte* memory = memory_.allocate(bytes);
  copies_.zero(memory, bytes);
  return memory;
}

std::byte* CudaPlace::allocate_shared(uint64_t bytes) { return pinned_.allocate(bytes); }

void CudaPlace::make_room() {
  memory_.make_room();
  pinned_.make_room();
}

// What a network device has written must be in order for our blocks without a flush: they see a word in the
// host's memory that was stored behind it.
bool CudaPlace::has_network_slots() {
  if (has_network_slots_) return *has_network_slots_;
  has_network_slots_ = false;
  const auto attribute = find_driver_function<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  const auto of = [&](CUdevice_attribute which) {
    int value = 0;
    return attribute != nullptr && attribute(&value, which, device_) == CUDA_SUCCESS ? value : 0;
  };
  has_network_slots_ =
      of(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0 &&
      of(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != 0 &&
      of(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER &&
      // Words come over another link than bytes there (NVLink-C2C), and nothing orders the two.
      of(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) == 0;
  return *has_network_slots_;
}

NetworkSlots CudaPlace::allocate_for_network(uint64_t bytes) {
  const auto range =
      find_driver_function<decltype(&cuMemGetHandleForAddressRange)>("cuMemGetHandleForAddressRange");
  if (range == nullptr) return {};
  const DriverExcuse excuse;  // lanes between hosts are opened under the context's lock still
  const DeviceGuard guard(device_);
  NetworkSlots slots;
  slots.whole = memory_.allocate(network_bytes(bytes));
  slots.memory = slots.named = page_in(slots.whole);
  const CUresult status = range(&slots.dma_buf, reinterpret_cast<CUdeviceptr>(slots.memory),
                                whole_pages(bytes), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (status == CUDA_SUCCESS) return slots;
  log(LogLevel::info, name(), ": the driver exports no memory for network devices (CUresult ", int(status),
      ")");
  memory_.release(slots.whole, network_bytes(bytes));
  return {};
}

void CudaPlace::seal(NetworkSlots& slots, uint64_t) {
  if (slots.dma_buf >= 0) ::close(std::exchange(slots.dma_buf, -1));
}

void CudaPlace::release_for_network(const NetworkSlots& slots, uint64_t bytes) {
  memory_.release(slots.whole, network_bytes(bytes));
}

Pool CudaPlace::make_pool(uint64_t bytes) {
  const uint64_t slot_bytes = arena_.header()->pool_slot_bytes;
  return {memory_.offset_of(memory_.allocate(bytes)), bytes / slot_bytes};
}

std::string CudaPlace::bus_address() const {
  char text[32] = "";
  if (cudaDeviceGetPCIBusId(text, sizeof text, device_) != cudaSuccess) return "";
  std::string address = text;
  std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return tolower(c); });
  return address;
}

std::unique_ptr<PeerMemory> CudaPlace::attach(const std::shared_ptr<cpu::PeerArena>& peer) {
  auto memory = std::make_unique<ImportedMemory>(device_, peer, *this);
  if (!memory->exchanges_descriptors()) allocations_.without_views();
  return memory;
}

bool CudaPlace::check_buffer(const void* memory, const char* name) const {
  if (memory == nullptr) return true;
  // By the driver's number of the allocation, which is never used again: an address may become one of other
  // memory. Relaxed: whoever finds the number knows all there is to know.
  const uint64_t identity = identity_of(memory);
  std::atomic<uint64_t>& known = checked_[identity % checked_.size()];
  if (identity != 0 && known.load(std::memory_order_relaxed) == identity) return true;
  const DeviceGuard guard(device_);
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeUnregistered)
    throw Error(Code::invalid_argument,
                std::string(name) + " is in pageable CPU memory, which the GPU's daemon cannot reach",
                "pass a CUDA tensor, or pinned memory; or make the context with device cpu");
  if (attributes.type == cudaMemoryTypeDevice && attributes.device != device_)
    throw Error(Code::invalid_argument,
                std::string(name) + " is in memory of cuda:" + std::to_string(attributes.device) +
                    ", the context is one of " + this->name(),
                "pass a tensor of the context's GPU");
  if (attributes.type != cudaMemoryTypeDevice) return false;
  if (identity != 0) known.store(identity, std::memory_order_relaxed);
  return true;
}

std::byte* CudaPlace::take_opened(uint64_t bytes, uint16_t& registration) {
  std::byte* memory = bounces_.take(bytes);
  registration = registrations_.number_of(memory, Need::kMust);
  if (registration == 0) {
    bounces_.give(memory, bytes);
    throw Error(Code::exhausted, "no number is left for memory of " + name() + " that peers open",
                "set STARLING_PULL=0 on all ranks");
  }
  return memory;
}

std::byte* CudaPlace::take_bounce(uint64_t bytes, uint16_t& registration) {
  std::byte* memory = take_opened(bytes, registration);
  if (!bounced_.exchange(true))
    log(LogLevel::warn,
        "peers cannot open a buffer of " + name() +
            ", which is neither of cudaMalloc nor mapped memory that can be exported (but of "
            "cudaMallocAsync?), or "
            "one of too many "
            "that were freed: blocks copy such to where peers can read it, as slowly as through slots, and "
            "it takes "
            "as much memory; groups that join from now on use slots, as with STARLING_PULL=0");
  return memory;
}

void CudaPlace::check_pulled(const void* memory) const {
  if (memory == nullptr || warned_ || is_ipc_capable(memory) || warned_.exchange(true)) return;
  log(LogLevel::warn,
      "a buffer of " + name() +
          " was not allocated by cudaMalloc (but by cudaMallocAsync, or as an expandable segment?): GPUs of "
          "peers "
          "may not reach it, and an operation that reads it would fail; set STARLING_PULL=0 on all ranks");
}

std::unique_ptr<Executor> CudaPlace::start(const DaemonStart& start) {
  const StreamHold hold = settings().stream_hold;
  const ExecutorOptions options{
      device_,
      start,
      exported(arena_.header()->pool_offset),
      reinterpret_cast<uint64_t*>(allocate(2 * sizeof(uint64_t))),
      reinterpret_cast<uint64_t*>(allocate(2 * sizeof(uint64_t))),
      reinterpret_cast<uint64_t*>(allocate(2 * sizeof(uint64_t))),
      reinterpret_cast<uint64_t*>(allocate_shared(2 * sizeof(uint64_t))),
      reinterpret_cast<uint64_t*>(allocate_shared(sizeof(uint64_t))),
      reinterpret_cast<AloneWords*>(allocate_shared(sizeof(AloneWords))),
      reinterpret_cast<uint64_t*>(allocate_shared(2 * sizeof(uint64_t))),
      reinterpret_cast<uint64_t*>(allocate_shared(StreamDepths::kMostStreams * sizeof(uint64_t))),
      reinterpret_cast<device::CallBox*>(allocate_shared(device::kCallBoxes * sizeof(device::CallBox))),
      {.gates = hold == StreamHold::kGate,
       .doorbells = hold == StreamHold::kDoorbell,
       .guards = settings().guard != Guard::kAll,
       .rendezvous = settings().guard == Guard::kWatch,
       .watches = settings().guard == Guard::kWatch}};
  flush();
  return std::make_unique<CudaExecutor>(options);
}

std::unique_ptr<CopyEngine> CudaPlace::make_copy_engine() {
  return std::make_unique<CudaCopyEngine>(device_, *this);
}

}  // namespace starling::cuda

// What the core looks up in this library (comm/device.cc). Throws Error.
extern "C" __attribute__((visibility("default"))) starling::Place* starling_make_cuda_place(
    int device, starling::cpu::Arena* arena) {
  return new starling::cuda::CudaPlace(device, *arena);
}
