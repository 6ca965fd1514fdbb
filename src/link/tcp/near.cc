#include "link/tcp/near.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>

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

struct Place {
  std::vector<std::string> path;  // the root complex, bridges, itself perhaps
  int numa = -1;
};

// /sys/devices/pci0000:00/0000:00:01.0/...: the bridges above it, and itself.
Place place_in_sysfs(const fs::path& link) {
  std::error_code error;
  const fs::path real = fs::canonical(link, error);
  Place place;
  if (error) return place;
  for (const fs::path& part : real)
    if (!place.path.empty() || part.string().starts_with("pci")) place.path.push_back(part.string());
  const std::string node = first_line(real / "numa_node");
  std::from_chars(node.data(), node.data() + node.size(), place.numa);
  return place;
}

struct Distance {
  uint32_t shared_bridges = 0;
  bool same_node = false;
  bool operator<(const Distance& other) const {
    if (shared_bridges != other.shared_bridges) return shared_bridges > other.shared_bridges;
    return same_node && !other.same_node;
  }
};

// The root complex is shared by all of a node, and says nothing.
Distance distance(const Place& a, const Place& b) {
  Distance found;
  for (size_t k = 0; k < std::min(a.path.size(), b.path.size()) && a.path[k] == b.path[k]; ++k)
    found.shared_bridges += k > 0;
  found.same_node = a.numa != -1 && a.numa == b.numa;
  return found;
}

// Those of the NUMA nodes with cores that these cores are of. Empty: of all, or the system does not say.
std::set<int> nodes_of(const std::vector<uint32_t>& cores, const std::string& sysfs) {
  std::set<int> nodes;
  bool all = true;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(sysfs) / "devices/system/node", error)) {
    const std::string name = entry.path().filename();
    int node = -1;
    if (!name.starts_with("node") ||
        std::from_chars(name.data() + 4, name.data() + name.size(), node).ec != std::errc{})
      continue;
    const std::string text = first_line(entry.path() / "cpulist");
    if (text.empty()) continue;  // memory alone
    const std::vector<uint32_t> of_node = parse_cores(text);
    if (std::find_first_of(of_node.begin(), of_node.end(), cores.begin(), cores.end()) != of_node.end())
      nodes.insert(node);
    else
      all = false;
  }
  return all ? std::set<int>{} : nodes;
}

}  // namespace

void nearest_first(std::vector<tcp::Port>& ports, const std::string& device, const ToldHost& told,
                   const std::string& sysfs) {
  const auto place = [&](const ToldDevice* in_file, const fs::path& link) {
    // A file may name a device for something else, such as a port's leaf.
    const bool told_where = in_file != nullptr && (!in_file->path.empty() || in_file->numa != -1);
    return told_where ? Place{in_file->path, in_file->numa} : place_in_sysfs(fs::path(sysfs) / link);
  };
  const Place here = place(told.gpu(device), fs::path("bus/pci/devices") / device);
  const auto of = [&](const tcp::Port& port) {
    return distance(here, place(told.port(port.name), fs::path("class/net") / port.name / "device"));
  };
  std::stable_sort(ports.begin(), ports.end(),
                   [&](const tcp::Port& a, const tcp::Port& b) { return of(a) < of(b); });
}

void nearest_first(std::vector<tcp::Port>& ports, const std::vector<uint32_t>& cores,
                   const std::string& sysfs) {
  const std::set<int> nodes = nodes_of(cores, sysfs);
  std::stable_partition(ports.begin(), ports.end(), [&](const tcp::Port& port) {
    return nodes.contains(place_in_sysfs(fs::path(sysfs) / "class/net" / port.name / "device").numa);
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
