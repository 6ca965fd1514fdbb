// What ranks do in collectives_program.cc, one round after the other; every element of every result is
// checked.
#pragma once
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "starling/starling.h"
#include "verbs/faults.h"

namespace starling::guest {

inline void check(starling_status status) {
  if (status != STARLING_SUCCESS) throw Failure{starling_last_error()};
}

struct Rank {
  starling_context* context;
  starling_comm* comm;
  uint32_t number;
  uint32_t size;
};

class Request {
 public:
  Request(const Rank& rank, const starling_operation& operation) {
    check(starling_submit(rank.comm, &operation, &request_));
  }
  Request(Request&& other) noexcept : request_(std::exchange(other.request_, nullptr)) {}
  ~Request() { starling_request_free(request_); }
  void wait() { check(starling_wait(request_, -1)); }

 private:
  starling_request* request_ = nullptr;
};

inline starling_operation operation(starling_collective kind, std::vector<float>& input,
                                    std::vector<float>& output) {
  starling_operation operation{};
  operation.struct_bytes = sizeof operation;
  operation.kind = kind;
  operation.input = input.data();
  operation.output = output.data();
  operation.count = input.size();
  operation.data_type = STARLING_FLOAT32;
  operation.reduce_op = STARLING_SUM;
  return operation;
}

inline float value(uint32_t rank, uint32_t round, size_t at) {
  return float((rank * 7 + round * 3 + at) % 1000);
}

inline float sum(uint32_t size, uint32_t round, size_t at) {
  float sum = 0;
  for (uint32_t rank = 0; rank < size; ++rank) sum += value(rank, round, at);
  return sum;
}

// An all-reduce and an all-gather, one after the other.
inline void orderly(const Rank& rank, uint32_t round) {
  constexpr size_t kCounts[] = {1, 700, 20'000, 3};
  const size_t count = kCounts[round % std::size(kCounts)];
  std::vector<float> input(count), sums(count), all(count * rank.size);
  for (size_t at = 0; at < count; ++at) input[at] = value(rank.number, round, at);
  Request(rank, operation(STARLING_ALL_REDUCE, input, sums)).wait();
  Request(rank, operation(STARLING_ALL_GATHER, input, all)).wait();
  for (size_t at = 0; at < count; ++at) {
    if (sums[at] != sum(rank.size, round, at)) throw Failure{"a sum is wrong"};
    for (uint32_t of = 0; of < rank.size; ++of)
      if (all[of * count + at] != value(of, round, at)) throw Failure{"a gathered element is wrong"};
  }
}

// DFCCL §6.1's programs 1 and 2: eight all-reduces, submitted in an order of this rank's own; in program 2
// with a device synchronization after every third.
inline void disordered(const Rank& rank, uint32_t round, bool synchronize) {
  constexpr size_t kCounts[] = {64, 36864, 512, 256, 16384, 36864, 131072, 262144};
  std::vector<size_t> order(std::size(kCounts));
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(round * 1009 + rank.number);
  std::shuffle(order.begin(), order.end(), random);

  std::vector<std::vector<float>> inputs(order.size()), outputs(order.size());
  std::vector<Request> requests;
  for (const size_t which : order) {
    inputs[which].resize(kCounts[which]);
    outputs[which].assign(kCounts[which], -1);
    for (size_t at = 0; at < kCounts[which]; ++at)
      inputs[which][at] = value(rank.number, round + uint32_t(which), at);
    starling_operation all_reduce = operation(STARLING_ALL_REDUCE, inputs[which], outputs[which]);
    const std::string lane = "gradient " + std::to_string(which);
    all_reduce.lane = lane.c_str();
    requests.emplace_back(rank, all_reduce);
    if (synchronize && requests.size() % 3 == 0) check(starling_context_synchronize(rank.context));
  }
  for (Request& request : requests) request.wait();
  for (size_t which = 0; which < order.size(); ++which)
    for (size_t at = 0; at < kCounts[which]; ++at)
      if (outputs[which][at] != sum(rank.size, round + uint32_t(which), at))
        throw Failure{"all-reduce " + std::to_string(which) + ": element " + std::to_string(at) +
                      " is wrong"};
}

inline void program_1(const Rank& rank, uint32_t round) { disordered(rank, round, false); }
inline void program_2(const Rank& rank, uint32_t round) { disordered(rank, round, true); }

}  // namespace starling::guest
