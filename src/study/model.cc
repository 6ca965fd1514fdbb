#include "study/model.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"

namespace starling::study {
namespace {

void require(bool condition, const std::string& happened, const std::string& remedy) {
  if (!condition) throw Error(Code::invalid_argument, happened, remedy);
}

void check_probability(const char* key, double value, bool one_allowed) {
  const bool good = value >= 0 && (one_allowed ? value <= 1 : value < 1);
  require(good, std::string(key) + " is " + std::to_string(value),
          one_allowed
              ? "give a probability between 0 and 1"
              : "give a probability of at least 0 and below 1 (at 1 a GPU would never launch anything)");
}

void check(const Setting& setting) {
  check_probability("disorder_probability", setting.disorder_probability, true);
  check_probability("synchronization_probability", setting.synchronization_probability, false);
  require(setting.gpus > 0, "gpus is " + std::to_string(setting.gpus), "give at least one GPU");
  require(!setting.groups.empty(), "groups is empty", "give at least one group");
  std::vector<bool> grouped(setting.gpus, false);
  for (std::size_t g = 0; g < setting.groups.size(); ++g) {
    const Group& group = setting.groups[g];
    const std::string name = "groups[" + std::to_string(g) + "]";
    require(!group.gpus.empty(), name + ".gpus is empty", "list the GPUs of the group");
    require(group.collectives > 0, name + ".collectives is " + std::to_string(group.collectives),
            "give at least one collective");
    std::set<int> seen;
    for (int gpu : group.gpus) {
      require(gpu >= 0 && gpu < setting.gpus, name + ".gpus names GPU " + std::to_string(gpu),
              "GPUs are numbered from 0 to " + std::to_string(setting.gpus - 1));
      require(seen.insert(gpu).second, name + ".gpus names GPU " + std::to_string(gpu) + " twice",
              "list each GPU once");
      grouped[gpu] = true;
    }
  }
  for (int gpu = 0; gpu < setting.gpus; ++gpu) {
    require(grouped[gpu], "GPU " + std::to_string(gpu) + " is in no group",
            "put it into a group or lower the number of GPUs");
  }
}

std::int64_t key_of(Order order, std::size_t groups, int longest, int group, int index) {
  return order == Order::interleaved
             ? static_cast<std::int64_t>(index) * static_cast<std::int64_t>(groups) + group
             : static_cast<std::int64_t>(group) * longest + index;
}

GpuList make_list(const std::vector<Group>& groups, const std::vector<int>& mine, Order order, int longest) {
  struct Item {
    std::int64_t key;
    int slot;
    int index;
  };
  std::vector<Item> items;
  for (std::size_t slot = 0; slot < mine.size(); ++slot) {
    for (int i = 0; i < groups[mine[slot]].collectives; ++i) {
      items.push_back({key_of(order, groups.size(), longest, mine[slot], i), static_cast<int>(slot), i});
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.key < b.key; });

  GpuList list;
  list.slots.resize(mine.size());
  for (std::size_t slot = 0; slot < mine.size(); ++slot) {
    list.slots[slot].group = mine[slot];
    list.slots[slot].before.push_back(0);
  }
  for (const Item& item : items) {
    list.slots[item.slot].where.push_back(list.length());
    list.slot_at.push_back(item.slot);
    list.index_at.push_back(item.index);
    list.key_at.push_back(item.key);
    for (Slot& slot : list.slots) slot.before.push_back(static_cast<int>(slot.where.size()));
  }
  return list;
}

Component make_component(std::vector<Group> groups, int gpus, Order order) {
  Component component;
  std::vector<std::vector<int>> groups_of(gpus);
  int longest = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    longest = std::max(longest, groups[g].collectives);
    component.first_collective.push_back(component.collectives);
    component.collectives += groups[g].collectives;
    component.members.emplace_back();
    for (int gpu : groups[g].gpus) {
      component.members.back().push_back({gpu, static_cast<int>(groups_of[gpu].size())});
      groups_of[gpu].push_back(static_cast<int>(g));
    }
  }
  for (int gpu = 0; gpu < gpus; ++gpu) {
    component.lists.push_back(make_list(groups, groups_of[gpu], order, longest));
  }
  component.groups = std::move(groups);
  return component;
}

// The smallest GPU that each GPU is connected with through groups.
std::vector<int> connected(const Setting& setting) {
  std::vector<int> root(setting.gpus);
  std::iota(root.begin(), root.end(), 0);
  const auto find = [&root](int gpu) {
    while (root[gpu] != gpu) gpu = root[gpu] = root[root[gpu]];
    return gpu;
  };
  for (const Group& group : setting.groups) {
    for (int gpu : group.gpus) {
      const int mine = find(gpu);
      const int theirs = find(group.gpus.front());
      root[std::max(mine, theirs)] = std::min(mine, theirs);
    }
  }
  for (int gpu = 0; gpu < setting.gpus; ++gpu) root[gpu] = find(gpu);
  return root;
}

}  // namespace

std::vector<Group> three_d_groups(const ThreeD& shape) {
  require(shape.tensor > 0 && shape.data > 0 && shape.pipeline > 0,
          "a size of the 3D grouping is not positive", "give tensor, data and pipeline sizes of at least 1");
  std::vector<Group> groups;
  for (int stage = 0; stage < shape.pipeline; ++stage) {
    const int first = stage * shape.tensor * shape.data;
    for (int row = 0; row < shape.data; ++row) {
      Group group{{}, shape.tensor_collectives};
      for (int column = 0; column < shape.tensor; ++column)
        group.gpus.push_back(first + row * shape.tensor + column);
      groups.push_back(std::move(group));
    }
    for (int column = 0; column < shape.tensor; ++column) {
      Group group{{}, shape.data_collectives};
      for (int row = 0; row < shape.data; ++row) group.gpus.push_back(first + row * shape.tensor + column);
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

Model::Model(Setting setting) : setting_(std::move(setting)) {
  check(setting_);
  const std::vector<int> root = connected(setting_);
  std::map<int, int> placement_of;  // root -> placement, in the order of the smallest GPU
  std::vector<int> local(setting_.gpus);
  for (int gpu = 0; gpu < setting_.gpus; ++gpu) {
    const auto [found, is_new] = placement_of.try_emplace(root[gpu], static_cast<int>(placements_.size()));
    if (is_new) placements_.emplace_back();
    std::vector<int>& gpus = placements_[found->second].gpus;
    local[gpu] = static_cast<int>(gpus.size());
    gpus.push_back(gpu);
  }
  for (std::size_t g = 0; g < setting_.groups.size(); ++g) {
    placements_[placement_of[root[setting_.groups[g].gpus.front()]]].groups.push_back(static_cast<int>(g));
  }

  std::map<std::vector<int>, int> component_of_shape;
  for (Placement& placement : placements_) {
    std::vector<Group> groups;
    std::vector<int> shape;
    for (int g : placement.groups) {
      Group group = setting_.groups[g];
      for (int& gpu : group.gpus) gpu = local[gpu];
      shape.push_back(-group.collectives);
      shape.insert(shape.end(), group.gpus.begin(), group.gpus.end());
      groups.push_back(std::move(group));
    }
    const auto [found, is_new] = component_of_shape.try_emplace(shape, static_cast<int>(components_.size()));
    if (is_new) {
      components_.push_back(
          make_component(std::move(groups), static_cast<int>(placement.gpus.size()), setting_.order));
    }
    placement.component = found->second;
    for (const GpuList& list : components_[placement.component].lists) launches_ += list.length();
  }
}

}  // namespace starling::study
