// One simulated rank of a program with streams: a GPU (gpu.h), the core's host side of stream-ordered
// operations (device/stream_host.h), and the fibers of the host. Operations begin as kernels; the daemon
// comes when it is needed.
//
//   application   puts kernels and operations into streams, synchronizes, waits   \ under the host's lock,
//   but for poller        completes, connects, launches and drains the daemon             / what may stand in
//   the driver GPU           front end, SM slots: start kernels, the daemon, the program's own kernels
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/completion_queue.h"
#include "machine/sim/core.h"
#include "machine/sim/gpu.h"
#include "machine/sim/lane.h"
#include "machine/sim/program.h"

namespace starling::sim {

struct Cluster;

class StreamRank final : public Gpu::Client {
 public:
  void build(Cluster& cluster, uint32_t index);
  void add_fibers();
  void begin();

  std::string describe(const void* address) const;
  std::string leftovers();
  std::string state();

  const DaemonMemory& daemon() const { return *daemon_; }
  uint64_t launches() const { return driver_ ? driver_->launches() : 0; }
  uint64_t synchronizations() const { return synchronizations_; }
  // Rings of the daemon's blocks and of the slots' start kernels.
  std::vector<std::pair<uint32_t, const TraceRing*>> traces() const;
  uint64_t started_as_kernel() const { return by_path_[0]; }

  void run_block(SimMachine& machine, const Kernel& kernel, uint32_t slot, uint32_t thread) override;
  void progressed() override;

 private:
  static void run_application(void* rank) { static_cast<StreamRank*>(rank)->application(); }
  static void run_poller(void* rank) { static_cast<StreamRank*>(rank)->poller(); }

  void make_daemon_memory(uint32_t lane_count);
  void make_lane(uint32_t number);
  void make_traces();

  void application();
  void take(const Step& step);
  void start(const Step& step);
  void put_operation(const Step& step, SimLane& lane, uint64_t index);
  void wait_on_stream(const Step& step);
  void put_kernel(uint32_t stream, Kernel::Kind kind, uint32_t lane, uint64_t index, uint64_t ns = 0,
                  uint32_t blocks = 1);
  void wait_for_all();

  void poller();
  bool poll_once();
  void completed(uint64_t token);
  void open(SimLane& lane);
  void connect();
  void check_timeouts();
  void break_lane(SimLane& lane);
  void fail_waiting(SimLane& lane);
  void finish_ticket(uint32_t lane, uint64_t index);
  bool ended();
  void feed(SimLane& lane);
  void push(const Submission& submission);
  void flush();

  void run_daemon(SimMachine& machine, const Kernel& kernel, uint32_t slot, uint32_t thread);

  void lock();
  void unlock();
  uint64_t outstanding() const { return submitted_ - completed_; }
  uint64_t newest(const SimLane& lane) const;

  Cluster* c_ = nullptr;
  World* w_ = nullptr;
  uint32_t index_ = 0;
  DaemonMemory* daemon_ = nullptr;
  device::CompletionMemory* completions_ = nullptr;
  std::byte* pool_ = nullptr;
  Gpu gpu_;
  std::unique_ptr<StreamDriver> driver_;
  std::vector<SimLane> lanes_;
  std::vector<SimLane*> lane_of_;  // by number of the lane; null: not a member
  std::vector<std::map<uint64_t, StreamTicket>> tickets_;  // per lane: of operations under way
  std::vector<uint64_t> connect_after_;
  std::deque<Submission> unsubmitted_;
  std::vector<std::byte*> block_states_;  // by slot
  std::vector<std::vector<TraceRecord>> records_;
  std::vector<std::vector<TraceRing>> slot_traces_;  // by slot and block
  uint32_t app_fiber_ = 0, poller_fiber_ = 0;

  bool locked_ = false, lock_wanted_ = false;
  std::vector<uint32_t> host_clock_;
  uint64_t submitted_ = 0, completed_ = 0;
  uint64_t by_path_[3] = {};
  uint64_t synchronizations_ = 0;
  bool app_ended_ = false, exit_pushed_ = false;
};

}  // namespace starling::sim
