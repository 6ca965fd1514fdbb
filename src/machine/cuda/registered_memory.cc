#include "machine/cuda/registered_memory.h"

#include <cuda_runtime.h>

#include <cstring>

#include "machine/cuda/device_guard.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/error.h"

namespace starling::cuda {
namespace {

using GetAttribute = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);
using GetAddressRange = CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr);

GetAttribute attribute_function() {
  static const auto function = find_driver_function<GetAttribute>("cuPointerGetAttribute");
  return function;
}

}  // namespace

uint64_t identity_of(const void* memory) {
  const auto get_attribute = attribute_function();
  unsigned long long identity = 0;
  if (get_attribute == nullptr || get_attribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                                reinterpret_cast<CUdeviceptr>(memory)) != CUDA_SUCCESS)
    return 0;
  return identity;
}

bool is_ipc_capable(const void* memory) {
  const auto get_attribute = attribute_function();
  CUmemorytype type{};
  unsigned capable = 1;
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  if (get_attribute == nullptr ||
      get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
      type != CU_MEMORYTYPE_DEVICE ||
      get_attribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) != CUDA_SUCCESS)
    return true;
  return capable != 0;
}

// Strict where is_ipc_capable() is not: what the driver does not vouch for is not shared.
std::optional<Allocation> DriverAllocations::find(uint64_t address, uint64_t bytes) {
  static const auto get_range = driver_function<GetAddressRange>("cuMemGetAddressRange");
  const auto get_attribute = attribute_function();
  if (get_attribute == nullptr) return std::nullopt;
  unsigned long long identity = identity_of(reinterpret_cast<const void*>(address));
  const Allocation& known = known_[identity % known_.size()];
  if (identity != 0 && known.identity == identity && address - known.base < known.bytes) return known;
  const DeviceGuard guard(device_);
  CUmemorytype type{};
  unsigned managed = 1;
  int capable = 0;
  if (get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
      type != CU_MEMORYTYPE_DEVICE ||
      get_attribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) != CUDA_SUCCESS || managed != 0 ||
      get_attribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) != CUDA_SUCCESS)
    return std::nullopt;
  if (capable == 0) {
    if (!views_reach_.load(std::memory_order_relaxed)) return std::nullopt;
    std::optional<Allocation> view = views_.find(address, bytes);
    if (view) view->kind = kViewHandle;
    return view;
  }
  CUdeviceptr base = 0;
  size_t whole = 0;
  if (get_attribute(&identity, CU_POINTER_ATTRIBUTE_BUFFER_ID, address) != CUDA_SUCCESS ||
      get_range(&base, &whole, address) != CUDA_SUCCESS)
    return std::nullopt;
  return known_[identity % known_.size()] = {base, whole, identity};
}

void DriverAllocations::loosen(const Allocation& allocation) {
  if (allocation.kind == kViewHandle) views_.loosen(allocation);
}

bool DriverAllocations::can_open(const void* memory) {
  if (is_ipc_capable(memory)) return true;
  if (!views_reach_.load(std::memory_order_relaxed)) return false;
  const DeviceGuard guard(device_);
  return HeldPieces(mappings_).cover(uint64_t(memory), 1);
}

void DriverAllocations::export_to(const Allocation& allocation, uint8_t (&handle)[kRegistrationHandleBytes]) {
  if (allocation.kind == kViewHandle) {
    if (!server_)
      server_.emplace([this](uint64_t identity) {
        const std::shared_ptr<const HeldPieces> pieces = views_.pieces_of(identity);
        return pieces == nullptr ? std::vector<ExportedPiece>() : mappings_.exported(*pieces);
      });
    ViewHandle view{allocation.identity, {}};
    server_->socket().copy(view.socket, sizeof view.socket - 1);
    std::memcpy(handle, &view, sizeof view);
    return;
  }
  const DeviceGuard guard(device_);
  cudaIpcMemHandle_t exported;
  static_assert(sizeof exported == sizeof handle);
  check(cudaIpcGetMemHandle(&exported, reinterpret_cast<void*>(allocation.base)),
        "cudaIpcGetMemHandle of a buffer");
  std::memcpy(handle, &exported, sizeof handle);
}

uint64_t PeerHandles::open(const Registration& registration) {
  if (registration.kind == kViewHandle) {
    ViewHandle view;
    static_assert(sizeof view == sizeof registration.handle);
    std::memcpy(&view, registration.handle, sizeof view);
    return views_.map(view);
  }
  const DeviceGuard guard(device_);
  cudaIpcMemHandle_t exported;
  std::memcpy(&exported, registration.handle, sizeof exported);
  void* base = nullptr;
  check(cudaIpcOpenMemHandle(&base, exported, cudaIpcMemLazyEnablePeerAccess),
        "cudaIpcOpenMemHandle of a peer's buffer");
  return uint64_t(base);
}

void PeerHandles::close(uint64_t base) {
  const DeviceGuard guard(device_, std::nothrow);
  if (!guard.entered() || views_.unmap(base)) return;
  if (cudaIpcCloseMemHandle(reinterpret_cast<void*>(base)) != cudaSuccess) (void)cudaGetLastError();
}

}  // namespace starling::cuda
