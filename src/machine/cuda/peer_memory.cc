#include "machine/cuda/peer_memory.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <utility>

#include "base/quick_mutex.h"
#include "machine/cuda/device_guard.h"
#include "machine/cuda/error.h"

namespace starling::cuda {
namespace {

// The number in this process of the GPU with that UUID; -1: not visible here.
int device_with(const uint8_t (&uuid)[16]) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    if (std::memcmp(&properties.uuid, uuid, sizeof uuid) == 0) return device;
  }
  return -1;
}

void enable_access(int device, int peer) {
  if (device == peer) return;
  const DeviceGuard guard(device);
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    (void)cudaGetLastError();  // PyTorch may have done it
  else
    check(status, "cudaDeviceEnablePeerAccess");
}

}  // namespace

// ---- registered buffers -------------------------------------------------------------------------------

OpenedBuffers::OpenedBuffers(int device, RegistrationTable& theirs, Place& place)
    : place_(place),
      handles_(device),
      table_(reinterpret_cast<OpenedTable*>(place.allocate(sizeof(OpenedTable)))),
      told_(reinterpret_cast<OpenedRegistration*>(
          place.allocate_shared(kMaxRegistrations * sizeof(OpenedRegistration)))) {
  place_.write(&table_->told, &told_, sizeof told_);
  place_.flush();
  registrations_ = std::make_unique<PeerRegistrations>(theirs, told_, handles_);
  registrations_->open_all();  // on a thread of the caller's
  thread_ = std::make_unique<CalledThread>(
      "st-opener", std::vector<std::function<void()>>{[this] { registrations_->open_all(); }});
}

OpenedBuffers::~OpenedBuffers() {
  thread_.reset();
  registrations_.reset();
  place_.release(reinterpret_cast<std::byte*>(table_), sizeof(OpenedTable));
  place_.release_shared(reinterpret_cast<std::byte*>(told_), kMaxRegistrations * sizeof(OpenedRegistration));
}

void ImportedMemory::open_buffers() {
  const std::lock_guard lock(opening_);
  if (same_process_ || buffers() != nullptr) return;
  auto opened = std::make_unique<OpenedBuffers>(device_, export_->registrations, place_);
  // Release: pairs with the acquire in buffers().
  buffers_.store(opened.release(), std::memory_order_release);
}

std::optional<CopyTarget> OpenedBuffers::reach(uint64_t address, uint16_t number) {
  STARLING_ASSERT(number - 1u < kMaxRegistrations - 1, "a message names no registration");
  OpenedRegistration& told = told_[number];
  // Acquire: pairs with the release in PeerRegistrations::open(); the offset is there.
  if (std::atomic_ref<uint64_t>(told.made).load(std::memory_order_acquire) == 0) {
    // Relaxed: as a block does it (device/opened.h).
    std::atomic_ref<uint64_t>(told.wanted).store(1, std::memory_order_relaxed);
    look();
    return std::nullopt;
  }
  return CopyTarget{reinterpret_cast<std::byte*>(address + told.offset)};
}

std::optional<CopyTarget> ImportedMemory::reach(uint64_t address, uint16_t number) {
  if (same_process_) return CopyTarget{reinterpret_cast<std::byte*>(address)};
  return buffers() == nullptr ? std::nullopt : buffers()->reach(address, number);
}

// ---- exported memory ----------------------------------------------------------------------------------

ImportedMemory::ImportedMemory(int device, std::shared_ptr<cpu::PeerArena> peer, Place& place)
    : device_(device), peer_(std::move(peer)), place_(place) {
  const ArenaHeader* header = peer_->header();
  if (header->device_offset == 0)
    throw Error(Code::mismatch, "a peer's daemon runs on the CPU, ours on a GPU",
                "make the contexts of all ranks with the same kind of device");
  export_ = reinterpret_cast<DeviceExport*>(peer_->at(header->device_offset));
  same_process_ = header->process_nonce == cpu::process_nonce();
  const int theirs = device_with(export_->uuid);
  same_device_ = theirs == device;
  int reachable = same_device_;
  if (theirs >= 0 && theirs != device)
    check(cudaDeviceCanAccessPeer(&reachable, device, theirs), "cudaDeviceCanAccessPeer");
  if (!reachable)
    throw Error(Code::unsupported,
                "cuda:" + std::to_string(device) + " cannot reach the memory of a peer's GPU" +
                    (theirs < 0 ? ", which this process does not see" : ""),
                theirs < 0 ? "let CUDA_VISIBLE_DEVICES name the GPUs of all ranks in every process"
                           : "use GPUs that are joined by NVLink or a common PCIe switch");
  if (same_process_) enable_access(device, theirs);
  // Pairs with the owner's wait in ~DeviceMemory().
  std::atomic_ref<uint64_t>(export_->importers).fetch_add(same_process_ ? 0 : 1, std::memory_order_acq_rel);
  try {
    map_all();
  } catch (...) {
    leave();
    throw;
  }
}

bool ImportedMemory::exchanges_descriptors() const {
  return same_process_ || export_->network == network_namespace();
}

// What is there already, on a thread of the caller's: the poller, which connects lanes, must not need the
// driver for it.
void ImportedMemory::map_all() {
  // Acquire: as in at().
  const uint64_t count = std::atomic_ref<uint64_t>(export_->chunk_count).load(std::memory_order_acquire);
  for (uint64_t index = 0; index < count; ++index) at(index << kChunkShift);
}

ImportedMemory::~ImportedMemory() {
  mapper_.reset();
  delete buffers();
  leave();
  mapped_.clear();
}

void ImportedMemory::leave() {
  if (same_process_) return;
  if (const DeviceGuard guard(device_, std::nothrow); guard.entered())
    for (Mapped& mapped : mapped_)
      if (mapped.base != nullptr) cudaIpcCloseMemHandle(mapped.base);
  // Release: we touch it no more; pairs with the acquire in ~DeviceMemory().
  std::atomic_ref<uint64_t>(export_->importers).fetch_sub(1, std::memory_order_acq_rel);
}

bool ImportedMemory::is_mapped(uint64_t offset) {
  const uint64_t index = offset >> kChunkShift;
  const std::lock_guard lock(mutex_);
  return index < mapped_.size() && mapped_[index].base != nullptr;
}

bool ImportedMemory::reaches(uint64_t offset) {
  if (same_process_ || is_mapped(offset)) return true;
  const std::lock_guard lock(mutex_);
  if (failed_) return true;
  if (mapper_ == nullptr)
    mapper_ = std::make_unique<CalledThread>("st-mapper", std::vector<std::function<void()>>{[this] {
                                               try {
                                                 map_all();
                                               } catch (const Error&) {
                                                 const std::lock_guard failing(mutex_);
                                                 failed_ = true;
                                               }
                                             }});
  mapper_->call(0);
  return false;
}

std::byte* ImportedMemory::at(uint64_t offset) {
  const uint64_t index = offset >> kChunkShift;
  // Acquire: pairs with the release in DeviceMemory::grow(); after it the chunk's entry is readable.
  const uint64_t count = std::atomic_ref<uint64_t>(export_->chunk_count).load(std::memory_order_acquire);
  STARLING_ASSERT(index < count, "a peer named GPU memory that it does not have");
  if (!is_mapped(offset)) {
    const std::lock_guard mapping(mapping_);
    if (!is_mapped(offset)) {
      Mapped mapped = map(index);
      const std::lock_guard lock(mutex_);
      if (mapped_.size() <= index) mapped_.resize(index + 1);
      mapped_[index] = std::move(mapped);
    }
  }
  const std::lock_guard lock(mutex_);
  return mapped_[index].base + (offset & ((uint64_t(1) << kChunkShift) - 1));
}

ImportedMemory::Mapped ImportedMemory::map(uint64_t index) {
  const ExportedChunk& entry = export_->chunks[index];
  Mapped mapped;
  if (same_process_) {
    mapped.chunk = find_chunk(entry.address);
    if (mapped.chunk == nullptr)
      throw Error(Code::peer_failed, "a peer's GPU memory is gone",
                  "keep contexts alive while others use them");
    mapped.base = mapped.chunk->base;
    return mapped;
  }
  // After reaches() only where that has failed, and this says how.
  const DriverExcuse excuse;
  const DeviceGuard guard(device_);
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, entry.handle, sizeof handle);
  void* base = nullptr;
  check(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess),
        "cudaIpcOpenMemHandle of a peer's memory");
  mapped.base = static_cast<std::byte*>(base);
  return mapped;
}

}  // namespace starling::cuda
