#include "machine/sim/registrations.h"

namespace starling::sim {
namespace {

constexpr uint64_t kNowhere = uint64_t(1) << 60;  // an offset to where the simulation has no memory

}  // namespace

void LaneRegistrations::build(World& world, const Options& options, uint32_t size, uint32_t rank,
                              uint32_t numbers) {
  world_ = &world;
  options_ = &options;
  count_ = 0;
  numbers_ = numbers + 1;
  STARLING_ASSERT(numbers_ <= kMaxRegistrations, "a lane of the simulation has too many buffers");
  tables_.clear();
  told_.assign(size, 0);
  open_after_.assign(size, 0);
  if (!options.opens) return;
  Memory& memory = world.memory;
  published_ = memory.region().make<uint64_t>();
  tables_.assign(size, nullptr);
  for (uint32_t peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    // As many entries as are used: the rest of the table is never looked at.
    const size_t head = offsetof(OpenedTable, known);
    tables_[peer] =
        reinterpret_cast<OpenedTable*>(memory.region().allocate(head + numbers_ * sizeof(KnownRegistration)));
    tables_[peer]->told = memory.region().make<OpenedRegistration>(numbers_);
    for (uint32_t n = 0; n < numbers_; ++n) {
      KnownRegistration& known = tables_[peer]->known[n];
      OpenedRegistration& told = tables_[peer]->told[n];
      told.offset = kNowhere;
      // Whichever block comes first.
      for (uint64_t* word : {&known.place, &known.wanted, &told.wanted}) memory.allow_many_writers(word);
    }
  }
}

uint16_t LaneRegistrations::publish(uint32_t count) {
  if (tables_.empty()) return 0;
  SimMachine host(*world_, nullptr, 0, 0);
  const uint64_t first = count_ + 1;
  count_ += count;
  // Release: pairs with the acquire in open().
  host.store_release(published_, count_);
  return uint16_t(first);
}

void LaneRegistrations::open(SimMachine& host, uint32_t peer, const LaneRegistrations& theirs) {
  if (tables_.empty()) return;
  Scheduler& scheduler = world_->scheduler;
  // Acquire: pairs with the release in publish().
  const uint64_t published = host.load_acquire(theirs.published_);
  if (published == told_[peer]) return;
  if (open_after_[peer] == 0)
    open_after_[peer] = scheduler.now() + 1 + scheduler.random().skewed(options_->open_delay_ns);
  if (scheduler.now() < open_after_[peer]) return scheduler.note_deadline(open_after_[peer]);
  open_after_[peer] = 0;
  for (uint64_t number = told_[peer] + 1; number <= published; ++number) {
    OpenedRegistration& told = tables_[peer]->told[number];
    host.store_relaxed(&told.offset, 0);
    // Release: the offset; pairs with the acquire in device/opened.h.
    host.store_release(&told.made, 1);
  }
  told_[peer] = published;
}

bool LaneRegistrations::describes(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  for (const OpenedTable* table : tables_) {
    if (table == nullptr) continue;
    const auto is_in = [&](const auto* first) {
      return p >= reinterpret_cast<const std::byte*>(first) &&
             p < reinterpret_cast<const std::byte*>(first + numbers_);
    };
    if (is_in(table->told) || is_in(table->known)) return true;
  }
  return !tables_.empty() && address == published_;
}

}  // namespace starling::sim
