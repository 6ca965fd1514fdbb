// How the ranks of a broken lane let go of each other's memory: each one's host says to each peer that its
// blocks are through. Until a peer has said so its blocks may be amid an instruction that writes into our
// slots, or reads the buffers that our messages named, or writes into the places that we lent (protocol
// pull). Host code of a Machine, so that the simulator runs it too. Who waits for whom: comm/broken_lane.cc.
#pragma once
#include "device/machine.h"

namespace starling::device {

// By the host, once it knows of the fault: no operation comes to the device from then on. `on_device`: those
// of the lane whose completions the host has not read. False: blocks may still be at them. `out`: the peer's
// word for us, in its memory.
template <class M>
bool withdraw(M& m, uint64_t on_device, uint64_t* out) {
  if (on_device != 0) return false;
  // Release: all that our blocks wrote to this peer, and read of it, came before, by the completions that the
  // host has read; pairs with the acquire in has_withdrawn().
  m.store_release(out, 1);
  return true;
}

// `out`: our word for the peer. After it slots that were lent to the peer, and buffers that it could read,
// are ours alone.
template <class M>
bool has_withdrawn(M& m, const uint64_t* out) {
  // Acquire: pairs with the release in withdraw(); the peer's last access came before.
  return m.load_acquire(out) != 0;
}

}  // namespace starling::device
