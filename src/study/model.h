// What a deadlock study simulates (DFCCL §2.4): groups of GPUs, their collectives, and the list of
// collectives that every GPU is to launch.
//
// GPUs that share no group, directly or through others, cannot block each other: a model falls apart into
// components, and components of one shape (all stages of a 3D grouping) share one set of tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace starling::study {

// Deadlock decision models, §2.4.1.
enum class Rule {
  single_queue,     // one queue a GPU, its head executes
  synchronization,  // everything executes at once, but nothing launched after a synchronization that still
                    // waits
};

// How the lists of a GPU's groups become the GPU's one list. The paper does not say; its released simulator
// interleaves, an earlier one appended.
enum class Order {
  interleaved,   // first collective of each group, second of each group, ...
  concatenated,  // all of the first group, all of the second, ...
};

struct Group {
  std::vector<int> gpus;
  int collectives = 0;
};

struct Setting {
  Rule rule = Rule::single_queue;
  Order order = Order::interleaved;
  int gpus = 0;
  std::vector<Group> groups;
  double disorder_probability = 0;         // an element of the list is passed over
  double synchronization_probability = 0;  // a turn synchronizes instead of launching
};

struct ThreeD {
  int tensor = 1;
  int data = 1;
  int pipeline = 1;
  int tensor_collectives = 0;
  int data_collectives = 0;
};
// Groups of one pipeline stage: a tensor group per row, a data group per column (Fig. 3).
std::vector<Group> three_d_groups(const ThreeD& shape);

// One group as one of its members sees it.
struct Slot {
  int group = 0;            // of the component
  std::vector<int> where;   // where[i]: place in the GPU's list of the group's collective i
  std::vector<int> before;  // before[n]: how many of the group's collectives the first n places hold
};

// The list of one GPU. A place is an index into it, before any disorder.
struct GpuList {
  std::vector<Slot> slots;           // one per group of the GPU, by ascending group
  std::vector<int> slot_at;          // by place
  std::vector<int> index_at;         // by place: which collective of that group
  std::vector<std::int64_t> key_at;  // by place: rank in one order of all collectives that all lists follow

  int length() const { return static_cast<int>(slot_at.size()); }
};

struct Member {
  int gpu = 0;
  int slot = 0;  // of that GPU
};

struct Component {
  std::vector<Group> groups;  // GPUs numbered inside the component, in turn order
  std::vector<std::vector<Member>> members;
  std::vector<GpuList> lists;
  std::vector<int> first_collective;  // of each group; collectives of a component are numbered through
  int collectives = 0;

  int gpus() const { return static_cast<int>(lists.size()); }
  int collective_at(int gpu, int place) const {
    const GpuList& list = lists[gpu];
    return first_collective[list.slots[list.slot_at[place]].group] + list.index_at[place];
  }
};

// A component in its place in the model.
struct Placement {
  int component = 0;  // index into Model::components
  std::vector<int> gpus;  // component's GPU -> the model's
  std::vector<int> groups;  // component's group -> the model's
};

class Model {
 public:
  // Throws Error with the name of the setting at fault and the remedy.
  explicit Model(Setting setting);

  const Setting& setting() const { return setting_; }
  const std::vector<Component>& components() const { return components_; }
  const std::vector<Placement>& placements() const { return placements_; }
  const Component& component(const Placement& placement) const { return components_[placement.component]; }
  int gpus() const { return setting_.gpus; }
  std::int64_t launches() const { return launches_; }  // of all GPUs in a round

 private:
  Setting setting_;
  std::vector<Component> components_;
  std::vector<Placement> placements_;
  std::int64_t launches_ = 0;
};

}  // namespace starling::study
