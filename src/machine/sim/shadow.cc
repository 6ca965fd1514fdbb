#include "machine/sim/shadow.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"

namespace starling::sim {
namespace {

constexpr size_t kDataBytes = size_t(4) << 30;

}  // namespace

Shadow::Shadow()
    : slots_(kDataBytes), buffers_(kDataBytes), slot_index_(kDataBytes), buffer_index_(kDataBytes) {
  slot_cells_ = reinterpret_cast<Cell*>(slot_index_.allocate(64));
  buffer_cells_ = reinterpret_cast<Cell*>(buffer_index_.allocate(64));
}

// Cells are not cleared: those of other generations count as new.
void Shadow::reset(Scheduler& scheduler, Memory& memory, const Options& options) {
  scheduler_ = &scheduler;
  memory_ = &memory;
  // Explored: with the bytes of the last execution, which were the right ones, one that reads too early would
  // be right.
  slots_.reset(options.core_only != 0);
  buffers_.reset(options.core_only != 0);
  if (++generation_ == 0x10000) {
    generation_ = 1;
    slot_index_.forget();
    buffer_index_.forget();
  }
  late_chance_ = options.late_data_chance;
  cell_bytes_ = options.cell_bytes;
  for (Unit& unit : units_) unit = Unit{std::move(unit.late), std::move(unit.bytes), 0, 0};
  for (Unit& unit : units_) {
    unit.late.clear();
    unit.bytes.clear();
  }
  memory.connect(this, &mark, &publish);
}

const Region& Shadow::region_of(const std::byte* p) const {
  if (slots_.contains(p)) return slots_;
  STARLING_ASSERT(buffers_.contains(p), "data outside of the simulation's memory");
  return buffers_;
}

uint64_t Shadow::epoch(uint32_t fiber) const {
  memory_->touch(fiber);
  return generation_ << 48 | uint64_t(fiber) << 32 | memory_->clock(fiber)[fiber];
}

void Shadow::race(const char* what, const std::byte* at, uint64_t other) {
  const Region& region = region_of(at);
  scheduler_->fail(std::string(what) + ": " + memory_->describe(at) + " (" +
                   (&region == &slots_ ? "slots" : "buffers") + " + " + std::to_string(region.offset(at)) +
                   "), the other side was fiber " + std::to_string((other >> 32) & 0xffff));
}

// A cell that is covered in part counts only in slots, where a message never shares one with another.
std::span<Shadow::Cell> Shadow::cells_of(const std::byte* from, uint64_t bytes) const {
  const Region& region = region_of(from);
  const uint64_t begin = region.offset(from), end = begin + bytes;
  const bool slots = &region == &slots_;
  const uint64_t first = (slots ? begin : begin + cell_bytes_ - 1) / cell_bytes_;
  const uint64_t last = (slots ? end + cell_bytes_ - 1 : end) / cell_bytes_;
  return {(slots ? slot_cells_ : buffer_cells_) + first, last > first ? last - first : 0};
}

// Most often all of them have one history, and to look at the first is to look at all.
std::span<const Shadow::Cell> Shadow::distinct(std::span<const Cell> cells) {
  if (cells.size() < 2) return cells;
  const bool alike = std::memcmp(&cells[0], &cells[1], (cells.size() - 1) * sizeof(Cell)) == 0;
  return alike ? cells.first(1) : cells;
}

void Shadow::will_read(const std::byte* from, uint64_t bytes) {
  if (!memory_->checks() || bytes == 0) return;
  const std::span<Cell> cells = cells_of(from, bytes);
  const uint32_t fiber = scheduler_->current_id();
  const uint32_t* clock = memory_->clock(fiber);
  const uint64_t mine = epoch(fiber);
  const std::span<const Cell> looked_at = distinct(cells);
  for (const Cell* last = nullptr; const Cell& cell : looked_at) {
    if (same(std::exchange(last, &cell), cell)) continue;
    if (cell.writer >> 48 != generation_) race("read of what nobody wrote", from, mine);
    if (!ordered(cell.writer, clock))
      race("read of data whose writer is not ordered before", from, cell.writer);
  }
  if (looked_at.size() < cells.size())
    std::fill(cells.begin(), cells.end(), Cell{cells[0].writer, mine});
  else
    for (Cell& cell : cells) cell.reader = mine;
}

void Shadow::will_copy(const std::byte* from, uint64_t bytes) {
  if (!memory_->checks() || bytes == 0) return;
  const uint64_t begin = region_of(from).offset(from), end = begin + bytes;
  uint64_t at = begin;
  for (const Cell& cell : cells_of(from, bytes)) {
    const uint64_t next = std::min((at / cell_bytes_ + 1) * cell_bytes_, end);
    if (cell.writer >> 48 == generation_) will_read(from + (at - begin), next - at);
    at = next;
  }
}

void Shadow::check_write(const std::byte* to, uint64_t bytes) {
  const std::span<Cell> cells = cells_of(to, bytes);
  const uint32_t fiber = scheduler_->current_id();
  const uint32_t* clock = memory_->clock(fiber);
  const uint64_t mine = epoch(fiber);
  for (const Cell* last = nullptr; const Cell& cell : distinct(cells)) {
    if (same(std::exchange(last, &cell), cell)) continue;
    if (cell.writer >> 48 == generation_ && !ordered(cell.writer, clock))
      race("write over data whose writer is not ordered before", to, cell.writer);
    if (cell.reader >> 48 == generation_ && !ordered(cell.reader, clock))
      race("write over data that may still be read", to, cell.reader);
  }
  std::fill(cells.begin(), cells.end(), Cell{mine, 0});
}

void Shadow::wrote(const std::byte* at, uint64_t bytes) {
  if (memory_->checks()) check_write(at, bytes);
}

void Shadow::write(std::byte* to, const std::byte* from, uint64_t bytes) {
  if (memory_->checks()) check_write(to, bytes);
  if (late_chance_ == 0 || !slots_.contains(to) || !scheduler_->random().chance(late_chance_)) {
    std::memcpy(to, from, bytes);
    return;
  }
  const uint32_t fiber = scheduler_->current_id();
  const uint32_t block = memory_->unit(fiber);
  if (units_.size() <= block) units_.resize(block + 1);
  Unit& unit = units_[block];
  unit.late.push_back({to, unit.bytes.size(), bytes, fiber, false, false});
  unit.bytes.insert(unit.bytes.end(), from, from + bytes);
  ++unit.open;
}

void Shadow::merge(uint32_t unit) {
  if (unit >= units_.size() || units_[unit].open == 0) return;
  for (Late& late : units_[unit].late) late.merged = true;
}

uint64_t Shadow::mark(void* shadow, uint32_t fiber) {
  auto* self = static_cast<Shadow*>(shadow);
  const uint32_t block = self->memory_->unit(fiber);
  if (block >= self->units_.size() || self->units_[block].open == 0) return 0;
  const Unit& unit = self->units_[block];
  return unit.first + unit.late.size();
}

// What the fiber wrote, or its block before a barrier, up to the mark.
void Shadow::publish(void* shadow, uint32_t fiber, uint64_t mark) {
  if (mark == 0) return;
  auto* self = static_cast<Shadow*>(shadow);
  Unit& unit = self->units_[self->memory_->unit(fiber)];
  for (uint64_t k = 0; k < unit.late.size() && unit.first + k < mark; ++k) {
    Late& late = unit.late[k];
    if (late.done || !(late.merged || late.fiber == fiber)) continue;
    std::memcpy(late.to, &unit.bytes[late.at], late.bytes);
    late.done = true;
    --unit.open;
  }
  if (unit.open != 0) return;
  unit.first += unit.late.size();
  unit.late.clear();
  unit.bytes.clear();
}

}  // namespace starling::sim
