#include "comm/carried_copies.h"

#include <algorithm>
#include <atomic>

#include "device/handover.h"
#include "machine/cpu/doorbell.h"

namespace starling {
namespace {

constexpr auto kQueue = device::CopyQueue::kPeers;

uint64_t acquire(const uint64_t& word) {
  return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(std::memory_order_acquire);
}
void release(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
}

}  // namespace

std::byte* CarriedConnector::next_slot() {
  if (under_way() == kMaxCredits) return nullptr;
  if (sends_) {
    // Acquire: pairs with the release of the links' proxy: the grant, which comes when the slot was read
    // there.
    const Credit& credit = channels_->arrivals().credit[0];
    if (begun_ >= acquire(credit.granted)) return nullptr;
    return channels_->slot(channels_->departures(), 0, credit.grants[begun_ % kMaxCredits]);
  }
  // Acquire: pairs with the release of the links' proxy: the message.
  if (begun_ >= acquire(channels_->arrivals().inbox[0].posted)) return nullptr;
  // Slots are granted again in the order in which they were used, so message k is in slot k % slots.
  return channels_->slot(channels_->arrivals(), 0, uint32_t(begun_ % channels_->shape().slots));
}

void CarriedConnector::begun(uint64_t ticket, uint32_t bytes) {
  pieces_[begun_++ % kMaxCredits] = {ticket, bytes};
}

bool CarriedConnector::settle(uint64_t completed) {
  const uint64_t before = settled_;
  const link::carry::Channels::Half& departures = channels_->departures();
  for (; settled_ < begun_ && pieces_[settled_ % kMaxCredits].ticket <= completed; ++settled_) {
    if (sends_) {
      Inbox& inbox = departures.inbox[0];
      inbox.bytes[settled_ % kMaxCredits] = pieces_[settled_ % kMaxCredits].bytes;
      // Release: the copy, which has ended, and its length; the links' proxy acquires.
      release(inbox.posted, settled_ + 1);
    } else {
      const uint32_t slots = channels_->shape().slots;
      Credit& credit = departures.credit[0];
      credit.grants[(settled_ + slots) % kMaxCredits] = uint32_t(settled_ % slots);
      // Release: the entry, and that the slot was read; the links' proxy acquires.
      release(credit.granted, settled_ + 1 + slots);
    }
  }
  if (settled_ != before && door_ != nullptr) cpu::ring(door_);
  return settled_ != before;
}

CarriedStep step(CarriedCopyJob& job, CopyEngine& engine, uint64_t& given) {
  CarriedConnector& connector = *job.connector;
  // Acquire: pairs with the release in write_fault(); nothing hangs on it.
  const bool broken = acquire(*job.fault) != 0;
  // Of a broken lane the operations end in their order, too: an earlier one may have copies under way.
  if (connector.turn() != job.sequence) return CarriedStep::kNothing;
  bool progress = connector.settle(engine.completed(kQueue));
  if (broken) {
    if (connector.under_way() > 0) return CarriedStep::kNothing;
    connector.pass_turn();
    return CarriedStep::kFinished;
  }
  if (!job.begun) {
    // Acquire: pairs with the release of the stream's write: what it did before is done.
    if (job.mark != nullptr && !reached(acquire(*job.mark), job.sequence + 1)) return CarriedStep::kNothing;
    job.begun = progress = true;
  }
  while (job.begun_bytes < job.bytes && !job.failed &&
         given - engine.completed(kQueue) < device::kCopiesUnderWay) {
    std::byte* const slot = connector.next_slot();
    if (slot == nullptr) break;
    const auto bytes = uint32_t(std::min(connector.piece_bytes(), job.bytes - job.begun_bytes));
    std::byte* const at = job.buffer + job.begun_bytes;
    const uint64_t ticket =
        connector.sends() ? engine.copy(kQueue, {slot}, at, bytes) : engine.copy(kQueue, {at}, slot, bytes);
    given = ticket;
    connector.begun(ticket, bytes);
    job.begun_bytes += bytes;
    progress = true;
  }
  progress |= connector.settle(engine.completed(kQueue));
  if (job.begun_bytes < job.bytes || connector.under_way() > 0)
    return progress ? CarriedStep::kProgress : CarriedStep::kNothing;
  connector.pass_turn();
  // Release: all of the message; pairs with the acquire of streams that wait.
  if (job.done != nullptr) release(*job.done, job.sequence + 1);
  return CarriedStep::kFinished;
}

}  // namespace starling
