#include "plan/plan.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "plan/verify.h"

namespace starling {
namespace {

void refuse_if_any(const std::string& name, const std::vector<Violation>& violations) {
  if (violations.empty()) return;
  std::string text = "plan '" + name + "' is refused: " + violations.front().describe();
  if (violations.size() > 1) text += " (and " + std::to_string(violations.size() - 1) + " more)";
  throw Error(Code::invalid_argument, text, "correct the program that made the plan, or make the file anew");
}

// The header's claims that follow from the instructions.
void write_facts(const PlanFacts& facts, PlanHeader& header) {
  header.channel_count = facts.channel_count;
  header.minimum_slots = facts.minimum_slots;
  header.largest_chunks = facts.largest_chunks;
  header.canonical = facts.canonical;
  header.tile_scratch = facts.tile_scratch;
  header.uniform_only = facts.uniform_only;
}

std::uint64_t hash_of(const std::vector<std::uint64_t>& words) {
  std::uint64_t hash = words.size();
  for (const std::uint64_t word : words) hash = hash_combine(hash, word);
  return hash;
}

// The name stands alone on a line of the text form.
void check_name(const std::string& name) {
  const auto is_visible = [](char c) { return c > ' ' && c <= '~' && c != '#'; };
  if (!name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), is_visible)) return;
  throw Error(Code::invalid_argument,
              "a plan has a name of " + std::to_string(name.size()) + " characters, or with odd ones",
              "use 1 to 128 visible ASCII characters without '#'");
}

}  // namespace

std::uint32_t Plan::block_count() const {
  std::uint32_t most = 0;
  for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
    most = std::max<std::uint32_t>(most, header(rank)->block_count);
  }
  return most;
}

std::span<const std::byte> Plan::part(std::uint32_t rank) const {
  STARLING_ASSERT(rank < rank_count(), "a rank that the plan does not have");
  return std::as_bytes(std::span(words_).subspan(offsets_[rank], offsets_[rank + 1] - offsets_[rank]));
}

// Verifies, and writes into the headers what follows from the instructions. Only the hash is computed over
// bytes in which the hashes are zero.
void Plan::seal() {
  check_name(name_);
  std::vector<PlanView> views;
  for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
    refuse_if_any(name_, verify_layout(part(rank)));
    views.push_back(view(rank));
  }
  const Verdict verdict = verify(views, postcondition_ ? &*postcondition_ : nullptr);
  refuse_if_any(name_, verdict.violations);
  const auto for_each_header = [this](auto&& change) {
    for (std::uint32_t rank = 0; rank < rank_count(); ++rank) {
      change(*reinterpret_cast<PlanHeader*>(words_.data() + offsets_[rank]));
    }
  };
  for_each_header([&](PlanHeader& header) {
    write_facts(verdict.facts, header);
    header.hash = 0;
  });
  const std::uint64_t hash = hash_of(words_);
  for_each_header([&](PlanHeader& header) { header.hash = hash; });
  for (const PlanView& of_rank : views) crosses_blocks_ |= of_rank.header->dependency_count != 0;
}

Plan Plan::from_parts(std::string name, std::span<const std::span<const std::byte>> parts,
                      std::optional<Postcondition> postcondition) {
  if (parts.empty()) {
    throw Error(Code::invalid_argument, "plan '" + name + "' has no parts", "give the part of every rank");
  }
  std::vector<std::uint64_t> words;
  std::vector<std::size_t> offsets{0};
  for (const std::span<const std::byte> part : parts) {
    if (part.size() % 8 != 0) {
      throw Error(Code::invalid_argument,
                  "plan '" + name + "' is refused: a part of " + std::to_string(part.size()) + " bytes",
                  "give whole parts: their length is a multiple of 8");
    }
    const std::size_t at = words.size();
    words.resize(at + part.size() / 8);
    std::memcpy(words.data() + at, part.data(), part.size());
    offsets.push_back(words.size());
  }
  const std::vector<std::uint64_t> claimed = words;
  Plan plan(std::move(name), std::move(words), std::move(offsets), std::move(postcondition));
  plan.seal();
  if (plan.words_ != claimed) {
    throw Error(
        Code::invalid_argument,
        "plan '" + plan.name_ +
            "' is refused: a header claims slots, channels, flags or a hash that do not follow from its "
            "instructions",
        "make the plan anew: these bytes were changed after it was built");
  }
  return plan;
}

}  // namespace starling
