// Shared memory as a link of the conformance suite: a connector in each direction, as blocks of one host use
// it, with private slots alone or with slots of the rank's pool, as in one long operation. Each rank has a
// segment; its peer writes there through a mapping of its own.
#pragma once
#include <cstring>

#include "device/connector.h"
#include "link/conformance.h"
#include "machine/cpu/arena.h"
#include "machine/cpu/machine.h"

namespace starling::link::conformance {

class SharedRig final : public Rig {
 public:
  static constexpr uint32_t kSlotBytes = 65536;
  static constexpr uint32_t kPrivateSlots = 2;

  SharedRig(const RigOptions& options, uint32_t pool_slots)
      : Rig(options, kSlotBytes), pool_slots_(pool_slots) {
    for (uint32_t from = 0; from < 2; ++from) {
      ends_[from] = std::make_unique<Ends>(arenas_[from], arenas_[1 - from], pool_slots);
      device::deepen(machine_, ends_[from]->lane, ends_[from]->receive, ends_[from]->pool);
    }
  }

  void turn() override {
    ++turns_;
    for (uint32_t from = 0; from < 2; ++from) {
      if (!held_[from]) send(from);
      if (!held_[1 - from]) receive(from);
    }
  }
  uint64_t now_ns() const override { return turns_ * 1000; }
  void offer(uint32_t from, uint64_t end) override { ends_[from]->offered = end; }
  // A source is copied out of when its message is posted; that its slot came back says that it was read.
  uint64_t acked(uint32_t from) const override { return ends_[from]->send.granted_seen - credit(); }
  uint64_t transmitted(uint32_t from) const override { return ends_[from]->send.sent; }
  uint64_t credit() const override { return kPrivateSlots + pool_slots_; }
  void hold(uint32_t rank, bool held) override { held_[rank] = held; }

 private:
  // What HostLane::connect() makes.
  struct Ends {
    Ends(cpu::Arena& from, cpu::Arena& to, uint32_t pool_slots) : theirs(to.name()), ours(from.name()) {
      const uint64_t offset = to.allocate(sizeof(Inbox) + kPrivateSlots * kSlotBytes);
      const uint64_t credit_offset = from.allocate(sizeof(Credit));
      lane.slot_bytes = kSlotBytes;
      lane.sends = &send;
      lane.receives = &receive;
      receive.inbox = reinterpret_cast<Inbox*>(to.at(offset));
      receive.private_slots = to.at(offset + sizeof(Inbox));
      receive.credit = reinterpret_cast<Credit*>(ours.at(credit_offset));
      send.inbox = reinterpret_cast<Inbox*>(theirs.at(offset));
      send.private_slots = theirs.at(offset + sizeof(Inbox));
      send.credit = reinterpret_cast<Credit*>(from.at(credit_offset));
      receive.credit->granted = receive.granted = send.granted_seen = kPrivateSlots;
      for (uint32_t k = 0; k < kPrivateSlots; ++k) receive.credit->grants[k] = receive.grants[k] = k;
      send.connected = receive.connected = 1;
      if (pool_slots == 0) return;
      const uint64_t pool_offset = to.allocate(uint64_t(pool_slots) * kSlotBytes);
      lane.pool_slot_bytes = kSlotBytes;
      pool_memory = to.at(pool_offset);
      send.pool = theirs.at(pool_offset);
      for (uint32_t k = 0; k < pool_slots; ++k) free.push_back(kPoolSlot + k);
      pool = {free.data(), pool_slots, pool_slots};
      receive.expected = UINT64_MAX;
    }
    cpu::PeerArena theirs, ours;
    Lane lane{};
    std::vector<uint32_t> free;
    SlotPool pool{};
    std::byte* pool_memory = nullptr;
    SendEnd send{};
    ReceiveEnd receive{};
    uint64_t offered = 0;
  };

  void send(uint32_t from) {
    Ends& e = *ends_[from];
    e.send.granted_seen = machine_.load_acquire(&e.send.credit->granted);
    if (e.send.sent >= e.offered || !device::can_send(machine_, e.lane, e.send)) return;
    const auto source = traffic[from].source(e.send.sent);
    std::memcpy(device::next_send_slot(e.lane, e.send), source.data(), source.size());
    device::post(machine_, e.send);
  }
  void receive(uint32_t from) {
    Ends& e = *ends_[from];
    if (!device::can_receive(machine_, e.lane, e.receive)) return;
    Traffic& t = traffic[from];
    const uint32_t bytes = t.bytes(e.receive.received);
    std::memcpy(t.place(e.receive.received), device::next_receive_slot(e.lane, e.receive, e.pool_memory),
                bytes);
    t.accept(e.receive.received, bytes);
    device::consume(machine_, e.lane, e.receive, e.pool);
  }

  const uint32_t pool_slots_;
  cpu::Arena arenas_[2] = {cpu::Arena({16 << 20}), cpu::Arena({16 << 20})};
  cpu::CpuMachine machine_{0, {4, 2, 2, 100'000}, nullptr, nullptr};
  std::unique_ptr<Ends> ends_[2];
  bool held_[2] = {false, false};
  uint64_t turns_ = 0;
};

}  // namespace starling::link::conformance
