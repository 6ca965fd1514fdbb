#include "machine/sim/departures.h"

namespace starling::sim {

void Departures::build(World& world, uint32_t size, uint32_t channels) {
  world_ = &world;
  size_ = size;
  channels_ = channels;
  slots_.assign(size * channels, nullptr);
  if (size == 0) return;
  Region& region = world.memory.region();
  inboxes_ = region.make<Inbox>(size * channels);
  credits_ = region.make<Credit>(size * channels);
  met_ = region.make<uint64_t>(size);
  broken_ = region.make<uint64_t>(size);
}

void Departures::make(const Connection& connection, uint64_t first, uint32_t slot_bytes) {
  const uint32_t end = connection.peer * channels_ + connection.channel;
  if (slots_[end] != nullptr) return;
  slots_[end] = world_->shadow.slots().allocate(uint64_t(kMaxCredits) * slot_bytes);
  inboxes_[end].posted = first;
  credits_[end].granted = first + kMaxCredits;
  for (uint32_t g = 0; g < kMaxCredits; ++g) credits_[end].grants[(first + g) % kMaxCredits] = g;
  Memory& memory = world_->memory;
  memory.allow_one_reader(&inboxes_[end].posted);
  memory.allow_one_reader(&credits_[end].granted);
}

std::string Departures::describe(const void* address, uint32_t slot_bytes) const {
  const auto* p = static_cast<const std::byte*>(address);
  const auto within = [&](const void* array, uint64_t bytes) {
    return p >= array && p < static_cast<const std::byte*>(array) + bytes;
  };
  const uint64_t ends = slots_.size();
  if (ends == 0) return "";
  if (within(inboxes_, ends * sizeof(Inbox))) return "posted, to another host";
  if (within(credits_, ends * sizeof(Credit))) return "granted, to another host";
  if (within(met_, size_ * sizeof(uint64_t))) return "a peer on another host is there";
  if (within(broken_, size_ * sizeof(uint64_t))) return "a peer on another host shall hear of a fault";
  for (const std::byte* slots : slots_)
    if (slots != nullptr && within(slots, uint64_t(kMaxCredits) * slot_bytes))
      return "departing slot, to another host";
  return "";
}

}  // namespace starling::sim
