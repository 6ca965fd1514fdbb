// A thread that writes large batches into sockets for another thread, which goes on reading others meanwhile:
// to send and to receive are copies by the system, and one thread can only make one at a time.
//
//   owner    pieces ... lend() ──▶ lent: socket's writing side and pieces are the thread's
//   thread   sendmsg() until all is sent, the socket is full, or it is cancelled ──▶ returned (release)
//   owner    returned() (acquire): `sent_bytes` of them went, or `error`
//
// It never waits for a socket: one that is full comes back, and its owner waits as ever.
#pragma once
#include <sys/uio.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace starling::link::tcp {

class BulkSender {
 public:
  static constexpr size_t kPieces = 48;
  struct Batch {
    int fd = -1;
    iovec pieces[kPieces];
    size_t count = 0;
    uint64_t bytes = 0;  // of all pieces
    uint64_t sent_bytes = 0;
    int error = 0;
    std::atomic<bool> cancelled{false};
    std::atomic<bool> lent{false};  // writers: the owner sets it, the thread clears it
  };

  // cores: that its thread may run on; empty: any.
  explicit BulkSender(std::vector<uint32_t> cores = {});
  ~BulkSender();
  BulkSender(const BulkSender&) = delete;
  BulkSender& operator=(const BulkSender&) = delete;

  // The batch stays where it is until it has come back.
  void lend(Batch& batch);
  // Acquire: pairs with the release in run().
  static bool returned(const Batch& batch) { return !batch.lent.load(std::memory_order_acquire); }
  // Returns when the thread has nothing more to do with it: after the call of the system that it is in.
  static void recall(Batch& batch);
  // The socket was read: what came may answer what the batch has sent so far. For ThreadSanitizer alone.
  static void heard(Batch& batch);

 private:
  void run(const std::vector<uint32_t>& cores);
  Batch* next();

  std::mutex mutex_;  // guards all below
  std::condition_variable news_;
  std::deque<Batch*> batches_;
  bool ending_ = false;
  std::atomic<uint64_t> lent_{0};  // so many were lent so far; the thread looks at it before it sleeps
  std::thread thread_;
};

}  // namespace starling::link::tcp
