// What disorder costs: DFCCL section 6.1's program 1, and program 2 with device synchronizations, against the
// same collectives in one order on all ranks. One rank a process (starling_rank.h).
//
//   run order=same|random|latin iterations= synchronize_every= seed=
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "element_values.h"
#include "starling_rank.h"

namespace starling::bench {
namespace {

constexpr size_t kBytes[] = {256, 147456, 2048, 1024, 65536, 147456, 524288, 1048576};
constexpr int kCollectives = 8;

class DisorderedProgram {
 public:
  explicit DisorderedProgram(StarlingRank& rank)
      : rank_(rank), inputs_(kCollectives), outputs_(kCollectives) {
    for (int k = 0; k < kCollectives; ++k) {
      inputs_[k].resize(kBytes[k] / sizeof(float));
      outputs_[k].resize(kBytes[k] / sizeof(float));
      for (size_t i = 0; i < inputs_[k].size(); ++i)
        inputs_[k][i] = float(input_value(ReduceOp::kSum, rank.rank(), i, rank.size()));
      lanes_.push_back("gradient " + std::to_string(k));
    }
  }

  std::string run(const Command& command) {
    const long iterations = command.number("iterations"), every = command.number("synchronize_every");
    std::mt19937 random(unsigned(command.number("seed")) * 1000 + unsigned(rank_.rank()));
    const std::string order = command.text("order");
    iterate(order, 0, every, random);  // lanes are made, everybody is awake
    rank_.barrier();
    const starling_statistics before = rank_.statistics();
    const double start = now_s();
    for (long k = 0; k < iterations; ++k) iterate(order, k, every, random);
    const double seconds = (now_s() - start) / double(iterations);
    const starling_statistics after = rank_.statistics();
    rank_.barrier();
    for (std::vector<float>& output : outputs_) std::fill(output.begin(), output.end(), -1.0f);
    iterate(order, iterations, every, random);
    return json_number("seconds", seconds) + ", " + json_number("wrong", double(wrong_elements())) + ", " +
           json_number("parks", double(after.parks - before.parks)) + ", " +
           json_number("resumes", double(after.resumes - before.resumes)) + ", " +
           json_number("launches", double(after.launches - before.launches)) + ", " +
           json_number("quits_stuck", double(after.quits_stuck - before.quits_stuck));
  }

 private:
  void iterate(const std::string& how, long iteration, long every, std::mt19937& random) {
    int order[kCollectives];
    std::iota(order, order + kCollectives, 0);
    if (how == "random") std::shuffle(order, order + kCollectives, random);
    if (how == "latin")
      std::rotate(order, order + (rank_.rank() + iteration) % kCollectives, order + kCollectives);
    starling_request* requests[kCollectives];
    for (int position = 0; position < kCollectives; ++position) {
      const int k = order[position];
      starling_operation op = operation(STARLING_ALL_REDUCE);
      op.lane = lanes_[k].c_str();
      op.input = inputs_[k].data();
      op.output = outputs_[k].data();
      op.count = inputs_[k].size();
      requests[position] = rank_.submit(op);
      if (every != 0 && (position + 1) % every == 0) rank_.synchronize();
    }
    for (starling_request* request : requests) StarlingRank::finish(request);
  }

  size_t wrong_elements() const {
    size_t wrong = 0;
    for (const std::vector<float>& output : outputs_)
      for (size_t i = 0; i < output.size(); ++i)
        wrong += output[i] != float(reduced_value(ReduceOp::kSum, i, rank_.size()));
    return wrong;
  }

  StarlingRank& rank_;
  std::vector<std::vector<float>> inputs_, outputs_;
  std::vector<std::string> lanes_;
};

}  // namespace
}  // namespace starling::bench

int main(int count, char** texts) {
  using namespace starling::bench;
  return starling_main(count, texts, [](StarlingRank& rank, const Arguments&) {
    auto program = std::make_shared<DisorderedProgram>(rank);
    return [program](const Command& command) { return program->run(command); };
  });
}
