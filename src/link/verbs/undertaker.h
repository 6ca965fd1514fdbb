// Takes apart what fenced channels leave behind, on a thread of its own: to destroy a queue pair, or to
// unregister its memory, can keep a thread in the system for tens of milliseconds, and the thread that fails
// over has a flow to resume. The order of it concerns nobody: after the fence nothing lands and nothing is
// read.
#pragma once
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "link/registration.h"
#include "link/verbs/queue_pair.h"

namespace starling::link::verbs {

// What a channel has of the device.
struct Remains {
  struct Memory {
    std::unique_ptr<std::byte[]> bytes;
    std::unique_ptr<Registered> registered;  // ends before the bytes do
  };

  explicit Remains(const Library& of) : library(of) {}
  Remains(const Remains&) = delete;
  ~Remains();

  const Library& library;
  ibv_comp_channel* events = nullptr;
  ibv_cq* queue = nullptr;
  Memory receives;  // messages that come
  Memory ring;  // the receiver's frames; of the sender, the same bytes as they go out
  std::vector<std::unique_ptr<QueuePair>> pairs;
  std::vector<RegistrationPtr> sources;  // that the queue pairs may still have been reading; end after them
};

class Undertaker {
 public:
  Undertaker() : thread_(start_thread("st-undertaker", [this] { run(); })) {}
  // All is gone when it returns.
  ~Undertaker();
  // Any thread's. Allocates nothing: the entries change lists.
  void bury(std::list<Remains>& remains);
  // Likewise; a registration keeps its place in a list for this.
  void bury(std::list<std::unique_ptr<Registered>>& memory);
  // Returns when it has nothing left.
  void finish();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Remains> waiting_;
  std::list<std::unique_ptr<Registered>> memory_;  // likewise
  bool busy_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace starling::link::verbs
