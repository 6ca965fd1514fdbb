#include "machine/registered/views.h"

namespace starling {

bool HeldPieces::cover(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + (bytes == 0 ? 1 : bytes);
  while (pieces_.empty() || pieces_.back().base + pieces_.back().bytes < end) {
    const uint64_t next = pieces_.empty() ? address : pieces_.back().base + pieces_.back().bytes;
    const std::optional<Piece> piece = mappings_.hold(next);
    if (!piece) return false;
    pieces_.push_back(*piece);
    // A driver that said otherwise would keep us here for ever.
    if (piece->bytes == 0 || next < piece->base || next >= piece->base + piece->bytes) return false;
    if (pieces_.size() > 1 && piece->base != next) return false;
  }
  return true;
}

std::optional<Allocation> Views::find(uint64_t address, uint64_t bytes) {
  auto held = std::make_shared<HeldPieces>(mappings_);
  if (!held->cover(address, bytes)) return std::nullopt;
  const std::vector<Piece>& pieces = held->all();
  const Range range{pieces.front().base, pieces.back().base + pieces.back().bytes - pieces.front().base};
  std::shared_ptr<const HeldPieces> before;  // let go of without the lock
  const std::lock_guard lock(mutex_);
  const auto known = views_.find(range);
  if (known != views_.end() && known->second.pieces == pieces) {
    if (known->second.held == nullptr) {
      --loose_;
      known->second.held = std::move(held);
    }
    return Allocation{range.first, range.second, known->second.identity};
  }
  if (known != views_.end()) {
    loose_ -= known->second.held == nullptr;
    before = std::move(known->second.held);
  }
  View view{++identities_, pieces, std::move(held)};
  const uint64_t identity = view.identity;
  views_.insert_or_assign(range, std::move(view));
  return Allocation{range.first, range.second, identity};
}

void Views::loosen(const Allocation& view) {
  std::shared_ptr<const HeldPieces> held;  // let go of without the lock
  const std::lock_guard lock(mutex_);
  const auto known = views_.find({view.base, view.bytes});
  if (known == views_.end() || known->second.identity != view.identity || known->second.held == nullptr)
    return;
  held = std::move(known->second.held);
  if (++loose_ > kMostLoose) drop_loose();
}

void Views::drop_loose() {
  std::erase_if(views_, [](const auto& entry) { return entry.second.held == nullptr; });
  loose_ = 0;
}

std::shared_ptr<const HeldPieces> Views::pieces_of(uint64_t identity) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [range, view] : views_)
    if (view.identity == identity) return view.held;
  return nullptr;
}

}  // namespace starling
