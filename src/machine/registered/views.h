// Memory that a program maps piece by piece (cuMemCreate and cuMemMap, as PyTorch's expandable segments do):
// the pieces that a buffer lies in are one allocation to wire/registration.h, a *view*. Views may overlap; a
// buffer in other pieces is in another view, also where it shares some of them.
//
// A piece is known by its handle, which the driver gives out again only when nobody holds it. So what is
// published is held: the same range with the same handles is the same memory. Held memory stays allocated
// when its program releases it, until the registration is retired.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "machine/registered/own.h"

namespace starling {

// One mapping.
struct Piece {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint64_t handle = 0;
  bool operator==(const Piece&) const = default;
};

// What is asked of the driver. Any thread.
class Mappings {
 public:
  virtual ~Mappings() = default;
  // The mapping that the address is in, with its handle held once more; none: no mapping is there, or one
  // that other processes cannot import.
  virtual std::optional<Piece> hold(uint64_t address) = 0;
  virtual void let_go(uint64_t handle) noexcept = 0;
};

// Pieces one behind the other, whose handles are held by this.
class HeldPieces {
 public:
  explicit HeldPieces(Mappings& mappings) : mappings_(mappings) {}
  ~HeldPieces() {
    for (const Piece& piece : pieces_) mappings_.let_go(piece.handle);
  }
  HeldPieces(const HeldPieces&) = delete;
  HeldPieces& operator=(const HeldPieces&) = delete;

  // False: the range is not in mappings throughout.
  bool cover(uint64_t address, uint64_t bytes);
  const std::vector<Piece>& all() const { return pieces_; }

 private:
  Mappings& mappings_;
  std::vector<Piece> pieces_;
};

// Thread-safe. `mappings` outlives it, and all that it gives out.
class Views {
 public:
  static constexpr size_t kMostLoose = 1024;

  explicit Views(Mappings& mappings) : mappings_(mappings) {}

  // The view that the buffer lies in, held from now on; none: it is not in mappings throughout.
  std::optional<Allocation> find(uint64_t address, uint64_t bytes);
  // It is not published (any more): known on, as the same one, but not held.
  void loosen(const Allocation& view);
  // The pieces of a view that is held; null: it is not. They stay as long as the caller keeps them.
  std::shared_ptr<const HeldPieces> pieces_of(uint64_t identity) const;

 private:
  using Range = std::pair<uint64_t, uint64_t>;  // base, bytes
  struct View {
    uint64_t identity;
    std::vector<Piece> pieces;
    std::shared_ptr<const HeldPieces> held;  // null: loose
  };
  void drop_loose();

  Mappings& mappings_;
  mutable std::mutex mutex_;  // guards all below
  std::map<Range, View> views_;
  size_t loose_ = 0;
  uint64_t identities_ = 0;
};

}  // namespace starling
