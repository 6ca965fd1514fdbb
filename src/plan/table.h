// A table of choices from a file: which algorithm or plan for which size, measured where it is used
// (`starling tune`; docs/WIRE.md has the grammar).
//
//   starling-table 1
//   topology cpu:threads:ranks=4:per_host=4:blocks=1:cores=2
//     to 4096 all_reduce separate plain built_in one_shot 1
//     to 65536 all_reduce separate plain plan mine
//   plan mine
//   | starling-plan 1
//   | ...
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plan/added.h"
#include "plan/choice.h"
#include "plan/plan.h"

namespace starling {

inline constexpr int kTableVersion = 1;

// Where a communicator's ranks are, as far as it decides what is fast. The same on all of them.
struct Topology {
  bool on_gpu = false;
  bool one_process = false;  // all ranks are threads of one
  std::uint32_t rank_count = 1;
  std::uint32_t ranks_per_host = 1;
  std::uint32_t block_count = 1;  // of each rank's daemon
  std::uint32_t core_count = 1;   // of the host; on GPUs a rank has one of its own

  // By which tables know it: "cpu:threads:ranks=4:per_host=4:blocks=1:cores=2".
  std::string name() const;
};

// Sizes up to and including `largest_bytes`, from the row before.
struct TableRow {
  std::uint64_t largest_bytes = 0;
  Collective collective = Collective::kAllReduce;
  bool in_place = false;
  TypeClass types = TypeClass::kMoved;
  std::string algorithm;  // a built-in one, or the name of a plan
  std::uint32_t block_count = 0;  // 0: a plan
  std::size_t line = 0;
};

// What a table says for one topology. Immutable.
class TopologyTable {
 public:
  // Null: nothing for this use and size.
  const TableRow* find(const PlanUse& use, TypeClass types, std::uint64_t bytes) const;
  // The plan of a row that has one; null if it does not serve this use (another root, unequal parts).
  std::shared_ptr<const Plan> plan(const TableRow& row, const PlanUse& use) const;
  std::size_t size() const { return rows_.size(); }

 private:
  friend class ChoiceTable;
  std::vector<TableRow> rows_;
  std::map<std::string, std::shared_ptr<const Plan>, std::less<>> plans_;
};

class ChoiceTable {
 public:
  // Throws Error(invalid_argument) that names the line; Error(system) for a file that cannot be read.
  static ChoiceTable load(const std::string& path);
  // `source` is for messages.
  static ChoiceTable parse(std::string_view text, std::string source);

  // Null: it has nothing for this topology. Throws Error(invalid_argument) that names the line of an
  // algorithm that does not exist for so many ranks, or of a plan that is wrong, or for other ranks, larger
  // daemons or lanes of more slots.
  std::shared_ptr<const TopologyTable> at(const Topology& topology) const;

  const std::string& source() const { return source_; }
  std::vector<std::string> topologies() const;

 private:
  struct PlanText {
    std::string text;
    std::size_t line = 0;
  };

  [[noreturn]] void refuse(std::size_t line, const std::string& what) const;
  std::shared_ptr<const Plan> proved_plan(const TableRow& row) const;
  void check_plan(const TableRow& row, const Plan& plan, const Topology& topology) const;
  void check_built_in(const TableRow& row, const Topology& topology) const;

  std::string source_;
  std::map<std::string, std::vector<TableRow>, std::less<>> rows_;  // by topology
  std::map<std::string, PlanText, std::less<>> plans_;
};

}  // namespace starling
