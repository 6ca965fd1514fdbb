// The three completion queues of DFCCL section 5 beside each other: several blocks publish, one poller pops.
// Throughput: all publish as fast as they can. Latency: one publishes now and then; from before its publish
// to after the poller's pop. Prints one JSON object.
//
//   completion_queue_bench [--producers P] [--items N] [--capacity C] [--repetitions R]
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "device/completion_queue.h"
#include "machine/cpu/machine.h"
#include "worker.h"

namespace starling::bench {
namespace {

using device::CompletionQueueKind;
constexpr const char* kNames[] = {"ring", "packed_ring", "slots"};
constexpr cpu::WaitPolicy kPolicy{};

class Queue {
 public:
  explicit Queue(uint64_t capacity) : entries_(capacity, 0) {
    memory_.capacity = capacity;
    memory_.entries = entries_.data();
    memory_.head = &head_;
  }
  device::CompletionMemory& memory() { return memory_; }

 private:
  std::vector<uint64_t> entries_;
  alignas(64) uint64_t head_ = 0;
  device::CompletionMemory memory_{};
};

struct Throughput {
  double publish_ns;     // of one successful publish with its retries, mean over producers
  double item_ns;        // wall time over all items
  double retries;        // an item
  bool every_item_once;  // what came out is what went in
};

Throughput measure_throughput(CompletionQueueKind kind, int producers, uint64_t items, uint64_t capacity) {
  Queue queue(capacity);
  std::atomic<bool> start{false};
  std::atomic<uint64_t> retries{0}, publish_ns{0};
  std::vector<std::thread> threads;
  for (int p = 0; p < producers; ++p) {
    threads.emplace_back([&, p] {
      cpu::CpuMachine machine(uint32_t(p), kPolicy, nullptr, nullptr);
      while (!start.load(std::memory_order_acquire)) sched_yield();
      uint64_t mine = 0;
      const uint64_t began = cpu::monotonic_ns();
      for (uint64_t k = 0; k < items; ++k) {
        while (!device::publish(machine, kind, queue.memory(), k * uint64_t(producers) + uint64_t(p) + 1,
                                uint32_t(p))) {
          ++mine;
          if (mine % 16 == 0) sched_yield();  // more threads than cores: let the poller run
        }
      }
      publish_ns += cpu::monotonic_ns() - began;
      retries += mine;
    });
  }
  cpu::CpuMachine poller(0, kPolicy, nullptr, nullptr);
  const uint64_t total = items * uint64_t(producers);
  std::vector<bool> seen(total + 1, false);
  bool once = true;
  const uint64_t began = cpu::monotonic_ns();
  start.store(true, std::memory_order_release);
  for (uint64_t taken = 0; taken < total;) {
    uint64_t token = 0;
    if (!device::pop(poller, kind, queue.memory(), token)) {
      sched_yield();
      continue;
    }
    once = once && token >= 1 && token <= total && !seen[token];
    if (token <= total) seen[token] = true;
    ++taken;
  }
  const double wall_ns = double(cpu::monotonic_ns() - began);
  for (std::thread& thread : threads) thread.join();
  return {double(publish_ns) / double(total), wall_ns / double(total), double(retries) / double(total), once};
}

struct Latency {
  double median_ns, p99_ns;
  double publish_median_ns;  // the block's own cost, alone on the queue
};

Latency measure_latency(CompletionQueueKind kind, uint64_t items, uint64_t capacity) {
  Queue queue(capacity);
  std::vector<double> publishing;
  std::atomic<uint64_t> published_at{0};
  std::atomic<uint64_t> acknowledged{0};
  std::thread producer([&] {
    cpu::CpuMachine machine(0, kPolicy, nullptr, nullptr);
    for (uint64_t k = 1; k <= items; ++k) {
      const uint64_t began = cpu::monotonic_ns();
      published_at.store(began, std::memory_order_relaxed);
      while (!device::publish(machine, kind, queue.memory(), k, 0)) sched_yield();
      publishing.push_back(double(cpu::monotonic_ns() - began));
      while (acknowledged.load(std::memory_order_acquire) < k) cpu::relax();
    }
  });
  cpu::CpuMachine poller(0, kPolicy, nullptr, nullptr);
  std::vector<double> latencies;
  for (uint64_t k = 1; k <= items; ++k) {
    uint64_t token = 0;
    while (!device::pop(poller, kind, queue.memory(), token)) cpu::relax();
    latencies.push_back(double(cpu::monotonic_ns() - published_at.load(std::memory_order_relaxed)));
    acknowledged.store(k, std::memory_order_release);
  }
  producer.join();
  std::sort(latencies.begin(), latencies.end());
  std::sort(publishing.begin(), publishing.end());
  return {latencies[items / 2], latencies[items * 99 / 100], publishing[items / 2]};
}

template <class Result, class Field>
double median_of(std::vector<Result>& results, Field field) {
  std::sort(results.begin(), results.end(),
            [&](const Result& a, const Result& b) { return a.*field < b.*field; });
  return results[results.size() / 2].*field;
}

// The kinds in turns, repetition by repetition; medians.
int run(const Arguments& arguments) {
  const int producers = int(arguments.number("--producers", 4));
  const auto items = uint64_t(arguments.number("--items", 100'000));
  const auto capacity = uint64_t(arguments.number("--capacity", 1024));
  const long repetitions = arguments.number("--repetitions", 5);
  if (producers < 1 || items < 100 || (capacity & (capacity - 1)) != 0 || capacity < 2 || repetitions < 1)
    throw std::runtime_error(
        "at least 1 producer, 100 items, 1 repetition; a capacity that is a power of two");
  std::vector<Throughput> throughputs[3];
  std::vector<Latency> latencies[3];
  for (long r = 0; r < repetitions; ++r) {
    for (uint32_t kind = 0; kind < 3; ++kind) {
      throughputs[kind].push_back(measure_throughput(CompletionQueueKind(kind), producers, items, capacity));
      latencies[kind].push_back(measure_latency(CompletionQueueKind(kind), items / 10, capacity));
    }
  }
  bool right = true;
  std::printf("{\"producers\": %d, \"items\": %lu, \"capacity\": %lu, \"queues\": [", producers,
              static_cast<unsigned long>(items), static_cast<unsigned long>(capacity));
  for (uint32_t kind = 0; kind < 3; ++kind) {
    auto& t = throughputs[kind];
    auto& l = latencies[kind];
    for (const Throughput& one : t) right = right && one.every_item_once;
    std::printf("%s{\"queue\": \"%s\", %s, %s, %s, %s, %s, %s}", kind == 0 ? "" : ", ", kNames[kind],
                json_number("publish_alone_ns", median_of(l, &Latency::publish_median_ns)).c_str(),
                json_number("publish_contended_ns", median_of(t, &Throughput::publish_ns)).c_str(),
                json_number("item_ns", median_of(t, &Throughput::item_ns)).c_str(),
                json_number("retries_per_item", median_of(t, &Throughput::retries)).c_str(),
                json_number("latency_median_ns", median_of(l, &Latency::median_ns)).c_str(),
                json_number("latency_p99_ns", median_of(l, &Latency::p99_ns)).c_str());
  }
  std::printf("], \"every_item_once\": %s}\n", right ? "true" : "false");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace starling::bench

int main(int count, char** texts) {
  try {
    return starling::bench::run(starling::bench::Arguments(count, texts));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "completion_queue_bench: %s\n", error.what());
    return 2;
  }
}
