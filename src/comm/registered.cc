// Registered collectives (DFCCL §3.2): each has a lane of its own in a group of its device set.
#include <algorithm>

#include "base/error.h"
#include "comm/communicator.h"

namespace starling {

void Communicator::register_collective(int64_t id, const std::vector<uint32_t>& devices,
                                       const starling_operation& shape) {
  std::lock_guard lock(mutex_);
  if (registered_.count(id) != 0)
    throw Error(Code::invalid_argument, "collective " + std::to_string(id) + " is registered already",
                "use an id of its own for every collective");
  if (!std::is_sorted(devices.begin(), devices.end()))
    throw Error(Code::invalid_argument,
                "the device set of collective " + std::to_string(id) + " is not ascending",
                "pass the ranks in ascending order, on every rank");
  if (shape.struct_bytes != sizeof(starling_operation))
    throw Error(Code::invalid_argument, "starling_operation has another size than this library's",
                "set struct_bytes to sizeof(starling_operation) and compile with this library's header");
  if (std::find(devices.begin(), devices.end(), rank_) == devices.end())
    throw Error(Code::invalid_argument, "rank " + std::to_string(rank_) + " is not in the device set",
                "register a collective only on the ranks that take part");
  const auto known = device_sets_.find(devices);
  const std::shared_ptr<Communicator> group =
      known != device_sets_.end() ? known->second : make_subgroup(devices, "devices", GroupKind::kDeviceSet);
  device_sets_.emplace(devices, group);
  if (shape.kind == STARLING_BROADCAST || shape.kind == STARLING_REDUCE || shape.kind == STARLING_GATHER ||
      shape.kind == STARLING_SCATTER)
    checked_root(group->lowering(group->rank(), group->size(), group->across_hosts_), shape);
  Registered& registered = registered_[id];
  registered = {group, shape, "registered " + std::to_string(id), shape.algorithm ? shape.algorithm : "", {}};
  // The caller's texts and tables may be gone when it runs.
  if (shape.algorithm != nullptr) registered.shape.algorithm = registered.algorithm.c_str();
  const size_t** pointers[] = {&registered.shape.input_counts, &registered.shape.input_offsets,
                               &registered.shape.output_counts, &registered.shape.output_offsets};
  for (size_t t = 0; t < 4; ++t) {
    if (*pointers[t] == nullptr) continue;
    registered.tables[t].assign(*pointers[t], *pointers[t] + devices.size());
    *pointers[t] = registered.tables[t].data();
  }
}

void Communicator::run_registered(int64_t id, const void* input, void* output, starling_callback callback,
                                  void* user) {
  std::unique_lock lock(mutex_);
  const auto found = registered_.find(id);
  if (found == registered_.end())
    throw Error(Code::invalid_argument, "collective " + std::to_string(id) + " is not registered",
                "call starling_register first");
  const Registered& registered = found->second;
  starling_operation call = registered.shape;
  call.lane = registered.lane.c_str();
  call.input = input;
  call.output = output;
  call.callback = callback;
  call.user = user;
  const std::shared_ptr<Communicator> group = registered.group;
  lock.unlock();
  group->submit(call);
}

}  // namespace starling
