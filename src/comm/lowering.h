// From a call to an operation bound to a plan. One file per collective (all_reduce.cc, ...) says what its
// buffers are, which plan it takes, and what ranks must agree on; lowering.cc does what they share.
#pragma once
#include <starling/starling.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/chosen_plans.h"
#include "comm/host_layout.h"
#include "plan/added.h"
#include "plan/cache.h"
#include "plan/plan.h"
#include "plan/table.h"
#include "wire/arena.h"
#include "wire/operation.h"

namespace starling {

// What lowering may know of the rank and its group.
struct LoweringContext {
  uint32_t rank;
  uint32_t size;
  uint32_t block_limit;
  PlanCache* plans;
  bool on_gpu = false;
  const AddedPlans* added = nullptr;  // the communicator's own; null: none
  const TopologyTable* table = nullptr;  // measured for such a group; null: none
  bool one_process = false;  // all ranks: their blocks address each other's buffers
  bool readable = false;  // all ranks: their blocks can copy out of each other's buffers
  bool reads = false;  // all ranks: what is large, unless told otherwise
  ChosenPlans* chosen = nullptr;  // of the communicator: earlier choices; null: none are kept
  bool opens = false;  // all ranks: their blocks address what the others have registered ...
  bool opens_if_faster = false;  // ... but only where that was measured to be faster
  bool across_hosts = false;  // the lane's ranks are not all of one
  const HostLayout* hosts = nullptr;  // of the group; null: one, or of no account
  uint32_t channel_limit = UINT32_MAX;  // of the lane, if it can have no more
};

// SmFree::kBySize: messages from here on go by copy engines, and other operations from here on, all ranks'
// parts together. Below, their handshakes cost more than blocks take.
inline constexpr uint64_t kSmFreeBytes = 2 << 20;
inline constexpr uint64_t kSmFreeCollectiveBytes = 8 << 20;

// Everything of an operation but its place in the lane.
struct Lowered {
  std::shared_ptr<const Plan> plan;
  Operation operation{};                    // without sequence, tiles, fence and token
  Signature signature{};                    // without position
  std::vector<GroupExtent> input_groups;    // referenced by operation.buffers; v-variants only
  std::vector<GroupExtent> output_groups;
  std::vector<Traffic> traffic;             // per peer; varying operations only
  bool own_buffer = false;  // barrier: its lane gives it what it reduces
  bool opens = false;  // ranks of other processes read or write each other's buffers
  Offer offered;  // then: what they touch
  std::shared_ptr<const void> bounced;  // memory that they read in place of a buffer
  bool by_copies = false;  // no block moves its messages, but a copy engine (comm/copies.cc)
  uint64_t size_class_bytes = 0;  // the same on all ranks: from it a new lane takes its slot size
  uint64_t largest_group_bytes = 0;
  uint64_t count = 0;  // as the caller said it, for messages
  bool reduces = false;
};

// "all_reduce of 1024 float32, sum": for messages. Not kept in Lowered: most operations need none.
std::string text_of(const Lowered& lowered);

// For the flight record; of unequal parts what this rank sends.
uint64_t bytes_of(const Lowered& lowered);

// Throws Error(invalid_argument | unsupported) that names the argument and the remedy.
Lowered lower(const LoweringContext& context, const starling_operation& call);

// ---- for the files of the collectives ------------------------------------------------------------------

// One side of a call.
struct Side {
  const void* base = nullptr;
  uint64_t group_bytes = 0;  // uniform
  const size_t* counts = nullptr;  // v-variant: elements per rank
  const size_t* offsets = nullptr;
};

// What a collective's file decides.
struct Shape {
  Collective collective;
  bool reduces = false;
  uint32_t root = 0;
  Side input{};
  Side output{};
  bool in_place = false;
  uint64_t choice_bytes = 0;  // nccl-tests' size of the operation, the same on all ranks
  bool varying = false;  // counts differ from rank to rank: compare pair by pair
};

Shape all_reduce_shape(const LoweringContext&, const starling_operation&);
Shape all_gather_shape(const LoweringContext&, const starling_operation&);
Shape reduce_scatter_shape(const LoweringContext&, const starling_operation&);
Shape broadcast_shape(const LoweringContext&, const starling_operation&);
Shape reduce_shape(const LoweringContext&, const starling_operation&);
Shape all_to_all_shape(const LoweringContext&, const starling_operation&);
Shape gather_shape(const LoweringContext&, const starling_operation&);
Shape scatter_shape(const LoweringContext&, const starling_operation&);
Shape send_recv_shape(const LoweringContext&, const starling_operation&);
Shape barrier_shape(const LoweringContext&, const starling_operation&);
Shape custom_shape(const LoweringContext&, const starling_operation&);

// Throws Error(unsupported) where a plan for equal parts meets a table of counts.
void check_parts(const Plan& plan, const Shape& shape);

uint64_t element_bytes(const starling_operation& call);
uint64_t message_bytes(const starling_operation& call);  // call.count elements
uint64_t sum_of_counts(const size_t* counts, uint32_t size);
// Elements up to the end of the last part; offsets null: one after the other.
uint64_t end_of_parts(const size_t* counts, const size_t* offsets, uint32_t size);
// Throws Error(invalid_argument) where the two sides lie over each other and are not in place: what is
// written would be read as input.
void refuse_overlap(const Shape& shape, uint64_t input_bytes, uint64_t output_bytes);
uint32_t checked_root(const LoweringContext& context, const starling_operation& call);
// Throws unless the pointer is set where bytes are to be moved.
void require_buffer(const void* buffer, uint64_t bytes, const char* name);

const char* data_type_name(DataType type);
const char* reduce_op_name(ReduceOp op);
const char* collective_name(Collective collective);

}  // namespace starling
