// The proxy of a simulated rank: the thread that has copy engines move what lanes of copies carry, and that
// no other waits for. As comm/copy_proxy.cc is one.
//
//   host  add() ─▶ proxy  steps of all operations it has ─▶ take()  host
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "machine/sim/copy_work.h"
#include "machine/sim/core.h"

namespace starling::sim {

class CopyProxy {
 public:
  struct Finished {
    SimLane* lane;
    uint64_t index;
  };

  // `poller` hears of what is finished.
  void build(World& world, const Core& core, Gpu& gpu);
  void add_fiber(uint32_t rank, uint32_t unit, uint32_t poller);
  void begin();
  bool exists() const { return driver_ != nullptr; }
  void end();

  // ---- by the host's fibers, under its lock
  void add(const CopyWork& work);
  // The next one; false: none.
  bool take(Finished& finished);

 private:
  // What one side of its mutex hands to the other.
  template <class T>
  struct Box {
    std::vector<T> items;
    std::vector<uint32_t> clock;
  };
  static void run_fiber(void* proxy) { static_cast<CopyProxy*>(proxy)->run(); }
  void run();
  template <class T>
  void put(Box<T>& box, const T& item);
  template <class T>
  void learn(const Box<T>& box);

  World* w_ = nullptr;
  std::unique_ptr<CopyDriver> driver_;
  uint32_t fiber_ = 0, poller_ = 0;
  Box<CopyWork> added_;
  Box<Finished> finished_;
  bool ending_ = false;
};

}  // namespace starling::sim
