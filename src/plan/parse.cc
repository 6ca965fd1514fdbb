// Text -> plan (plan/text.h). One token of lookahead, one line at a time; every refusal names line and
// column.
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "plan/builder.h"
#include "plan/geometry.h"
#include "plan/text.h"

namespace starling {
namespace {

// What some editors begin a file of UTF-8 with.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The words of one line, without its comment.
class Line {
 public:
  Line(std::string_view text, std::size_t number) : text_(text.substr(0, text.find('#'))), number_(number) {
    skip_blanks();
  }

  bool at_end() const { return at_ == text_.size(); }
  std::string_view peek() const { return text_.substr(at_, text_.find_first_of(" \t\r", at_) - at_); }
  std::string_view next(const char* what) {
    if (at_end()) refuse(std::string("the line ends where ") + what + " should stand");
    const std::string_view word = peek();
    last_ = at_;
    at_ += word.size();
    skip_blanks();
    return word;
  }
  void expect(std::string_view word) {
    if (peek() != word) refuse("'" + std::string(word) + "' should stand here" + instead());
    next("a word");
  }
  void expect_end() const {
    if (!at_end()) refuse("nothing should follow here" + instead());
  }
  std::uint32_t number(const char* what) {
    const std::string_view word = peek();
    const std::optional<std::uint32_t> value = number_in(word);
    if (!value) refuse(std::string(what) + " should stand here, a whole number" + instead());
    next(what);
    return *value;
  }

  static std::optional<std::uint32_t> number_in(std::string_view word) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    return value;
  }

  [[noreturn]] void refuse(const std::string& what) const { refuse_at(at_, what); }
  [[noreturn]] void refuse_last(const std::string& what) const { refuse_at(last_, what); }
  std::string instead() const {
    return at_end() ? ", but the line ends" : ", not '" + std::string(peek()) + "'";
  }

 private:
  [[noreturn]] void refuse_at(std::size_t column, const std::string& what) const {
    throw Error(
        Code::invalid_argument,
        "plan text, line " + std::to_string(number_) + " column " + std::to_string(column + 1) + ": " + what,
        "see the grammar in docs/WIRE.md");
  }

  void skip_blanks() {
    const std::size_t word = text_.find_first_not_of(" \t\r", at_);
    at_ = word == std::string_view::npos ? text_.size() : word;
  }

  std::string_view text_;
  std::size_t number_;
  std::size_t at_ = 0;
  std::size_t last_ = 0;  // where the word that was read last begins
};

struct Slice {
  Operand operand;
  std::uint32_t chunks;
};

// input[4], output[2:6]
std::optional<Slice> slice_in(std::string_view word) {
  const std::size_t open = word.find('[');
  if (open == std::string_view::npos || word.back() != ']') return std::nullopt;
  std::optional<BufferKind> buffer;
  for (const BufferKind kind : {BufferKind::kInput, BufferKind::kOutput, BufferKind::kScratch}) {
    if (word.substr(0, open) == name_of(kind)) buffer = kind;
  }
  const std::string_view range = word.substr(open + 1, word.size() - open - 2);
  const std::size_t colon = range.find(':');
  const auto first = Line::number_in(range.substr(0, colon));
  if (!buffer || !first) return std::nullopt;
  if (colon == std::string_view::npos) return Slice{{*buffer, *first}, 1};
  const auto last = Line::number_in(range.substr(colon + 1));
  if (!last || *last <= *first) return std::nullopt;
  return Slice{{*buffer, *first}, *last - *first};
}

// Two numbers with a dot between them: a connection's peer and channel, a dependency's block and instruction.
struct Pair {
  std::uint32_t first;
  std::uint32_t second;
};
std::optional<Pair> pair_in(std::string_view word) {
  const std::size_t dot = word.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto first = Line::number_in(word.substr(0, dot));
  const auto second = Line::number_in(word.substr(dot + 1));
  if (!first || !second) return std::nullopt;
  return Pair{*first, *second};
}

std::optional<Opcode> opcode_named(std::string_view name) {
  for (std::uint32_t i = 0; i < kOpcodeCount; ++i) {
    if (name == kOpcodeTable[i].name) return static_cast<Opcode>(i);
  }
  return std::nullopt;
}

class StepParser {
 public:
  explicit StepParser(Line& line) : line_(line) {}

  Step parse() {
    const std::optional<Opcode> opcode = opcode_named(line_.peek());
    if (!opcode) line_.refuse("the name of an instruction should stand here" + line_.instead());
    line_.next("an instruction");
    step_.opcode = *opcode;
    while (is_operand('<')) operand('<', step_.source, step_.receives);
    if (line_.peek() == "->") {
      line_.next("an arrow");
      while (is_operand('>')) operand('>', step_.destination, step_.sends);
    }
    line_.expect("size");
    const Slice size = slice();
    step_.size = size.operand;
    if (chunks_ && *chunks_ != size.chunks)
      line_.refuse_last("size and operands should name equally many chunks");
    step_.chunks = size.chunks;
    suffixes();
    line_.expect_end();
    return step_;
  }

 private:
  bool is_operand(char direction) const {
    const std::string_view word = line_.peek();
    return !word.empty() && (word[0] == direction || word.find('[') != std::string_view::npos);
  }

  void operand(char direction, Operand& local, std::vector<Connection>& connections) {
    const std::string_view word = line_.peek();
    if (word[0] == direction) {
      const std::optional<Pair> pair = pair_in(word.substr(1));
      if (!pair || pair->first > 0xffff || pair->second > 0xffff)
        line_.refuse("a connection should stand here, as <1.0, rank 1 channel 0");
      connections.push_back(
          {static_cast<std::uint16_t>(pair->first), static_cast<std::uint16_t>(pair->second)});
      line_.next("a connection");
      return;
    }
    if (local.buffer != BufferKind::kNone) line_.refuse("a second local operand on this side");
    const Slice found = slice();
    if (chunks_ && *chunks_ != found.chunks)
      line_.refuse_last("the operands should name equally many chunks");
    chunks_ = found.chunks;
    local = found.operand;
    if (direction == '<') step_.local_position = static_cast<std::uint32_t>(connections.size());
  }

  Slice slice() {
    const std::optional<Slice> found = slice_in(line_.peek());
    if (!found) line_.refuse("chunks should stand here, as input[4] or output[2:6]" + line_.instead());
    line_.next("chunks");
    return *found;
  }

  void flag(const char* word, bool& is_set) {
    if (line_.peek() != word) return;
    line_.next(word);
    is_set = true;
  }

  void suffixes() {
    flag("final", step_.final);
    flag("put", step_.put);
    if (line_.peek() != "after") return;
    line_.next("after");
    do {
      const std::optional<Pair> pair = pair_in(line_.peek());
      if (!pair)
        line_.refuse("a dependency should stand here, as 1.7, block 1 instruction 7" + line_.instead());
      step_.after.push_back({pair->first, pair->second});
      line_.next("a dependency");
    } while (!line_.at_end());
  }

  Line& line_;
  Step step_;
  std::optional<std::uint32_t> chunks_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  Plan parse() {
    Line version = next_line("starling-plan");
    version.expect("starling-plan");
    version_ = version.number("a version");
    if (version_ < 1 || version_ > std::uint32_t(kPlanTextVersion)) {
      version.refuse_last("version " + std::to_string(version_) + " of the text; this library reads 1 to " +
                          std::to_string(kPlanTextVersion));
    }
    version.expect_end();
    PlanBuilder builder = header();
    while (std::optional<Line> line = try_next_line()) body(*line, builder);
    return builder.build();
  }

 private:
  std::optional<Line> try_next_line() {
    while (!rest_.empty()) {
      const std::size_t end = rest_.find('\n');
      const Line line(rest_.substr(0, end), ++line_number_);
      rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
      if (!line.at_end()) return line;
    }
    return std::nullopt;
  }

  Line next_line(const char* what) {
    std::optional<Line> line = try_next_line();
    if (!line)
      Line("", line_number_ + 1).refuse(std::string("the text ends where '") + what + "' should stand");
    return *line;
  }

  std::uint32_t field(const char* name, std::uint32_t most = ~0u) {
    Line line = next_line(name);
    line.expect(name);
    const std::uint32_t value = line.number(name);
    if (value > most)
      line.refuse_last(std::string(name) + " is " + std::to_string(most) + " at most, not " +
                       std::to_string(value));
    line.expect_end();
    return value;
  }

  PlanBuilder header() {
    Line name = next_line("name");
    name.expect("name");
    const std::string plan_name(name.next("a name"));
    name.expect_end();
    Line collective = next_line("collective");
    collective.expect("collective");
    const std::optional<Collective> named = collective_named(collective.peek());
    if (!named) collective.refuse("the name of a collective should stand here" + collective.instead());
    Geometry geometry;
    geometry.collective = *named;
    geometry.rank_count = field("ranks");
    geometry.root = field("root");
    geometry.in_place = field("in_place", 1) != 0;
    const Protocol protocol = optional_protocol();
    const std::uint32_t tile_bytes = optional_tile();
    geometry.chunks_per_group = field("chunks_per_group");
    Line groups = next_line("groups");
    groups.expect("groups");
    geometry.input_groups = groups.number("the number of input groups");
    geometry.output_groups = groups.number("the number of output groups");
    groups.expect_end();
    rank_count_ = geometry.rank_count;
    PlanBuilder builder(plan_name, geometry);
    builder.set_protocol(protocol);
    builder.set_tile(tile_bytes);
    if (version_ >= 2 && geometry.collective == Collective::kCustom)
      builder.set_postcondition(postcondition());
    return builder;
  }

  // The next line behind its first word, if that is `word`.
  std::optional<Line> optional_line(const char* word) {
    const std::string_view rest = rest_;
    const std::size_t number = line_number_;
    std::optional<Line> line = try_next_line();
    if (!line || line->peek() != word) {
      rest_ = rest;
      line_number_ = number;
      return std::nullopt;
    }
    line->next(word);
    return line;
  }

  // A plan that names none uses slots.
  Protocol optional_protocol() {
    std::optional<Line> line = optional_line("protocol");
    if (!line) return Protocol::kSlots;
    const std::optional<Protocol> protocol = protocol_named(line->next("the name of a protocol"));
    if (!protocol) line->refuse_last("no protocol has this name");
    line->expect_end();
    return *protocol;
  }

  std::uint32_t optional_tile() {
    std::optional<Line> line = optional_line("tile");
    if (!line) return 0;
    const std::uint32_t bytes = line->number("the bytes of a tile");
    line->expect_end();
    return bytes;
  }

  Postcondition postcondition() {
    Postcondition found;
    while (true) {
      const std::string_view rest = rest_;
      const std::size_t number = line_number_;
      std::optional<Line> line = try_next_line();
      if (line && line->peek() == "holds") {
        found.push_back(holding(*line));
        continue;
      }
      rest_ = rest;
      line_number_ = number;
      return found;
    }
  }

  // holds 1 output[2:4] 0.2 *.6
  static Holding holding(Line& line) {
    line.next("holds");
    Holding holding{.rank = line.number("a rank")};
    const std::optional<Slice> slice = slice_in(line.peek());
    if (!slice || slice->operand.buffer != BufferKind::kOutput)
      line.refuse("chunks of the output should stand here, as output[2:6]" + line.instead());
    line.next("chunks of the output");
    holding.chunk = slice->operand.chunk;
    holding.chunks = slice->chunks;
    do {
      const std::string_view word = line.peek();
      const bool is_every = word.starts_with("*.");
      const auto chunk = is_every ? Line::number_in(word.substr(2)) : std::nullopt;
      const auto pair = is_every ? std::nullopt : pair_in(word);
      if (!chunk && !pair)
        line.refuse(
            "an input chunk should stand here, as 1.7, rank 1 chunk 7, or *.7, chunk 7 of every rank" +
            line.instead());
      holding.terms.push_back(chunk ? Term{kEveryRank, *chunk} : Term{pair->first, pair->second});
      line.next("an input chunk");
    } while (!line.at_end());
    return holding;
  }

  void body(Line& line, PlanBuilder& builder) {
    if (line.peek() == "rank") {
      line.next("rank");
      if (const std::uint32_t rank = line.number("a rank"); rank != ranks_begun_ || rank >= rank_count_) {
        line.refuse_last("ranks should follow each other from 0 to " + std::to_string(rank_count_ - 1));
      }
      line.expect("scratch");
      builder.set_scratch(ranks_begun_++, line.number("the chunks of scratch"));
      blocks_begun_ = 0;
    } else if (line.peek() == "block" && ranks_begun_ > 0) {
      line.next("block");
      if (line.number("a block") != blocks_begun_ || blocks_begun_ >= kMaxPlanBlocks) {
        line.refuse_last("blocks should follow each other from 0 to at most " +
                         std::to_string(kMaxPlanBlocks - 1));
      }
      builder.set_blocks(ranks_begun_ - 1, ++blocks_begun_);
      steps_ = 0;
    } else if (ranks_begun_ > 0 && blocks_begun_ > 0) {
      if (line.number("an instruction's number") != steps_)
        line.refuse_last("instruction " + std::to_string(steps_) + " should come here");
      builder.add(ranks_begun_ - 1, blocks_begun_ - 1, StepParser(line).parse());
      ++steps_;
      return;
    } else {
      line.refuse("'rank' or 'block' should stand here" + line.instead());
    }
    line.expect_end();
  }

  std::string_view rest_;
  std::size_t line_number_ = 0;
  std::uint32_t version_ = 1;
  std::uint32_t rank_count_ = 0;
  std::uint32_t ranks_begun_ = 0;
  std::uint32_t blocks_begun_ = 0;
  std::uint32_t steps_ = 0;
};

}  // namespace

Plan plan_from_text(std::string_view text) { return Parser(text).parse(); }

}  // namespace starling
