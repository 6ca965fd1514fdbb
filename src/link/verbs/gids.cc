#include "link/verbs/gids.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

namespace starling::link::verbs {
namespace {

namespace fs = std::filesystem;

// A sysfs file may refuse to be read: an empty entry of the table does.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<fs::path> sorted(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> entries;
  for (fs::directory_iterator it(folder, ignored), end; it != end; it.increment(ignored))
    entries.push_back(it->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool parse(const std::string& text, uint8_t (&bytes)[16]) {
  unsigned words[8];
  if (std::sscanf(text.c_str(), "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", words, words + 1, words + 2, words + 3,
                  words + 4, words + 5, words + 6, words + 7) != 8)
    return false;
  for (int k = 0; k < 8; ++k) {
    bytes[2 * k] = uint8_t(words[k] >> 8);
    bytes[2 * k + 1] = uint8_t(words[k]);
  }
  return true;
}

// What the port's table has at `index`, if it is that interface by that address.
std::optional<Gid> gid_at(const fs::path& port_folder, const std::string& index, const tcp::Port& port) {
  Gid gid;
  gid.index = uint8_t(std::stoul(index));
  if (gid.index != std::stoul(index)) return {};  // queue pairs have eight bits for it
  if (first_line(port_folder / "gid_attrs" / "ndevs" / index) != port.name) return {};
  if (first_line(port_folder / "gid_attrs" / "types" / index) != "RoCE v2") return {};
  if (!parse(first_line(port_folder / "gids" / index), gid.bytes)) return {};
  // A RoCE v2 GID is the address itself, in the form that tcp/address.h has.
  if (!std::equal(port.address.bytes.begin(), port.address.bytes.end(), gid.bytes)) return {};
  gid.device = port_folder.parent_path().parent_path().filename();
  gid.port = uint8_t(std::stoul(port_folder.filename()));
  return gid;
}

}  // namespace

std::optional<Gid> find_gid(const tcp::Port& port, const std::string& sysfs) {
  for (const fs::path& device : sorted(sysfs))
    for (const fs::path& number : sorted(device / "ports"))
      for (const fs::path& entry : sorted(number / "gid_attrs" / "ndevs"))
        if (auto gid = gid_at(number, entry.filename(), port)) return gid;
  return {};
}

bool is_still(const Gid& gid, const tcp::Port& port, const std::string& sysfs) {
  const fs::path folder = fs::path(sysfs) / gid.device / "ports" / std::to_string(gid.port);
  const auto now = gid_at(folder, std::to_string(gid.index), port);
  // A new address may have the place of the one that it was found by.
  return now && std::equal(gid.bytes, std::end(gid.bytes), now->bytes);
}

}  // namespace starling::link::verbs
