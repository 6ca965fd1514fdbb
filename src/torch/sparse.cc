// all_reduce of sparse (COO) tensors: ranks have different numbers of entries.
//
//   lane "<lane>/sparse counts"   all_gather of the shape and the number of entries; never waits for a rank
//   at issue lane "<lane>/sparse entries"  all_gather of indices and of values, submitted when the counts are
//   there
//
// The first lane's operations complete in the order of issue, so the second lane's are submitted in it on
// every rank.
#include <memory>
#include <utility>

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/accumulate.h>

#include "backend.h"
#include "lane.h"
#include "tensors.h"

namespace starling::torch_adapter {
namespace {

constexpr const char* kTitle = "starling:all_reduce";

struct SparseReduction {
  at::Tensor tensor;  // the caller's
  at::Tensor indices;  // of this rank, sparse_dim x entries
  at::Tensor values;  // of this rank, entries x dense shape
  at::Tensor descriptions;  // of all ranks: entries, sparse_dim, sizes
  at::Tensor all_indices;  // of all ranks, one after the other
  at::Tensor all_values;
  std::vector<size_t> index_counts, value_counts;  // elements a rank
  std::string lane;
  std::int64_t timeout_ns = 0;
};

using Shared = std::shared_ptr<SparseReduction>;

at::Tensor describe(const at::Tensor& tensor) {
  std::vector<std::int64_t> numbers = {tensor._nnz(), tensor.sparse_dim()};
  numbers.insert(numbers.end(), tensor.sizes().begin(), tensor.sizes().end());
  return at::tensor(numbers, at::kLong);
}

starling_operation all_gather(const SparseReduction& reduction, const at::Tensor& input,
                              const at::Tensor& output) {
  const ElementType element = movable_type(input);
  starling_operation operation{};
  operation.struct_bytes = sizeof(operation);
  operation.kind = STARLING_ALL_GATHER;
  operation.lane = reduction.lane.c_str();
  operation.data_type = element.type;
  operation.input = input.const_data_ptr();
  operation.output = output.data_ptr();
  operation.count = static_cast<size_t>(input.numel()) * element.per_element;
  operation.timeout_ns = reduction.timeout_ns;
  return operation;
}

// Sizes what comes from the others, once their descriptions are there.
void prepare_entries(SparseReduction& reduction, int size) {
  const at::Tensor own = describe(reduction.tensor);
  const auto dense_shape = reduction.values.sizes().slice(1);
  const size_t per_value =
      static_cast<size_t>(c10::multiply_integers(dense_shape)) * movable_type(reduction.values).per_element;
  std::int64_t entries = 0;
  for (int rank = 0; rank < size; ++rank) {
    const at::Tensor described = reduction.descriptions[rank];
    TORCH_CHECK(described.slice(0, 1).equal(own.slice(0, 1)), kTitle, ": rank ", rank,
                " passed a sparse tensor of another shape");
    const auto nnz = described[0].item<std::int64_t>();
    entries += nnz;
    reduction.index_counts.push_back(static_cast<size_t>(nnz * reduction.tensor.sparse_dim()));
    reduction.value_counts.push_back(static_cast<size_t>(nnz) * per_value);
  }
  std::vector<std::int64_t> shape = reduction.values.sizes().vec();
  shape[0] = entries;
  reduction.all_indices = at::empty({entries * reduction.tensor.sparse_dim()}, reduction.indices.options());
  reduction.all_values = at::empty(shape, reduction.values.options());
}

// Entries of all ranks in one tensor; coalescing adds those of equal indices.
void assemble(SparseReduction& reduction) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<at::Tensor> indices;
  std::int64_t offset = 0;
  for (const size_t count : reduction.index_counts) {
    const auto length = static_cast<std::int64_t>(count);
    indices.push_back(
        reduction.all_indices.slice(0, offset, offset + length).view({reduction.tensor.sparse_dim(), -1}));
    offset += length;
  }
  const at::Tensor sum =
      at::sparse_coo_tensor(at::cat(indices, 1), reduction.all_values, reduction.tensor.sizes(),
                            reduction.all_values.options().layout(at::kSparse));
  reduction.tensor.copy_(sum.coalesce());
}

}  // namespace

c10::intrusive_ptr<c10d::Work> Backend::allreduce_sparse(std::vector<at::Tensor>& tensors,
                                                         const c10d::AllreduceOptions& options) {
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, kTitle,
              ": unsupported reduction operation: sparse tensors are summed only");
  TORCH_CHECK(tensors.front().device().is_cpu(), kTitle,
              ": sparse tensors are reduced on the CPU, this one is on ", tensors.front().device(),
              "; move it there, or make it dense");
  const std::shared_ptr<Communicator> communicator = this->communicator();
  const WorkDescription description{
      c10d::OpType::_ALLREDUCE_SPARSE, kTitle, ++sequence_, tensors, tensors, nullptr};
  const auto work = c10::make_intrusive<Work>(getRank(), description, communicator->in_flight());
  const auto counts = c10::make_intrusive<Work>(
      getRank(), WorkDescription{description.type, kTitle, sequence_, {}, {}, nullptr},
      communicator->in_flight());
  const auto reduction = std::make_shared<SparseReduction>();
  reduction->tensor = tensors.front();
  const at::Tensor coalesced = reduction->tensor.detach().coalesce();
  reduction->indices = coalesced._indices().contiguous();
  reduction->values = coalesced._values().contiguous();
  const at::Tensor own = describe(coalesced);
  reduction->descriptions = at::empty({getSize(), own.numel()}, own.options());
  reduction->timeout_ns =
      options.timeout == c10d::kUnsetTimeout ? 0 : std::chrono::nanoseconds(options.timeout).count();
  const std::string lane = current_lane().name.value_or("");
  reduction->lane = lane + "/sparse counts";

  counts->keep(own);
  counts->submit(communicator->get(), all_gather(*reduction, own, reduction->descriptions));
  counts->at_end(
      [work, reduction, lane, comm = communicator->get(), size = getSize()](std::exception_ptr error) {
        try {
          if (error) std::rethrow_exception(error);
          prepare_entries(*reduction, size);
          reduction->lane = lane + "/sparse entries";
          starling_operation indices = all_gather(*reduction, reduction->indices, reduction->all_indices);
          indices.output_counts = reduction->index_counts.data();
          work->submit(comm, indices);
          starling_operation values = all_gather(*reduction, reduction->values, reduction->all_values);
          values.output_counts = reduction->value_counts.data();
          work->submit(comm, values);
          work->at_success([reduction] { assemble(*reduction); });
          work->launch();
        } catch (...) {
          work->fail(std::current_exception());
        }
      });
  counts->launch();
  return work;
}

}  // namespace starling::torch_adapter
