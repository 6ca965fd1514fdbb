// What the simulator knows of every cell (16 bytes or more) of data: who wrote them last and who read them
// last, as of which clock. An access that is not ordered after the last one that it conflicts with is a race;
// a read of what nobody wrote is an error. Data written into a peer's slots can stay invisible until the next
// release.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "machine/sim/memory.h"
#include "machine/sim/region.h"

namespace starling::sim {

class Shadow {
 public:
  Shadow();

  void reset(Scheduler& scheduler, Memory& memory, const Options& options);

  Region& slots() { return slots_; }  // written by peers
  Region& buffers() { return buffers_; }  // of the application

  // By the running fiber, before it moves the bytes.
  void will_read(const std::byte* from, uint64_t bytes);
  // The same where nobody may have written some of them: what is read there is not used.
  void will_copy(const std::byte* from, uint64_t bytes);
  // Moves them and notes it; into slots perhaps late.
  void write(std::byte* to, const std::byte* from, uint64_t bytes);
  // The bytes are there, and the running fiber wrote them (an application filled its buffer).
  void wrote(const std::byte* at, uint64_t bytes);

  // Threads of a block: a barrier hands what each wrote to whoever releases next.
  void merge(uint32_t unit);

 private:
  struct Cell {
    uint64_t writer;  // generation << 48 | fiber << 32 | clock
    uint64_t reader;
  };
  struct Late {
    std::byte* to;
    size_t at;  // in bytes_
    uint64_t bytes;
    uint32_t fiber;
    bool merged;
    bool done;
  };
  struct Unit {  // late data of a block
    std::vector<Late> late;
    std::vector<std::byte> bytes;
    uint64_t first = 0;  // number of late[0]
    size_t open = 0;
  };

  static uint64_t mark(void* shadow, uint32_t fiber);
  static void publish(void* shadow, uint32_t fiber, uint64_t mark);

  std::span<Cell> cells_of(const std::byte* from, uint64_t bytes) const;
  static bool same(const Cell* last, const Cell& cell) {
    return last != nullptr && last->writer == cell.writer && last->reader == cell.reader;
  }
  static std::span<const Cell> distinct(std::span<const Cell> cells);
  const Region& region_of(const std::byte* p) const;
  uint64_t epoch(uint32_t fiber) const;
  bool ordered(uint64_t epoch, const uint32_t* clock) const {
    return clock[(epoch >> 32) & 0xffff] >= uint32_t(epoch);
  }
  void check_write(const std::byte* to, uint64_t bytes);
  [[noreturn]] void race(const char* what, const std::byte* at, uint64_t epoch);

  Scheduler* scheduler_ = nullptr;
  Memory* memory_ = nullptr;
  Region slots_, buffers_, slot_index_, buffer_index_;
  Cell* slot_cells_;
  Cell* buffer_cells_;
  std::vector<Unit> units_;
  uint64_t generation_ = 0;
  uint64_t cell_bytes_ = 16;
  uint32_t late_chance_ = 0;
};

}  // namespace starling::sim
