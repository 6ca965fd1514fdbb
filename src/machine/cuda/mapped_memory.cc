#include "machine/cuda/mapped_memory.h"

#include <cstdint>
#include <string>

#include "base/error.h"
#include "machine/cuda/device_guard.h"
#include "machine/cuda/driver.h"

namespace starling::cuda {
namespace {

constexpr std::chrono::seconds kAnswerLimit{10};
constexpr size_t kMostFit = 1 << 16;  // of 2 MB each: more than a GPU has

// What came with CUDA 11: null where the driver does not have it.
struct Driver {
#define STARLING_FUNCTION(name, ...) \
  CUresult (*name)(__VA_ARGS__) = find_driver_function<CUresult (*)(__VA_ARGS__)>("cu" #name)
  STARLING_FUNCTION(MemGetAddressRange, CUdeviceptr*, size_t*, CUdeviceptr);
  STARLING_FUNCTION(MemRetainAllocationHandle, CUmemGenericAllocationHandle*, void*);
  STARLING_FUNCTION(MemGetAllocationPropertiesFromHandle, CUmemAllocationProp*, CUmemGenericAllocationHandle);
  STARLING_FUNCTION(MemExportToShareableHandle, void*, CUmemGenericAllocationHandle,
                    CUmemAllocationHandleType, unsigned long long);
  STARLING_FUNCTION(MemImportFromShareableHandle, CUmemGenericAllocationHandle*, void*,
                    CUmemAllocationHandleType);
  STARLING_FUNCTION(MemAddressReserve, CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
  STARLING_FUNCTION(MemAddressFree, CUdeviceptr, size_t);
  STARLING_FUNCTION(MemMap, CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
  STARLING_FUNCTION(MemUnmap, CUdeviceptr, size_t);
  STARLING_FUNCTION(MemSetAccess, CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
  STARLING_FUNCTION(MemRelease, CUmemGenericAllocationHandle);
#undef STARLING_FUNCTION

  bool complete() const {
    return MemGetAddressRange && MemRetainAllocationHandle && MemGetAllocationPropertiesFromHandle &&
           MemExportToShareableHandle && MemImportFromShareableHandle && MemAddressReserve &&
           MemAddressFree && MemMap && MemUnmap && MemSetAccess && MemRelease;
  }
};

const Driver& driver() {
  static const Driver kDriver;
  return kDriver;
}

void require(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  throw Error(
      Code::system, std::string(what) + " failed: error " + std::to_string(int(status)) + " of the driver",
      "set STARLING_PULL=0 on all ranks, or PYTORCH_CUDA_ALLOC_CONF without expandable_segments:True");
}

CUmemAllocationProp properties_of(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties{};
  if (driver().MemGetAllocationPropertiesFromHandle(&properties, handle) != CUDA_SUCCESS) return {};
  return properties;
}

bool has(const CUmemAllocationProp& properties, CUmemAllocationHandleType type) {
  return (unsigned(properties.requestedHandleTypes) & unsigned(type)) != 0;
}

// One of them at a time is mapped, so an error leaves nothing behind.
class Mapping {
 public:
  explicit Mapping(uint64_t bytes) : bytes_(bytes) {
    require(driver().MemAddressReserve(&base_, bytes, 0, 0, 0), "cuMemAddressReserve for a peer's memory");
  }
  ~Mapping() {
    if (kept_) return;
    uint64_t at = base_;
    for (const uint64_t piece : pieces_) {
      driver().MemUnmap(at, piece);
      at += piece;
    }
    driver().MemAddressFree(base_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void append(const ExportedPiece& piece) {
    CUmemGenericAllocationHandle handle{};
    void* const fabric = const_cast<uint8_t*>(piece.fabric.data());
    void* const exported =
        piece.descriptor ? reinterpret_cast<void*>(uintptr_t(piece.descriptor.get())) : fabric;
    require(driver().MemImportFromShareableHandle(
                &handle, exported,
                piece.descriptor ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_FABRIC),
            "cuMemImportFromShareableHandle of a peer's memory");
    const CUresult status = driver().MemMap(base_ + mapped_, piece.bytes, 0, handle, 0);
    driver().MemRelease(handle);  // the mapping holds it
    require(status, "cuMemMap of a peer's memory");
    pieces_.push_back(piece.bytes);
    mapped_ += piece.bytes;
  }
  void let(int device) {
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;  // copy engines write there (sm_free)
    require(driver().MemSetAccess(base_, bytes_, &access, 1), "cuMemSetAccess to a peer's memory");
  }
  std::pair<uint64_t, std::vector<uint64_t>> keep() {
    kept_ = true;
    return {base_, std::move(pieces_)};
  }

 private:
  const uint64_t bytes_;
  CUdeviceptr base_ = 0;
  uint64_t mapped_ = 0;
  std::vector<uint64_t> pieces_;
  bool kept_ = false;
};

}  // namespace

// ---- the owner ----------------------------------------------------------------------------------------

std::optional<Piece> DriverMappings::hold(uint64_t address) {
  if (!driver().complete()) return std::nullopt;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CUmemGenericAllocationHandle handle{};
  if (driver().MemGetAddressRange(&base, &bytes, address) != CUDA_SUCCESS ||
      driver().MemRetainAllocationHandle(&handle, reinterpret_cast<void*>(base)) != CUDA_SUCCESS)
    return std::nullopt;
  const Piece piece{base, bytes, handle};
  if (is_fit(piece)) return piece;
  let_go(handle);
  return std::nullopt;
}

// It can be exported, and is one mapping from begin to end: no driver is known to say otherwise, but of one
// that named a whole reservation peers would map too much.
bool DriverMappings::is_fit(const Piece& piece) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = fit_.find(piece.base);
    if (known != fit_.end() && known->second == piece) return true;
  }
  const CUmemAllocationProp properties = properties_of(piece.handle);
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties.location.id != device_ ||
      !(has(properties, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
        has(properties, CU_MEM_HANDLE_TYPE_FABRIC)))
    return false;
  CUmemGenericAllocationHandle last{};
  if (driver().MemRetainAllocationHandle(&last, reinterpret_cast<void*>(piece.base + piece.bytes - 1)) !=
      CUDA_SUCCESS)
    return false;
  let_go(last);
  if (last != piece.handle) return false;
  const std::lock_guard lock(mutex_);
  if (fit_.size() == kMostFit) fit_.clear();
  fit_.insert_or_assign(piece.base, piece);
  return true;
}

void DriverMappings::let_go(uint64_t handle) noexcept { driver().MemRelease(handle); }

std::vector<ExportedPiece> DriverMappings::exported(const HeldPieces& pieces) const {
  const DeviceGuard guard(device_);
  std::vector<ExportedPiece> all;
  for (const Piece& piece : pieces.all()) {
    ExportedPiece& one = all.emplace_back();
    one.bytes = piece.bytes;
    if (has(properties_of(piece.handle), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
      int fd = -1;
      require(
          driver().MemExportToShareableHandle(&fd, piece.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "cuMemExportToShareableHandle of a buffer");
      one.descriptor = Descriptor(fd);
    } else {
      static_assert(sizeof(CUmemFabricHandle) == sizeof one.fabric);
      require(
          driver().MemExportToShareableHandle(one.fabric.data(), piece.handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
          "cuMemExportToShareableHandle of a buffer");
    }
  }
  return all;
}

// ---- a reader -----------------------------------------------------------------------------------------

uint64_t MappedViews::map(const ViewHandle& view) {
  if (!driver().complete())
    throw Error(Code::unsupported, "the driver cannot map a peer's memory",
                "install a driver for CUDA 12 or newer");
  const std::vector<ExportedPiece> pieces = request_pieces(view, kAnswerLimit);
  const DeviceGuard guard(device_);
  uint64_t bytes = 0;
  for (const ExportedPiece& piece : pieces) bytes += piece.bytes;
  Mapping mapping(bytes);
  for (const ExportedPiece& piece : pieces) mapping.append(piece);
  mapping.let(device_);
  return mapped_.insert(mapping.keep()).first->first;
}

bool MappedViews::unmap(uint64_t base) {
  const auto found = mapped_.find(base);
  if (found == mapped_.end()) return false;
  uint64_t at = base;
  for (const uint64_t bytes : found->second) {
    driver().MemUnmap(at, bytes);
    at += bytes;
  }
  driver().MemAddressFree(base, at - base);
  mapped_.erase(found);
  return true;
}

}  // namespace starling::cuda
