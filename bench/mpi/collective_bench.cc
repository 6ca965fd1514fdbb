// One rank of the MPI at hand under `starling bench --compare openmpi`: the same measurement as Starling's
// (collective_worker.h), started by mpirun.
//
//   mpi.collective_bench --pipes FOLDER
#include <mpi.h>

#include "collective_worker.h"

namespace starling::bench {
namespace {

MPI_Datatype type_of(DataType type) {
  switch (type) {
    case DataType::kInt8: return MPI_INT8_T;
    case DataType::kUint8: return MPI_UINT8_T;
    case DataType::kInt16: return MPI_INT16_T;
    case DataType::kUint16: return MPI_UINT16_T;
    case DataType::kInt32: return MPI_INT32_T;
    case DataType::kUint32: return MPI_UINT32_T;
    case DataType::kInt64: return MPI_INT64_T;
    case DataType::kUint64: return MPI_UINT64_T;
    case DataType::kFloat32: return MPI_FLOAT;
    case DataType::kFloat64: return MPI_DOUBLE;
    default: throw Unsupported("MPI has no such type");
  }
}

MPI_Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return MPI_SUM;
    case ReduceOp::kProd: return MPI_PROD;
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    case ReduceOp::kBand: return MPI_BAND;
    case ReduceOp::kBor: return MPI_BOR;
    case ReduceOp::kBxor: return MPI_BXOR;
    default: throw Unsupported("MPI has no such reduction");
  }
}

class MpiLibrary final : public Library {
 public:
  MpiLibrary() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  std::function<void()> prepare(const Call& call) override {
    const MPI_Comm world = MPI_COMM_WORLD;
    const MPI_Datatype type = type_of(call.type);
    const MPI_Op op = op_of(call.op);
    const int count = int(call.count), root = call.root;
    const bool at_root = rank_ == root;
    void* const in = call.input;
    void* const out = call.output;
    void* const in_or_same = call.in_place ? MPI_IN_PLACE : in;
    switch (call.kind) {
      case Kind::kAllReduce: return [=] { MPI_Allreduce(in_or_same, out, count, type, op, world); };
      case Kind::kAllGather: return [=] { MPI_Allgather(in_or_same, count, type, out, count, type, world); };
      case Kind::kReduceScatter:
        // In place, MPI leaves the result at the start of the buffer: another layout than the other
        // libraries'.
        if (call.in_place) throw Unsupported("MPI's in-place layout differs");
        return [=] { MPI_Reduce_scatter_block(in, out, count, type, op, world); };
      case Kind::kBroadcast: return broadcast(call, type);
      case Kind::kReduce: {
        void* const from = call.in_place && at_root ? MPI_IN_PLACE : in;
        return [=] { MPI_Reduce(from, out, count, type, op, root, world); };
      }
      case Kind::kAllToAll: return [=] { MPI_Alltoall(in_or_same, count, type, out, count, type, world); };
      case Kind::kGather: {
        void* const from = call.in_place && at_root ? MPI_IN_PLACE : in;
        return [=] { MPI_Gather(from, count, type, out, count, type, root, world); };
      }
      case Kind::kScatter: {
        void* const to = call.in_place && at_root ? MPI_IN_PLACE : out;
        return [=] { MPI_Scatter(in, count, type, to, count, type, root, world); };
      }
      case Kind::kSendRecv: {
        const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
        return [=] {
          MPI_Sendrecv(in, count, type, next, 0, out, count, type, previous, 0, world, MPI_STATUS_IGNORE);
        };
      }
      case Kind::kBarrier: return [=] { MPI_Barrier(world); };
    }
    throw Unsupported("unknown collective");
  }

 private:
  // MPI broadcasts in place only: out of place, the root copies as well.
  std::function<void()> broadcast(const Call& call, MPI_Datatype type) const {
    const int count = int(call.count), root = call.root;
    const size_t bytes = call.count * data_type_bytes(call.type);
    void* const in = call.input;
    void* const out = call.output;
    const bool copies = !call.in_place && rank_ == root;
    return [=] {
      if (copies) std::memcpy(out, in, bytes);
      MPI_Bcast(out, count, type, root, MPI_COMM_WORLD);
    };
  }

  int rank_ = 0, size_ = 0;
};

}  // namespace
}  // namespace starling::bench

int main(int count, char** texts) {
  using namespace starling::bench;
  MPI_Init(&count, &texts);
  int status = 1;
  try {
    const Arguments arguments(count, texts);
    MpiLibrary library;
    CommandPipes pipes(arguments.text("--pipes"), library.rank());
    CollectiveWorker worker(library);
    status = serve(pipes, [&](const Command& command) { return worker.answer(command); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi.collective_bench: %s\n", error.what());
  }
  MPI_Finalize();
  return status;
}
