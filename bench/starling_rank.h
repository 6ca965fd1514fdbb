// One rank of Starling in a process of its own: context and communicator, as the arguments say.
#pragma once
#include <starling/starling.h>

#include <stdexcept>
#include <string>

#include "worker.h"

namespace starling::bench {

inline void check(starling_status status) {
  if (status != STARLING_SUCCESS)
    throw std::runtime_error(std::string(starling_status_name(status)) + ": " + starling_last_error());
}

inline starling_operation operation(starling_collective kind) {
  starling_operation op{};
  op.struct_bytes = sizeof op;
  op.kind = kind;
  op.data_type = STARLING_FLOAT32;
  op.peer = -1;
  return op;
}

// Arguments: --rank --size [--blocks] [--initial-budget NS] [--minimum-budget NS] [--success-factor]
// [--position-shift] [--quit-period NS] [--fixed 1] [--profile 1]. The job is named by STARLING_JOB.
class StarlingRank {
 public:
  explicit StarlingRank(const Arguments& arguments)
      : rank_(int(arguments.number("--rank"))), size_(int(arguments.number("--size"))) {
    starling_context_options options{};
    options.struct_bytes = sizeof options;
    options.blocks = uint32_t(arguments.number("--blocks"));
    options.scheduling.initial_budget_ns = uint64_t(arguments.number("--initial-budget"));
    options.scheduling.minimum_budget_ns = uint64_t(arguments.number("--minimum-budget"));
    options.scheduling.success_factor = uint32_t(arguments.number("--success-factor"));
    options.scheduling.position_shift = uint32_t(arguments.number("--position-shift"));
    options.scheduling.quit_period_ns = uint64_t(arguments.number("--quit-period"));
    options.scheduling.fixed = int32_t(arguments.number("--fixed"));
    check(starling_context_create(&options, &context_));
    if (arguments.number("--profile") != 0) check(starling_context_profile(context_, nullptr));
    starling_comm_options group{};
    group.struct_bytes = sizeof group;
    group.rank = uint32_t(rank_);
    group.size = uint32_t(size_);
    group.name = "bench";
    group.timeout_ns = 60'000'000'000;
    check(starling_comm_create(context_, &group, &comm_));
  }
  ~StarlingRank() {
    starling_comm_destroy(comm_);
    starling_context_destroy(context_);
  }
  StarlingRank(const StarlingRank&) = delete;
  StarlingRank& operator=(const StarlingRank&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  starling_request* submit(const starling_operation& op) {
    starling_request* request = nullptr;
    check(starling_submit(comm_, &op, &request));
    return request;
  }
  static void finish(starling_request* request) {
    const starling_status status = starling_wait(request, -1);
    starling_request_free(request);
    check(status);
  }
  void run(starling_operation op) {
    op.waited = 1;
    finish(submit(op));
  }
  void barrier() { run(operation(STARLING_BARRIER)); }
  void synchronize() { check(starling_context_synchronize(context_)); }

  starling_statistics statistics() {
    starling_statistics counted{};
    counted.struct_bytes = sizeof counted;
    check(starling_context_statistics(context_, &counted));
    return counted;
  }

 private:
  int rank_, size_;
  starling_context* context_ = nullptr;
  starling_comm* comm_ = nullptr;
};

// A benchmark program's main: `make_answer(rank)` gives what answers the commands.
template <class MakeAnswer>
int starling_main(int count, char** texts, MakeAnswer&& make_answer) {
  try {
    const Arguments arguments(count, texts);
    CommandPipes pipes(arguments.text("--pipes"), int(arguments.number("--rank")));
    try {
      StarlingRank rank(arguments);
      auto answer = make_answer(rank, arguments);
      return serve(pipes, answer);
    } catch (const std::exception& error) {
      pipes.reply("\"error\": " + json_text(error.what()));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", texts[0], error.what());
  }
  return 1;
}

}  // namespace starling::bench
