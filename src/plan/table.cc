#include "plan/table.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/read_file.h"
#include "plan/builder.h"
#include "plan/generate.h"
#include "plan/geometry.h"
#include "plan/text.h"

namespace starling {
namespace {

// Rows that stand one behind the other, by size.
bool same_key(const TableRow& a, const TableRow& b) {
  return a.collective == b.collective && a.in_place == b.in_place && a.types == b.types;
}

template <class T>
std::optional<T> number_in(const std::string& word) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  return {std::istream_iterator<std::string>(stream), {}};
}

// "to BYTES COLLECTIVE separate|in_place CLASS built_in NAME BLOCKS", or "... plan NAME".
std::optional<TableRow> row_in(const std::vector<std::string>& words) {
  if (words.size() < 7 || words[0] != "to") return std::nullopt;
  TableRow row;
  const auto bytes = number_in<std::uint64_t>(words[1]);
  const auto collective = collective_named(words[2]);
  const auto types = type_class_named(words[4]);
  if (!bytes || !collective || !types || (words[3] != "separate" && words[3] != "in_place"))
    return std::nullopt;
  // A send is matched with its receive by the slots it fits into; of a barrier and of one's own there is one
  // plan.
  if (*collective == Collective::kSendRecv || *collective == Collective::kBarrier ||
      *collective == Collective::kCustom)
    return std::nullopt;
  row.largest_bytes = *bytes;
  row.collective = *collective;
  row.in_place = words[3] == "in_place";
  row.types = *types;
  row.algorithm = words[6];
  if (words[5] == "plan" && words.size() == 7) return row;
  if (words[5] != "built_in" || words.size() != 8) return std::nullopt;
  row.block_count = number_in<std::uint32_t>(words[7]).value_or(0);
  if (row.block_count < 1 || row.block_count > kMaxPlanBlocks) return std::nullopt;
  return row;
}

}  // namespace

std::string Topology::name() const {
  const std::string ranks = ":ranks=" + std::to_string(rank_count) +
                            ":per_host=" + std::to_string(ranks_per_host) +
                            ":blocks=" + std::to_string(block_count);
  const std::string kind = std::string(on_gpu ? "cuda" : "cpu") + (one_process ? ":threads" : ":processes");
  return kind + ranks + (on_gpu ? "" : ":cores=" + std::to_string(core_count));
}

const TableRow* TopologyTable::find(const PlanUse& use, TypeClass types, std::uint64_t bytes) const {
  for (const TableRow& row : rows_) {
    if (row.collective == use.collective && row.in_place == use.in_place && row.types == types &&
        bytes <= row.largest_bytes)
      return &row;
  }
  return nullptr;
}

std::shared_ptr<const Plan> TopologyTable::plan(const TableRow& row, const PlanUse& use) const {
  const auto found = plans_.find(row.algorithm);
  if (found == plans_.end()) return nullptr;
  const Plan& plan = *found->second;
  const bool wrong_parts = use.unequal_parts && plan.header(0)->uniform_only != 0;
  return plan.root() == use.root && !wrong_parts ? found->second : nullptr;
}

ChoiceTable ChoiceTable::load(const std::string& path) {
  return parse(
      read_file(path, "the table of choices", "write one with `starling tune`, or unset STARLING_TABLE"),
      path);
}

ChoiceTable ChoiceTable::parse(std::string_view text, std::string source) {
  ChoiceTable table;
  table.source_ = std::move(source);
  std::istringstream lines{std::string(text)};
  std::vector<TableRow>* rows = nullptr;
  PlanText* plan = nullptr;
  std::string line;
  std::size_t number = 0;
  while (std::getline(lines, line)) {
    ++number;
    if (line.starts_with("| ") || line == "|") {
      if (plan == nullptr) table.refuse(number, "a line of a plan stands outside of a plan");
      plan->text += line.substr(std::min<std::size_t>(2, line.size())) + "\n";
      continue;
    }
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    if (number == 1) {
      if (words != std::vector<std::string>{"starling-table", std::to_string(kTableVersion)})
        table.refuse(1, "it does not begin with 'starling-table " + std::to_string(kTableVersion) + "'");
    } else if (words[0] == "topology" && words.size() == 2) {
      if (table.rows_.contains(words[1])) table.refuse(number, words[1] + " is there already");
      rows = &table.rows_[words[1]];
      plan = nullptr;
    } else if (words[0] == "plan" && words.size() == 2) {
      if (table.plans_.contains(words[1])) table.refuse(number, "plan " + words[1] + " is there already");
      plan = &table.plans_[words[1]];
      plan->line = number;
      rows = nullptr;
    } else {
      std::optional<TableRow> row = rows != nullptr ? row_in(words) : std::nullopt;
      if (!row) table.refuse(number, "'" + line + "' is neither a topology, nor a row of one, nor a plan");
      row->line = number;
      const auto before = std::find_if(rows->rbegin(), rows->rend(),
                                       [&](const TableRow& other) { return same_key(other, *row); });
      if (before != rows->rend() && before->largest_bytes >= row->largest_bytes)
        table.refuse(number, "sizes do not rise: the row before goes to " +
                                 std::to_string(before->largest_bytes) + " bytes");
      rows->push_back(*std::move(row));
    }
  }
  if (number == 0) table.refuse(1, "it is empty");
  return table;
}

void ChoiceTable::refuse(std::size_t line, const std::string& what) const {
  throw Error(Code::invalid_argument,
              "table of choices " + source_ + ", line " + std::to_string(line) + ": " + what,
              "make it anew with `starling tune`; docs/WIRE.md has the grammar");
}

std::shared_ptr<const Plan> ChoiceTable::proved_plan(const TableRow& row) const {
  const auto found = plans_.find(row.algorithm);
  if (found == plans_.end()) refuse(row.line, "there is no plan " + row.algorithm);
  try {
    auto plan = std::make_shared<const Plan>(plan_from_text(found->second.text));
    check_rooted(*plan);
    check_fits_lanes(*plan);
    return plan;
  } catch (const Error& error) {
    refuse(found->second.line, error.what());
  }
}

void ChoiceTable::check_plan(const TableRow& row, const Plan& plan, const Topology& topology) const {
  if (plan.collective() != row.collective || plan.in_place() != row.in_place ||
      plan.rank_count() != topology.rank_count)
    refuse(row.line, "plan " + row.algorithm + " computes " + std::string(traits_of(plan.collective()).name) +
                         " over " + std::to_string(plan.rank_count()) + " ranks, " +
                         (plan.in_place() ? "in place" : "out of place"));
  if (std::max<std::uint32_t>(plan.block_count(), plan.header(0)->channel_count) > topology.block_count)
    refuse(row.line,
           "plan " + row.algorithm + " needs more than " + std::to_string(topology.block_count) + " blocks");
}

void ChoiceTable::check_built_in(const TableRow& row, const Topology& topology) const {
  if (algorithm_takes(row.algorithm, row.collective, topology.rank_count)) return;
  refuse(row.line, std::string(traits_of(row.collective).name) + " over " +
                       std::to_string(topology.rank_count) + " ranks has no algorithm '" + row.algorithm +
                       "'");
}

std::shared_ptr<const TopologyTable> ChoiceTable::at(const Topology& topology) const {
  const auto found = rows_.find(topology.name());
  if (found == rows_.end()) return nullptr;
  auto made = std::make_shared<TopologyTable>();
  made->rows_ = found->second;
  for (const TableRow& row : made->rows_) {
    if (row.block_count != 0) {
      check_built_in(row, topology);
      continue;
    }
    std::shared_ptr<const Plan>& plan = made->plans_[row.algorithm];
    if (plan == nullptr) plan = proved_plan(row);
    check_plan(row, *plan, topology);
  }
  return made;
}

std::vector<std::string> ChoiceTable::topologies() const {
  std::vector<std::string> names;
  for (const auto& [name, rows] : rows_) names.push_back(name);
  return names;
}

}  // namespace starling
