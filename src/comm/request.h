// One submitted operation, as its caller sees it: a small shared state that the poller completes once.
#pragma once
#include <starling/starling.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/captures.h"
#include "wire/handover.h"

namespace starling {

// Where an operation on a stream is.
struct RequestPlace {
  uint32_t lane;  // its number
  uint64_t sequence;
};

// Of one that a graph has captured.
struct CapturedRequest {
  CapturedPlace place;
  Handover handover;  // of its lane
};

class Request {
 public:
  Request(starling_callback callback, void* user) : callback_(callback), user_(user) {}

  // By whoever ends the operation, once; later calls have no effect. True for the first.
  bool complete(starling_status status, std::string message);

  // Acquire: pairs with the store of done_ in complete(); after it status and message are readable.
  bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  // Only when done.
  starling_status status() const { return status_; }
  const std::string& message() const { return message_; }

  // True if done within timeout_ns; < 0: no limit.
  bool wait(int64_t timeout_ns) const;

  // Whose is the callback? That of the callback thread, unless a waiter has claimed it when the operation
  // ends. Before submission: waiters may.
  void let_waiters_call() { waiters_call_ = callback_ != nullptr; }
  // By a waiter. False: the callback is not its business.
  bool claim_callback() const {
    uint32_t owner = kNobody;
    return waiters_call_ && owner_.compare_exchange_strong(owner, kWaiter);
  }
  // By that waiter, when it leaves. True: it runs the callback; the operation has ended.
  bool keeps_callback() const {
    uint32_t owner = kWaiter;
    return !owner_.compare_exchange_strong(owner, kNobody);
  }
  // By whoever ended the operation, once. True: it hands the callback to the callback thread.
  bool callback_is_ours() const { return callback_ != nullptr && owner_.exchange(kEnded) != kWaiter; }
  void run_callback() const { callback_(status_, message_.c_str(), user_); }

  void set_source(int32_t rank) { source_.store(rank, std::memory_order_relaxed); }
  int32_t source() const { return source_.load(std::memory_order_relaxed); }

  // The caller's handle is the request itself, which keeps itself until the handle is freed. Once each, by
  // the caller: only it reads what is here.
  void give_out(std::shared_ptr<Request> self, starling_context* context) {
    self_ = std::move(self);
    context_ = context;
  }
  starling_context* context() const { return context_; }
  void take_back() { const std::shared_ptr<Request> last = std::move(self_); }

  // Before the submission returns; who has the request from there reads it. None: not on a stream.
  void set_place(const RequestPlace& place) { place_ = place; }
  const std::optional<RequestPlace>& place() const { return place_; }
  // Of an operation that begins as a kernel and that the CPU has called: where the kernel says that it is
  // complete. Once; somebody may wait already, as for a receive from any source. Its words stay where they
  // are, though its lane ends.
  void tell_by(const Handover& handover, uint64_t sequence) {
    told_at_ = sequence + 1;
    // Release: pairs with the acquire in word().
    word_.store(&handover.done[sequence % handover.depth].told, std::memory_order_release);
  }
  // Null: there is none, or not yet.
  uint64_t* word() const { return word_.load(std::memory_order_acquire); }
  // By that word: it is complete, or its lane is broken. Relaxed: a hint, nothing is read because of it.
  bool is_told(uint64_t* word) const {
    return reached(std::atomic_ref<uint64_t>(*word).load(std::memory_order_relaxed), told_at_);
  }
  // As set_place().
  void set_captured(const CapturedPlace& place, const Handover& handover) { captured_ = {place, handover}; }
  const std::optional<CapturedRequest>& captured() const { return captured_; }

 private:
  std::atomic<uint32_t> claimed_{0};
  // 0, then 1. Release: status and message come before; waiters acquire.
  std::atomic<uint32_t> done_{0};
  // A waiter is asleep, or about to be: it stores this, then looks at done_; who completes does the reverse.
  mutable std::atomic<uint32_t> asleep_{0};
  starling_status status_ = STARLING_SUCCESS;
  std::string message_;
  starling_callback callback_;
  void* user_;
  enum : uint32_t { kNobody, kWaiter, kEnded };
  mutable std::atomic<uint32_t> owner_{kNobody};  // of the callback
  bool waiters_call_ = false;
  std::atomic<int32_t> source_{-1};
  std::shared_ptr<Request> self_;
  starling_context* context_ = nullptr;  // which may be gone when it is done
  std::optional<RequestPlace> place_;
  std::optional<CapturedRequest> captured_;
  std::atomic<uint64_t*> word_{nullptr};
  uint64_t told_at_ = 0;
};

using RequestPtr = std::shared_ptr<Request>;

}  // namespace starling
