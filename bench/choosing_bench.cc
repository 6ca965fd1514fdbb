// What it costs a caller to have its algorithm chosen: the part of a submission that comes before anything is
// given to the GPU or to another rank, of operations of one lane, as their communicator does it.
//
//   known    the whole lowering of a call whose like was called before, among so many that were
//   table    the rows of the built-in table that are gone through to choose (plan/choice.cc)
//   first    the whole lowering of a first call: chosen, and its plan generated and bound
//
// choosing_bench [--ranks N] [--blocks N] [--repetitions R]     prints one JSON object
#include <algorithm>
#include <array>
#include <functional>

#include "comm/lowering.h"
#include "machine/cpu/machine.h"
#include "plan/choice.h"
#include "worker.h"

namespace starling::bench {
namespace {

constexpr std::array kSizes = {size_t(8), size_t(64) << 10, size_t(1) << 20, size_t(64) << 20};
constexpr std::array kShapes = {1u, 16u, 256u};  // that a program calls
constexpr int kCalls = 20'000;

// Nothing is read or written there.
constexpr uintptr_t kInput = uintptr_t(1) << 40, kOutput = uintptr_t(2) << 40;

struct Kind {
  const char* name;
  starling_collective kind;
  bool in_parts;  // count is that of a rank's part
};
constexpr Kind kKinds[] = {{"all_reduce", STARLING_ALL_REDUCE, false},
                           {"all_gather", STARLING_ALL_GATHER, true},
                           {"reduce_scatter", STARLING_REDUCE_SCATTER, true},
                           {"broadcast", STARLING_BROADCAST, false},
                           {"all_to_all", STARLING_ALL_TO_ALL, true}};

struct Group {
  uint32_t ranks, blocks;
};

starling_operation call_of(const Kind& kind, const Group& group, size_t bytes) {
  starling_operation call{};
  call.struct_bytes = sizeof call;
  call.kind = kind.kind;
  call.count = std::max<size_t>(bytes / 4 / (kind.in_parts ? group.ranks : 1), 1);
  call.data_type = STARLING_FLOAT32;
  call.reduce_op = STARLING_SUM;
  call.input = reinterpret_cast<const void*>(kInput);
  call.output = reinterpret_cast<void*>(kOutput);
  return call;
}

LoweringContext context_of(const Group& group, PlanCache& plans, ChosenPlans& chosen) {
  LoweringContext context{0, group.ranks, group.blocks, &plans};
  context.on_gpu = context.readable = context.reads = context.opens = true;
  context.chosen = &chosen;
  return context;
}

double ns_each(int times, const std::function<void()>& call) {
  const uint64_t begin = cpu::monotonic_ns();
  for (int k = 0; k < times; ++k) call();
  return double(cpu::monotonic_ns() - begin) / times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double known_ns(const Kind& kind, const Group& group, size_t bytes, unsigned shapes) {
  PlanCache plans;
  ChosenPlans chosen;
  const LoweringContext context = context_of(group, plans, chosen);
  for (unsigned k = 1; k < shapes; ++k) (void)lower(context, call_of(kind, group, 4096 * k));
  const starling_operation call = call_of(kind, group, bytes);
  (void)lower(context, call);
  return ns_each(kCalls, [&] { (void)lower(context, call); });
}

double table_ns(const Kind& kind, const Group& group, size_t bytes) {
  ChoiceRequest request{Collective(kind.kind), group.ranks, bytes, DataType::kFloat32, group.blocks};
  request.on_gpu = request.pulls = request.one_process = request.pulling_pays = true;
  uint64_t blocks = 0;  // so that nothing is left out
  const double ns = ns_each(kCalls, [&] { blocks += choose(request).block_count; });
  if (blocks == 0) throw std::runtime_error("a choice of no blocks");
  return ns;
}

double first_ns(const Kind& kind, const Group& group, size_t bytes) {
  const starling_operation call = call_of(kind, group, bytes);
  return ns_each(20, [&] {
    PlanCache plans;
    ChosenPlans chosen;
    (void)lower(context_of(group, plans, chosen), call);
  });
}

int run(const Arguments& arguments) {
  const Group group{uint32_t(arguments.number("--ranks", 4)), uint32_t(arguments.number("--blocks", 32))};
  const long repetitions = arguments.number("--repetitions", 5);
  if (group.ranks < 2 || group.ranks > 64 || group.blocks < 1 || group.blocks > 32 || repetitions < 1)
    throw std::runtime_error("2 to 64 ranks, 1 to 32 blocks, and at least 1 repetition");
  const auto of = [&](const std::function<double()>& measure) {
    std::vector<double> each;
    for (long r = 0; r < repetitions; ++r) each.push_back(measure());
    return median(each);
  };
  std::printf("{\"ranks\": %u, \"blocks\": %u, \"calls\": [", group.ranks, group.blocks);
  const char* between = "";
  for (const Kind& kind : kKinds)
    for (const size_t bytes : kSizes) {
      std::printf("%s{\"collective\": \"%s\", \"size_bytes\": %zu", between, kind.name, bytes);
      for (const unsigned shapes : kShapes)
        std::printf(", \"known_%u_ns\": %.1f", shapes,
                    of([&] { return known_ns(kind, group, bytes, shapes); }));
      std::printf(", \"table_ns\": %.1f, \"first_ns\": %.0f}",
                  of([&] { return table_ns(kind, group, bytes); }),
                  of([&] { return first_ns(kind, group, bytes); }));
      between = ", ";
    }
  std::printf("]}\n");
  return 0;
}

}  // namespace
}  // namespace starling::bench

int main(int count, char** texts) {
  try {
    return starling::bench::run(starling::bench::Arguments(count, texts));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "choosing_bench: %s\n", error.what());
    return 2;
  }
}
