// One rank's end of a starling_comm and what is under way on it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "context.h"
#include "in_flight.h"
#include "store.h"

namespace starling::torch_adapter {

struct CommunicatorOptions {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  std::string name;  // the same on all ranks, another for every group
  std::chrono::milliseconds timeout{};
  std::string device = "cpu";
  std::vector<std::uint64_t> global_ranks = {};  // what messages call the ranks; empty: as they are
  starling_sm_free sm_free = STARLING_SM_FREE_DEFAULT;
};

class Communicator {
 public:
  // Collective: returns when all ranks of the group are there.
  explicit Communicator(const CommunicatorOptions& options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Waits up to `grace` for what is under way, aborts the rest and leaves. The first call counts; no thread
  // may be issuing operations.
  void close(std::chrono::milliseconds grace) noexcept;

  starling_comm* get() const { return comm_; }
  starling_context* context() const { return context_.get(); }
  c10d::Store& store() const { return store_.store(); }
  const std::shared_ptr<InFlight>& in_flight() const { return in_flight_; }

  // Fails everything under way, on every rank. Never throws; the first call counts.
  void abort(const std::string& reason) noexcept;
  void set_timeout(std::chrono::milliseconds timeout);

 private:
  ContextClaim context_;
  StoreView store_;
  starling_comm* comm_ = nullptr;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> closed_ = false;
  std::shared_ptr<InFlight> in_flight_ = std::make_shared<InFlight>();
};

// Made and counted among those that close_all_communicators() closes.
std::shared_ptr<Communicator> make_communicator(const CommunicatorOptions& options);

// At the end of the process: groups that were not destroyed are left in good order, before the interpreter
// and the libraries that they use go.
void close_all_communicators() noexcept;

}  // namespace starling::torch_adapter
