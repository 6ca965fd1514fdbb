// One simulated rank of a program with streams: a GPU (gpu.h), the core's host side of stream-ordered
// operations (device/stream_host.h), and the fibers of the host. Operations begin as kernels; the daemon
// comes when it is needed.
//
//   application   puts kernels and operations into streams, synchronizes, waits   \ under the host's lock,
//   but for poller        completes, connects, launches and drains the daemon             / what may stand in
//   the driver GPU           front end, SM slots: start kernels, the daemon, the program's own kernels
//   proxy         carries what goes to ranks of other hosts (proxy.h)
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "machine/sim/cluster.h"
#include "machine/sim/copy_proxy.h"
#include "machine/sim/gpu.h"
#include "machine/sim/graphs.h"
#include "machine/sim/lane_table.h"
#include "machine/sim/proxy.h"
#include "machine/sim/rank_core.h"

namespace starling::sim {

class StreamRank final : public RankCore, private Gpu::Client {
 public:
  void build(Cluster& cluster, uint32_t index);
  void add_fibers();
  void begin();

  std::string describe(const void* address) const;
  std::string leftovers();
  std::string state() const;

  uint64_t launches() const { return driver_ ? driver_->launches() : 0; }
  // Rings of the daemon's blocks and of the slots' start kernels.
  std::vector<std::pair<uint32_t, const TraceRing*>> traces() const;
  uint64_t started_as_kernel() const { return by_path_[0]; }
  uint64_t taken_by_kernel() const { return taken_by_kernel_; }
  uint64_t replayed() const { return replayed_; }
  uint64_t carried() const { return has_proxy() ? proxy_.messages() : 0; }
  uint64_t copied() const { return copied_; }
  // Writers of counters that a rank has.
  static uint32_t unit_count(const Options& options) { return options.sm_slots + 3; }

 private:
  std::string place_text(SimLane& lane) const;
  void make_handovers();
  void make_parked_rings();
  void make_traces();
  uint32_t first_unit() const { return index_ * unit_count(*o_); }

  void run_block(SimMachine& machine, const Kernel& kernel, uint32_t slot, uint32_t thread) override;
  void run_daemon(SimMachine& machine, const Kernel& kernel, uint32_t slot, uint32_t thread);
  void progressed() override;

  void application() override;
  void take(const Step& step);
  void start(std::span<const Step> together);
  void start_apart(std::span<const Step> together);
  void submit(SimLane& lane);
  bool begin_as_kernel(SimLane& lane);
  void wait_for_call(const SimLane& lane, uint64_t index);
  struct Starting {
    const Step* step;
    SimLane* lane;
    uint64_t index;
    uint8_t box = 0;  // StreamRequest
  };
  void put_operations(std::vector<Starting>& all);
  StreamRequest request_of(const Starting& one, bool room, uint32_t before) const;
  StreamEntering enter(const Starting& one, bool joins);
  void wait_on_stream(const Step& step);
  void replay(uint32_t graph);

  // ---- lanes of copies (stream_copies.cc)
  void start_copies(const Step& step, SimLane& lane);
  void feed(SimLane& lane) override;
  void submit_met(SimLane& lane);
  bool take_copied();
  bool calls_missing() const;
  void wake_watches();
  bool any_called() const;
  void look_after_copies();
  void keep(SimLane& lane);
  void reuse_given_back();
  uint64_t kept() const;

  void put_kernel(uint32_t stream, Kernel::Kind kind, uint32_t lane, uint64_t index, uint64_t ns = 0,
                  uint32_t blocks = 1);
  void wait_for_all();

  bool poll_once() override;
  bool ended() override;
  void end_fibers() override;
  SimLane* lane_numbered(uint64_t number) override { return lanes_.at(number); }
  Expected& expected_of(uint64_t lane) override { return c_->expected[lane]; }
  bool take_told();
  bool take_told_captured(SimLane& lane);
  void completed(SimLane& lane, uint64_t index, bool faulty) override;
  Submission place(SimLane& lane) override;
  void fail_waiting(SimLane& lane);
  void finish_ticket(uint32_t lane, uint64_t index);
  bool has_proxy() const { return o_->hosts > 1; }
  uint64_t newest(const SimLane& lane) const;

  Cluster* c_ = nullptr;
  LaneTable lanes_;
  Gpu gpu_;
  RankGraphs graphs_;
  Proxy proxy_;
  std::unique_ptr<StreamDriver> driver_;
  static constexpr uint32_t kNoStream = ~0u;
  std::vector<uint32_t> last_kernels_;  // per lane: the stream where its last operation began as a kernel
  std::vector<std::map<uint64_t, StreamTicket>> tickets_;  // per lane: of operations under way
  std::vector<std::map<uint64_t, Submission>> meeting_;  // per lane: of rendezvous, by operation
  std::vector<uint32_t> before_streams_;  // per lane: operations before the first on a stream
  uint32_t first_call_stream_ = 0;
  std::vector<uint8_t> boxes_taken_;  // as CallStream::taken
  AloneWords* alone_ = nullptr;  // StreamFacts::alone
  std::vector<std::byte*> block_states_;  // by slot
  std::vector<std::vector<TraceRecord>> records_;
  std::vector<std::vector<TraceRing>> slot_traces_;  // by slot and block
  uint64_t by_path_[5] = {};
  uint64_t taken_by_kernel_ = 0;
  uint64_t replayed_ = 0;  // operations
  CopyProxy copy_proxy_;  // where the program has lanes of copies
  bool all_given_back_ = true;
  bool aborted_ = false;
  uint64_t copied_ = 0;  // operations
};

}  // namespace starling::sim
