// The owner's side of wire/registration.h: from the caller's buffers to numbers that peers of other processes
// know.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "wire/registration.h"

namespace starling {

// One allocation of a driver.
struct Allocation {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint64_t identity = 0;  // of no other allocation of this process and kind, earlier or later
  uint64_t kind = kDriversHandle;
  bool operator==(const Allocation&) const = default;
};

// What is asked of the driver. Calls of the owner's threads, one at a time.
class Allocations {
 public:
  virtual ~Allocations() = default;
  // The allocation that the buffer is in; none if there is none that other processes could open. Of views:
  // held from now on.
  virtual std::optional<Allocation> find(uint64_t address, uint64_t bytes) = 0;
  // What another process opens it by. Throws Error.
  virtual void export_to(const Allocation& allocation, uint8_t (&handle)[kRegistrationHandleBytes]) = 0;
  // It is not published (any more). One that is gone already is fine.
  virtual void loosen(const Allocation&) {}
};

enum class Need {
  kMay,  // else it bounces
  kMust,  // there is no other way: the memory that buffers bounce in, and what copy engines write
};

// Thread-safe. `table` and `allocations` outlive it.
class OwnRegistrations {
 public:
  static constexpr uint32_t kKeptForMust = 64;

  // What peers have open stays allocated when its owner frees it: `most_bytes` of what may be opened are
  // published or open at a time. Some numbers are kept for what must be.
  OwnRegistrations(RegistrationTable& table, Allocations& allocations, uint64_t most_bytes = UINT64_MAX)
      : table_(table),
        allocations_(allocations),
        most_bytes_(most_bytes),
        known_(kMaxRegistrations),
        must_(kMaxRegistrations) {}

  // The number of the allocation that `bytes` from `memory` on are in, which is published when this returns;
  // 0: other processes cannot open it, or no number or not enough of `most_bytes` is left. The caller keeps
  // the memory until the operations that name it have ended.
  uint16_t number_of(const void* memory, Need need = Need::kMay, uint64_t bytes = 1);

 private:
  bool has_room(const Allocation& allocation);
  uint64_t held_bytes() const;
  uint16_t published_as(const Allocation& allocation) const;
  bool is_there_still(const Allocation& published);
  void retire(uint16_t number);
  // Entries of which `is_gone` says so.
  template <class IsGone>
  void retire_if(IsGone&& is_gone);
  void retire_overlapped(const Allocation& by);
  void retire_what_is_gone();
  // One that nobody has open; 0: none.
  uint16_t take_number(Need need);
  bool publish(uint16_t number, const Allocation& allocation);

  RegistrationTable& table_;
  Allocations& allocations_;
  const uint64_t most_bytes_;
  std::mutex mutex_;  // guards all below, and the table's writing
  std::multimap<uint64_t, uint16_t> by_base_;  // published; views may overlap
  std::vector<Allocation> known_;  // by number
  std::vector<bool> must_;  // by number
  std::vector<uint16_t> retired_;  // with openers perhaps
  std::vector<Allocation> refused_;  // not asked about in each operation
};

}  // namespace starling
