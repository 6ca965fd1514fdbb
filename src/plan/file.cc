#include "plan/file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "base/read_file.h"
#include "plan/builder.h"

namespace starling {
namespace {

constexpr std::uint32_t kFileMagic = 0x464c5053;  // "SPLF"
// Version 2 has a postcondition between the name and the parts; plans without one are written as version 1.
constexpr std::uint16_t kFileVersion = 2;

struct FileHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t reserved;
  std::uint32_t rank_count;
  std::uint32_t name_bytes;
  std::uint64_t total_bytes;
  std::uint64_t checksum;  // over the whole file, this field being zero
};
static_assert(sizeof(FileHeader) == 32);

FileHeader header_of(std::span<const std::byte> bytes) {
  FileHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  FileHeader header = header_of(bytes);
  header.checksum = 0;
  std::uint64_t sum = bytes.size();
  const auto add = [&sum](const std::byte* data, std::size_t count) {
    for (std::size_t at = 0; at < count; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, data + at, std::min<std::size_t>(8, count - at));
      sum = hash_combine(sum, word);
    }
  };
  add(reinterpret_cast<const std::byte*>(&header), sizeof(header));
  add(bytes.data() + sizeof(header), bytes.size() - sizeof(header));
  return sum;
}

std::size_t padded(std::size_t bytes) { return round_up(bytes, std::size_t{8}); }

struct Rule {
  const char* what_is_wrong;
  bool (*holds)(std::span<const std::byte>);
};

// In this order: a rule reads what the rules before it have found to be there.
constexpr Rule kRules[] = {
    {"it is truncated: no header",
     [](std::span<const std::byte> b) { return b.size() >= sizeof(FileHeader); }},
    {"it does not begin with the mark of a plan file",
     [](std::span<const std::byte> b) { return header_of(b).magic == kFileMagic; }},
    {"it has a version that this library does not read",
     [](std::span<const std::byte> b) {
       return header_of(b).version >= 1 && header_of(b).version <= kFileVersion;
     }},
    {"it is truncated, or has something behind its end",
     [](std::span<const std::byte> b) { return header_of(b).total_bytes == b.size(); }},
    {"its checksum does not fit its contents: some bytes were changed",
     [](std::span<const std::byte> b) { return header_of(b).checksum == checksum_of(b); }},
    {"reserved bytes are not zero", [](std::span<const std::byte> b) { return header_of(b).reserved == 0; }},
    {"it has no part for any rank, or too many",
     [](std::span<const std::byte> b) {
       return header_of(b).rank_count >= 1 && header_of(b).rank_count <= kMaxPlanRanks;
     }},
    {"its name is longer than the file",
     [](std::span<const std::byte> b) { return header_of(b).name_bytes <= b.size() - sizeof(FileHeader); }},
};

[[noreturn]] void refuse(const std::string& what_is_wrong) {
  throw Error(Code::invalid_argument, "a plan file is refused: " + what_is_wrong,
              "make or copy the file anew");
}

// PostconditionHeader, then HoldingRecord[holding_count], then Term[term_count], those of the holdings in
// order.
struct PostconditionHeader {
  std::uint32_t holding_count;
  std::uint32_t term_count;
};
struct HoldingRecord {
  std::uint32_t rank;
  std::uint32_t chunk;
  std::uint32_t chunks;
  std::uint32_t term_count;
};
static_assert(sizeof(HoldingRecord) == 16 && sizeof(Term) == 8);

std::vector<std::byte> bytes_of(const Postcondition& postcondition) {
  PostconditionHeader header{static_cast<std::uint32_t>(postcondition.size()), 0};
  std::vector<HoldingRecord> records;
  std::vector<Term> terms;
  for (const Holding& h : postcondition) {
    records.push_back({h.rank, h.chunk, h.chunks, static_cast<std::uint32_t>(h.terms.size())});
    terms.insert(terms.end(), h.terms.begin(), h.terms.end());
  }
  header.term_count = static_cast<std::uint32_t>(terms.size());
  std::vector<std::byte> bytes;
  const auto append = [&bytes](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  append(std::as_bytes(std::span(&header, 1)));
  append(std::as_bytes(std::span(records)));
  append(std::as_bytes(std::span(terms)));
  return bytes;
}

// Reads the postcondition that begins at `at`, and moves `at` behind it.
Postcondition postcondition_in(std::span<const std::byte> bytes, std::size_t& at) {
  const auto take = [&](void* to, std::uint64_t size) {
    if (at > bytes.size() || bytes.size() - at < size) refuse("its postcondition is not there as a whole");
    if (size != 0) std::memcpy(to, bytes.data() + at, size);  // of no records `to` may be null
    at += size;
  };
  PostconditionHeader header;
  take(&header, sizeof(header));
  if (std::uint64_t{header.holding_count} * sizeof(HoldingRecord) > bytes.size() - at)
    refuse("its postcondition is not there as a whole");
  std::vector<HoldingRecord> records(header.holding_count);
  take(records.data(), records.size() * sizeof(HoldingRecord));
  Postcondition postcondition;
  std::uint64_t term_count = 0;
  for (const HoldingRecord& record : records) {
    if (std::uint64_t{record.term_count} * sizeof(Term) > bytes.size() - at)
      refuse("its postcondition is not there as a whole");
    Holding& holding = postcondition.emplace_back(Holding{record.rank, record.chunk, record.chunks});
    holding.terms.resize(record.term_count);
    take(holding.terms.data(), holding.terms.size() * sizeof(Term));
    term_count += record.term_count;
  }
  if (term_count != header.term_count) refuse("its postcondition counts its terms wrongly");
  return postcondition;
}

// Where the parts lie, each as long as its own header says.
std::vector<std::span<const std::byte>> cut(std::span<const std::byte> bytes, std::size_t at,
                                            std::uint32_t rank_count) {
  std::vector<std::span<const std::byte>> parts;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    if (at > bytes.size() || bytes.size() - at < sizeof(PlanHeader))
      refuse("the part of rank " + std::to_string(rank) + " is not there");
    PlanHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    if (header.total_bytes < sizeof(header) || header.total_bytes > bytes.size() - at) {
      refuse("the part of rank " + std::to_string(rank) + " says that it has " +
             std::to_string(header.total_bytes) + " bytes");
    }
    parts.push_back(bytes.subspan(at, header.total_bytes));
    at += padded(header.total_bytes);
  }
  if (at != bytes.size()) refuse("there is something behind the last part");
  return parts;
}

}  // namespace

std::vector<std::byte> to_bytes(const Plan& plan) {
  std::vector<std::byte> bytes(sizeof(FileHeader));
  const auto append = [&bytes](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
    bytes.resize(padded(bytes.size()));
  };
  append(std::as_bytes(std::span(plan.name())));
  if (plan.postcondition()) append(bytes_of(*plan.postcondition()));
  for (std::uint32_t rank = 0; rank < plan.rank_count(); ++rank) append(plan.part(rank));
  FileHeader header{.magic = kFileMagic,
                    .version = plan.postcondition() ? kFileVersion : std::uint16_t{1},
                    .reserved = 0,
                    .rank_count = plan.rank_count(),
                    .name_bytes = static_cast<std::uint32_t>(plan.name().size()),
                    .total_bytes = bytes.size(),
                    .checksum = 0};
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.checksum = checksum_of(bytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

Plan plan_from_bytes(std::span<const std::byte> bytes) {
  for (const Rule& rule : kRules) {
    if (!rule.holds(bytes)) refuse(rule.what_is_wrong);
  }
  const FileHeader header = header_of(bytes);
  std::string name(header.name_bytes, '\0');
  std::memcpy(name.data(), bytes.data() + sizeof(header), name.size());
  std::size_t at = padded(sizeof(header) + name.size());
  std::optional<Postcondition> postcondition;
  if (header.version >= 2) postcondition = postcondition_in(bytes, at);
  const auto parts = cut(bytes, at, header.rank_count);
  return Plan::from_parts(std::move(name), parts, std::move(postcondition));
}

void save_plan(const Plan& plan, const std::string& path) {
  const std::vector<std::byte> bytes = to_bytes(plan);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file)
    throw system_error("cannot write the plan file " + path, "see that the folder exists and has room");
}

Plan load_plan(const std::string& path) {
  const std::string bytes = read_file(path, "the plan file", "write one with `starling compile`");
  return plan_from_bytes(std::as_bytes(std::span(bytes)));
}

}  // namespace starling
