// What the window monitor costs. Prints one JSON object.
//
//   recorder   a proxy that posts 100,000 transfers a second, in bursts of a millisecond's, and hears that
//              they landed: its CPU time with and without records (two looks at the clock and a record each)
//   flow       the same in a real flow over loopback, both ends on one thread, as fast as it goes; with all
//   that
//              recording adds at either end: the system's stamps, and reports that say when transfers came
//   watcher    what following the path costs, in the watcher's own thread, and what it costs the proxy
//
//   monitor_bench [--seconds S] [--rounds R] [--rate N]
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "link/tcp/receiving_flow.h"
#include "link/tcp/sending_flow.h"
#include "machine/cpu/futex.h"
#include "monitor/flow_recorder.h"
#include "monitor/publish.h"
#include "monitor/watcher.h"

namespace starling::bench {
namespace {

using namespace link;
using namespace link::tcp;

uint64_t thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The proxy's part of a burst, without and with records. What is not recorded still has a sequence.
void burst(monitor::FlowRecorder& recorder, uint64_t& sequence, uint64_t count) {
  constexpr uint64_t kWindow = 32;
  for (uint64_t k = 0; k < count; k += kWindow) {
    const uint64_t some = std::min(kWindow, count - k);
    for (uint64_t i = 0; i < some; ++i) {
      if (recorder.on()) recorder.posted(0, sequence + i, 4096, cpu::monotonic_ns());
      asm volatile("" ::: "memory");
    }
    // Reports come one by one where the network is slow, many at once where it is fast: the dear case.
    for (uint64_t i = 0; i < some; ++i) {
      if (recorder.on()) recorder.landed(sequence + i + 1, 0, cpu::monotonic_ns());
      asm volatile("" ::: "memory");
    }
    sequence += some;
  }
}

// CPU time of this thread by time passed, at `rate` transfers a second.
double paced_share(monitor::FlowRecorder& recorder, uint64_t rate, double seconds) {
  uint64_t sequence = 0;
  const uint64_t begin = cpu::monotonic_ns(), cpu_begin = thread_cpu_ns();
  const uint64_t end = begin + uint64_t(seconds * 1e9);
  for (uint64_t next = begin; next < end; next += 1'000'000) {
    burst(recorder, sequence, rate / 1000);
    const uint64_t now = cpu::monotonic_ns();
    if (next + 1'000'000 > now) std::this_thread::sleep_for(std::chrono::nanoseconds(next + 1'000'000 - now));
  }
  return double(thread_cpu_ns() - cpu_begin) / double(cpu::monotonic_ns() - begin);
}

// Nanoseconds a transfer, back to back.
double transfer_ns(monitor::FlowRecorder& recorder) {
  constexpr uint64_t kCount = 200'000;
  uint64_t sequence = 0;
  const uint64_t begin = thread_cpu_ns();
  burst(recorder, sequence, kCount);
  return double(thread_cpu_ns() - begin) / kCount;
}

double clock_ns() {
  constexpr int kLooks = 200'000;
  const uint64_t begin = thread_cpu_ns();
  uint64_t sum = 0;
  for (int k = 0; k < kLooks; ++k) sum += cpu::monotonic_ns();
  asm volatile("" ::"r"(sum));
  return double(thread_cpu_ns() - begin) / kLooks;
}

// Both ends of a flow over loopback on this thread.
class LoopbackFlow final : public TransferSource, public TransferSink {
 public:
  // Recorded: its reports say when transfers came, as those of ranks do.
  explicit LoopbackFlow(std::vector<PathRing*> rings) : recorded_(!rings.empty()) {
    const Port lo = usable_ports("lo").front();
    port_ = lo;
    listener_.flow = this;
    listener_.socket = listen_at(port_);
    reactor_.add(listener_.socket.get(), &listener_, false);
    SendingOptions options{1, 2, 1, Policy::kPrimaryBackup, {{lo, port_}}, lengths_, std::move(rings)};
    sender_.emplace(std::move(options), reactor_, *this, cpu::monotonic_ns());
  }

  // CPU nanoseconds a transfer.
  double run(uint64_t count) {
    const uint64_t end = sender_->acked() + count;
    const uint64_t begin = thread_cpu_ns();
    while (sender_->acked() < end) {
      const uint64_t most = std::min(end, sender_->acked() + kFlowWindow);
      if (most > sender_->posted()) sender_->offer(most);
      sender_->pump();
      if (receiver_) receiver_->pump();
      reactor_.poll(1'000'000);
      const uint64_t now = cpu::monotonic_ns();
      sender_->expire(now);
      if (receiver_) receiver_->expire(now);
    }
    return double(thread_cpu_ns() - begin) / double(count);
  }

 private:
  struct Caller final : Watched {
    LoopbackFlow& flow;
    std::unique_ptr<Connection> connection;
    uint64_t watch = 0;
    Caller(LoopbackFlow& of, Descriptor socket)
        : flow(of), connection(std::make_unique<Connection>(std::move(socket))) {}
    void ready(uint32_t) override { flow.greet(*this); }
  };
  struct Listener final : Watched {
    LoopbackFlow* flow = nullptr;
    Descriptor socket;
    void ready(uint32_t) override {
      int error = 0;
      while (Descriptor called = accept_from(socket.get(), error)) {
        Caller& caller = *flow->callers_.emplace_back(std::make_unique<Caller>(*flow, std::move(called)));
        caller.watch = flow->reactor_.add(caller.connection->fd(), &caller, false);
      }
    }
  };

  void greet(Caller& caller) {
    Hello hello{};
    bool whole = false;
    if (caller.connection == nullptr || caller.connection->read_hello(hello, whole) != 0 || !whole) return;
    reactor_.remove(caller.watch, caller.connection->fd());
    if (!receiver_)
      receiver_.emplace(hello.path_count, Policy(hello.policy), 0, lengths_, reactor_, *this,
                        cpu::monotonic_ns(), nullptr, recorded_);
    receiver_->adopt(hello, std::move(caller.connection), port_);
  }

  Outgoing transfer(uint64_t) override {
    Outgoing out;
    out.payload = bytes_;
    out.payload_bytes = sizeof bytes_;
    return out;
  }
  std::byte* destination(const FrameHeader&) override { return landed_; }
  void accept(const FrameHeader&, const std::byte*) override {}

  const bool recorded_;
  TimerLengths lengths_;
  Reactor reactor_;
  Port port_;
  Listener listener_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::byte bytes_[64] = {};
  std::byte landed_[64] = {};
  std::optional<ReceivingFlow> receiver_;
  std::optional<SendingFlow> sender_;
};

double watcher_cpu_ns() {
  rusage all{}, mine{};
  getrusage(RUSAGE_SELF, &all);
  getrusage(RUSAGE_THREAD, &mine);
  const auto ns = [](const timeval& t) { return double(t.tv_sec) * 1e9 + double(t.tv_usec) * 1e3; };
  return ns(all.ru_utime) + ns(all.ru_stime) - ns(mine.ru_utime) - ns(mine.ru_stime);
}

void run(double seconds, int rounds, uint64_t rate) {
  cpu::Arena arena({64 << 20});
  monitor::publish_rank(arena, {"cpu", 8, nullptr, 0, 0});
  monitor::publish_group(arena, {1, 2, "monitor_bench", 0, 2});
  PathRing* ring = monitor::add_path(arena, {1, 0, LinkKind::kTcp, "made"});
  PathRing* real = monitor::add_path(arena, {1, 1, LinkKind::kTcp, "lo"});
  monitor::FlowRecorder off, on(std::vector<PathRing*>{ring});
  LoopbackFlow plain({}), recorded({real});
  plain.run(1000);
  recorded.run(1000);
  std::vector<double> share_off, share_on, share_watched, ns_off, ns_on, flow_off, flow_on, watcher, clock;
  for (int round = 0; round < rounds; ++round) {  // in turns: what else the machine does meets all
    clock.push_back(clock_ns());
    ns_off.push_back(transfer_ns(off));
    ns_on.push_back(transfer_ns(on));
    share_off.push_back(paced_share(off, rate, seconds));
    share_on.push_back(paced_share(on, rate, seconds));
    flow_off.push_back(plain.run(20'000));
    flow_on.push_back(recorded.run(20'000));
    monitor::Watcher watching;
    const double before = watcher_cpu_ns();
    share_watched.push_back(paced_share(on, rate, seconds));
    watcher.push_back((watcher_cpu_ns() - before) / (seconds * 1e9));
  }
  std::printf(
      "{\"rate\": %llu, \"clock_ns\": %.2f, \"transfer_without_ns\": %.2f, \"transfer_with_ns\": %.2f, "
      "\"core_percent_without\": %.3f, \"core_percent_with\": %.3f, \"core_percent_watched\": %.3f, "
      "\"flow_transfer_without_ns\": %.1f, \"flow_transfer_with_ns\": %.1f, \"watcher_core_percent\": "
      "%.3f}\n",
      static_cast<unsigned long long>(rate), median(clock), median(ns_off), median(ns_on),
      100 * median(share_off), 100 * median(share_on), 100 * median(share_watched), median(flow_off),
      median(flow_on), 100 * median(watcher));
}

}  // namespace
}  // namespace starling::bench

int main(int argc, char** argv) {
  double seconds = 0.5;
  int rounds = 5;
  uint64_t rate = 100'000;
  for (int k = 1; k + 1 < argc; k += 2) {
    const std::string_view name = argv[k];
    if (name == "--seconds") seconds = std::atof(argv[k + 1]);
    if (name == "--rounds") rounds = std::atoi(argv[k + 1]);
    if (name == "--rate") rate = uint64_t(std::atoll(argv[k + 1]));
  }
  if (seconds <= 0 || rounds < 1 || rate < 1000) {
    std::fprintf(stderr, "use --seconds above 0, --rounds of 1 or more, --rate of 1000 or more\n");
    return 2;
  }
  starling::bench::run(seconds, rounds, rate);
  return 0;
}
