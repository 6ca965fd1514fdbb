// Mapped memory (cuMemCreate, cuMemMap) between processes: machine/registered/views.h over the driver.
#pragma once
#include <cuda.h>

#include <map>
#include <mutex>
#include <vector>

#include "machine/registered/descriptors.h"
#include "machine/registered/views.h"

namespace starling::cuda {

class DriverMappings final : public Mappings {
 public:
  explicit DriverMappings(int device) : device_(device) {}
  std::optional<Piece> hold(uint64_t address) override;
  void let_go(uint64_t handle) noexcept override;
  // What another process imports them by. Throws Error.
  std::vector<ExportedPiece> exported(const HeldPieces& pieces) const;

 private:
  bool is_fit(const Piece& piece);

  const int device_;
  std::mutex mutex_;
  std::map<uint64_t, Piece> fit_;  // by base: asked about once
};

// Views of peers, each mapped one piece behind the other, for the GPU to read and write.
class MappedViews {
 public:
  explicit MappedViews(int device) : device_(device) {}
  // Where it is. Throws Error.
  uint64_t map(const ViewHandle& view);
  // False: nothing is mapped there.
  bool unmap(uint64_t base);

 private:
  const int device_;
  std::map<uint64_t, std::vector<uint64_t>> mapped_;  // by base: bytes of its pieces
};

}  // namespace starling::cuda
