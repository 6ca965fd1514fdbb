#include "link/tcp/bulk_sender.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/thread.h"
#include "machine/cpu/futex.h"

namespace starling::link::tcp {
namespace {

constexpr uint64_t kEagerNs = 200'000;  // without a batch, before it sleeps

// A peer's answer makes a source its owner's again, to write or to free, perhaps before the call of the
// system that sent it returns here. The wire orders that. What the sanitizers put around the call looks at
// the sources when it returns, which is too late: they look here before it, and the call is the system's own.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_read_range(void* from, unsigned long bytes);
extern "C" void __tsan_release(void* token);
extern "C" void __tsan_acquire(void* token);

void note_reading(BulkSender::Batch& batch, const msghdr& header) {
  for (size_t k = 0; k < header.msg_iovlen; ++k)
    __tsan_read_range(header.msg_iov[k].iov_base, header.msg_iov[k].iov_len);
  __tsan_release(&batch);
}
#else
extern "C" void* __asan_region_is_poisoned(void* from, size_t bytes);
extern "C" void __asan_report_load_n(void* at, size_t bytes);

void note_reading(BulkSender::Batch&, const msghdr& header) {
  for (size_t k = 0; k < header.msg_iovlen; ++k)
    if (void* at = __asan_region_is_poisoned(header.msg_iov[k].iov_base, header.msg_iov[k].iov_len))
      __asan_report_load_n(at, 1);
}
#endif

ssize_t send_some(BulkSender::Batch& batch, const msghdr& header) {
  note_reading(batch, header);
  return syscall(SYS_sendmsg, batch.fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}
#else
ssize_t send_some(BulkSender::Batch& batch, const msghdr& header) {
  return sendmsg(batch.fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
}
#endif

// What is left begins so many bytes later.
void skip(iovec*& piece, size_t& count, size_t bytes) {
  while (count > 0 && bytes >= piece->iov_len) {
    bytes -= piece->iov_len;
    ++piece;
    --count;
  }
  if (count == 0) return;
  piece->iov_base = static_cast<char*>(piece->iov_base) + bytes;
  piece->iov_len -= bytes;
}

void send_all(BulkSender::Batch& batch) {
  iovec* piece = batch.pieces;
  size_t count = batch.count;
  // Relaxed: who cancels waits for the batch.
  while (count > 0 && !batch.cancelled.load(std::memory_order_relaxed)) {
    msghdr header{};
    header.msg_iov = piece;
    header.msg_iovlen = count;
    const ssize_t done = send_some(batch, header);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      batch.error = errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
      return;
    }
    batch.sent_bytes += uint64_t(done);
    skip(piece, count, size_t(done));
  }
}

}  // namespace

BulkSender::BulkSender(std::vector<uint32_t> cores)
    : thread_(start_thread("st-send", [this, cores = std::move(cores)] { run(cores); })) {}

BulkSender::~BulkSender() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  news_.notify_one();
  thread_.join();
}

void BulkSender::lend(Batch& batch) {
  batch.sent_bytes = 0;
  batch.error = 0;
  batch.cancelled.store(false, std::memory_order_relaxed);
  batch.lent.store(true, std::memory_order_relaxed);  // the lock below hands it over
  {
    std::lock_guard lock(mutex_);
    batches_.push_back(&batch);
    lent_.fetch_add(1, std::memory_order_relaxed);
  }
  news_.notify_one();
}

void BulkSender::recall(Batch& batch) {
  batch.cancelled.store(true, std::memory_order_relaxed);
  while (!returned(batch)) sched_yield();
}

void BulkSender::heard([[maybe_unused]] Batch& batch) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(&batch);
#endif
}

BulkSender::Batch* BulkSender::next() {
  const uint64_t since = cpu::monotonic_ns();
  uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const bool eager = cpu::monotonic_ns() - since < kEagerNs;
      if (!eager) news_.wait(lock, [this] { return ending_ || !batches_.empty(); });
      if (!batches_.empty()) {
        Batch* const batch = batches_.front();
        batches_.pop_front();
        return batch;
      }
      if (ending_) return nullptr;
      seen = lent_.load(std::memory_order_relaxed);
    }
    // Relaxed: the lock is taken before anything is read.
    while (lent_.load(std::memory_order_relaxed) == seen && cpu::monotonic_ns() - since < kEagerNs)
      sched_yield();
  }
}

void BulkSender::run(const std::vector<uint32_t>& cores) {
  pin_this_thread(cores);
  while (Batch* const batch = next()) {
    send_all(*batch);
    // Release: what was sent, and that we read no source any more; pairs with returned().
    batch->lent.store(false, std::memory_order_release);
  }
}

}  // namespace starling::link::tcp
