#include "link/tcp/near.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace starling::link {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kMostCores = 8192;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// /sys/devices/pci0000:00/0000:00:01.0/...: the bridges above it, and itself.
fs::path real_path(const fs::path& link) {
  std::error_code error;
  const fs::path path = fs::canonical(link, error);
  return error ? fs::path() : path;
}

struct Distance {
  uint32_t shared_bridges = 0;
  bool same_node = false;
  bool operator<(const Distance& other) const {
    if (shared_bridges != other.shared_bridges) return shared_bridges > other.shared_bridges;
    return same_node && !other.same_node;
  }
};

// Folders that both are below: the root complex is one, and says nothing.
Distance distance(const fs::path& a, const fs::path& b) {
  Distance found;
  if (a.empty() || b.empty()) return found;
  auto at_a = a.begin(), at_b = b.begin();
  bool in_pci = false;
  for (; at_a != a.end() && at_b != b.end() && *at_a == *at_b; ++at_a, ++at_b) {
    found.shared_bridges += in_pci;
    in_pci |= at_a->string().starts_with("pci");
  }
  const std::string node = first_line(a / "numa_node");
  found.same_node = !node.empty() && node != "-1" && node == first_line(b / "numa_node");
  return found;
}

}  // namespace

void nearest_first(std::vector<tcp::Port>& ports, const std::string& device, const std::string& sysfs) {
  const fs::path here = real_path(fs::path(sysfs) / "bus/pci/devices" / device);
  std::stable_sort(ports.begin(), ports.end(), [&](const tcp::Port& a, const tcp::Port& b) {
    const auto of = [&](const tcp::Port& port) {
      return distance(here, real_path(fs::path(sysfs) / "class/net" / port.name / "device"));
    };
    return of(a) < of(b);
  });
}

std::vector<uint32_t> cores_near(const std::string& device, const std::string& sysfs) {
  const std::string text = first_line(fs::path(sysfs) / "bus/pci/devices" / device / "local_cpulist");
  return text.empty() ? std::vector<uint32_t>{} : parse_cores(text);
}

std::vector<uint32_t> parse_cores(const std::string& text) {
  std::vector<uint32_t> cores;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](uint32_t& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc{} && value < kMostCores;
  };
  for (bool more = true; more;) {
    uint32_t first = 0;
    bool right = number(first);
    uint32_t last = first;
    if (right && at < end && *at == '-') ++at, right = number(last) && first <= last;
    more = at < end && *at == ',';
    if (!right || (!more && at != end))
      throw Error(Code::invalid_argument, "'" + text + "' is no list of processor cores",
                  "write one like 0-3,8");
    if (more) ++at;
    for (uint32_t core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

}  // namespace starling::link
