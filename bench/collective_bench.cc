// One rank of Starling under `starling bench`: a process that meets the others in the job's store and
// measures what it is told (collective_worker.h), through the C API. Arguments: starling_rank.h, and
// [--algorithm NAME].
#include <memory>

#include "collective_worker.h"
#include "starling_rank.h"

namespace starling::bench {
namespace {

static_assert(int(DataType::kBool) == STARLING_BOOL && int(ReduceOp::kBxor) == STARLING_BXOR);
constexpr starling_collective kKinds[] = {
    STARLING_ALL_REDUCE, STARLING_ALL_GATHER, STARLING_REDUCE_SCATTER, STARLING_BROADCAST, STARLING_REDUCE,
    STARLING_ALL_TO_ALL, STARLING_GATHER,     STARLING_SCATTER,        STARLING_SEND,      STARLING_BARRIER};

class StarlingLibrary final : public Library {
 public:
  StarlingLibrary(StarlingRank& rank, std::string algorithm)
      : rank_(rank), algorithm_(std::move(algorithm)) {}

  int rank() const override { return rank_.rank(); }
  int size() const override { return rank_.size(); }
  void barrier() override { rank_.barrier(); }

  std::function<void()> prepare(const Call& call) override {
    starling_operation op = operation(kKinds[int(call.kind)]);
    op.input = call.input;
    op.output = call.output;
    op.count = call.count;
    op.data_type = starling_data_type(call.type);
    op.reduce_op = starling_reduce_op(call.op);
    op.root = call.root;
    if (!algorithm_.empty() && call.kind != Kind::kBarrier) op.algorithm = algorithm_.c_str();
    if (call.kind != Kind::kSendRecv) return [this, op] { rank_.run(op); };

    starling_operation receive = op;
    op.peer = (rank() + 1) % size();
    receive.kind = STARLING_RECV;
    receive.peer = (rank() + size() - 1) % size();
    receive.waited = op.waited = 1;
    return [this, op, receive] {
      // Our message is on its way before we wait for the other one.
      starling_request* const sent = rank_.submit(op);
      starling_request* const received = rank_.submit(receive);
      StarlingRank::finish(received);
      StarlingRank::finish(sent);
    };
  }

 private:
  StarlingRank& rank_;
  std::string algorithm_;
};

}  // namespace
}  // namespace starling::bench

int main(int count, char** texts) {
  using namespace starling::bench;
  return starling_main(count, texts, [](StarlingRank& rank, const Arguments& arguments) {
    auto library = std::make_shared<StarlingLibrary>(rank, arguments.text("--algorithm"));
    auto worker = std::make_shared<CollectiveWorker>(*library);
    return [library, worker](const Command& command) { return worker->answer(command); };
  });
}
