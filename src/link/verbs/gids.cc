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

}  // namespace

std::optional<Gid> find_gid(const tcp::Port& port, const std::string& sysfs) {
  for (const fs::path& device : sorted(sysfs))
    for (const fs::path& number : sorted(device / "ports"))
      for (const fs::path& entry : sorted(number / "gid_attrs" / "ndevs")) {
        if (first_line(entry) != port.name) continue;
        const std::string index = entry.filename();
        if (first_line(number / "gid_attrs" / "types" / index) != "RoCE v2") continue;
        Gid gid;
        if (!parse(first_line(number / "gids" / index), gid.bytes)) continue;
        // A RoCE v2 GID is the address itself, in the form that tcp/address.h has.
        if (!std::equal(port.address.bytes.begin(), port.address.bytes.end(), gid.bytes)) continue;
        gid.device = device.filename();
        gid.port = uint8_t(std::stoul(number.filename()));
        gid.index = uint8_t(std::stoul(index));
        return gid;
      }
  return {};
}

std::string interface_of(const std::string& device, uint32_t port, const std::string& sysfs) {
  for (const fs::path& entry :
       sorted(fs::path(sysfs) / device / "ports" / std::to_string(port) / "gid_attrs" / "ndevs"))
    if (const std::string name = first_line(entry); !name.empty()) return name;
  return {};
}

}  // namespace starling::link::verbs
