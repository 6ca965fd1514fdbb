// Goal: ports near a device come first, or near the cores that a rank runs on, and a device's cores are
// known. Method: a sysfs of our own: two switches with a card each under one root, a third card on the other
// processor, a port without a card, and a NUMA node that is memory alone.
// sanitize: address (one thread)
#include "link/tcp/near.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace starling::link {
namespace {

namespace fs = std::filesystem;

class Near : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("starling_near_" + std::to_string(getpid()));
    add("pci0000:00/0000:00:01.0/0000:02:00.0/0000:03:00.0", "0000:03:00.0", 0, "");
    add("pci0000:00/0000:00:01.0/0000:02:01.0/0000:04:00.0", "0000:04:00.0", 0, "near");
    add("pci0000:00/0000:00:02.0/0000:05:00.0", "0000:05:00.0", 0, "node");
    add("pci0000:80/0000:80:01.0/0000:83:00.0", "0000:83:00.0", 1, "far");
    fs::create_directories(root_ / "class/net/virtual");
    const std::pair<const char*, const char*> nodes[] = {{"node0", "0-3,8"}, {"node1", "4-7"}, {"node2", ""}};
    for (const auto& [node, cores] : nodes) {
      fs::create_directories(root_ / "devices/system/node" / node);
      std::ofstream(root_ / "devices/system/node" / node / "cpulist") << cores << '\n';
    }
    fs::create_directories(root_ / "devices/system/node/power");
  }
  void TearDown() override { fs::remove_all(root_); }
  void add(const std::string& place, const std::string& address, int node, const std::string& interface) {
    const fs::path folder = root_ / "devices" / place;
    fs::create_directories(folder);
    fs::create_directories(root_ / "bus/pci/devices");
    fs::create_directory_symlink(folder, root_ / "bus/pci/devices" / address);
    std::ofstream(folder / "numa_node") << node << '\n';
    std::ofstream(folder / "local_cpulist") << (node == 0 ? "0-2,8" : "4-6") << '\n';
    if (interface.empty()) return;
    fs::create_directories(root_ / "class/net" / interface);
    fs::create_directory_symlink(folder, root_ / "class/net" / interface / "device");
  }
  static std::vector<tcp::Port> all_ports() {
    std::vector<tcp::Port> ports;
    for (const char* name : {"virtual", "far", "node", "near"}) {
      ports.emplace_back();
      ports.back().name = name;
    }
    return ports;
  }
  std::string names(const std::string& device, const ToldHost& told = {}) const {
    std::vector<tcp::Port> ports = all_ports();
    nearest_first(ports, device, told, root_);
    return text_of(ports);
  }
  std::string names_by_cores(const std::vector<uint32_t>& cores) const {
    std::vector<tcp::Port> ports = all_ports();
    nearest_first(ports, cores, root_);
    return text_of(ports);
  }
  static std::string text_of(const std::vector<tcp::Port>& ports) {
    std::string text;
    for (const tcp::Port& port : ports) text += port.name + " ";
    return text;
  }
  fs::path root_;
};

TEST_F(Near, PortsOfTheSameBridgeComeFirst) {
  EXPECT_EQ(names("0000:03:00.0"), "near node virtual far ");
  EXPECT_EQ(names("0000:83:00.0"), "far virtual node near ");
  EXPECT_EQ(names("0000:99:00.0"), "virtual far node near ") << "nobody knows the device";
}

TEST_F(Near, PortsOfTheNodesOfCoresComeFirst) {
  EXPECT_EQ(names_by_cores({8}), "node near virtual far ");
  EXPECT_EQ(names_by_cores({5, 6}), "far virtual node near ");
  EXPECT_EQ(names_by_cores({3, 4}), "virtual far node near ") << "cores of all nodes";
  EXPECT_EQ(names_by_cores({}), "virtual far node near ");
  EXPECT_EQ(names_by_cores({99}), "virtual far node near ") << "nobody knows the core";
  fs::remove_all(root_ / "devices/system/node");
  EXPECT_EQ(names_by_cores({8}), "virtual far node near ") << "no nodes are told";
}

ToldDevice told_of(const std::string& kind, const std::string& name, const std::string& pci,
                   const std::vector<std::string>& path, int numa) {
  ToldDevice device;
  device.kind = kind;
  device.name = name;
  device.pci = pci;
  device.path = path;
  device.numa = numa;
  return device;
}

// A file that says where the virtual port lies, and that the near one lies on the other processor.
TEST_F(Near, AFileCountsAndNotSysfs) {
  ToldHost told;
  told.devices.push_back(told_of("nic", "virtual", "", {"pci0000:00", "0000:00:01.0"}, 0));
  EXPECT_EQ(names("0000:03:00.0", told), "virtual near node far ") << "as near as the one that sysfs has";
  told.devices.push_back(told_of("nic", "near", "", {"pci0000:80"}, 1));
  EXPECT_EQ(names("0000:03:00.0", told), "virtual node far near ");
  EXPECT_EQ(names("0000:83:00.0", told), "far near virtual node ");
  told.devices.push_back(told_of("gpu", "gpu0", "0000:03:00.0", {"pci0000:80"}, 1));
  EXPECT_EQ(names("0000:03:00.0", told), "far near virtual node ") << "the GPU lies elsewhere, too";
}

// As one does that is written for the leaves alone.
TEST_F(Near, AFileThatDoesNotSayWhereDevicesLieLeavesThemToSysfs) {
  ToldHost told;
  for (const char* name : {"near", "node", "far"}) told.devices.push_back(told_of("nic", name, "", {}, -1));
  told.devices.push_back(told_of("gpu", "gpu0", "0000:03:00.0", {}, -1));
  EXPECT_EQ(names("0000:03:00.0", told), names("0000:03:00.0"));
}

TEST_F(Near, Cores) {
  EXPECT_EQ(cores_near("0000:03:00.0", root_), (std::vector<uint32_t>{0, 1, 2, 8}));
  EXPECT_EQ(cores_near("0000:99:00.0", root_), std::vector<uint32_t>{});
}

TEST(Cores, AreWrittenAsRanges) {
  EXPECT_EQ(parse_cores("3"), std::vector<uint32_t>{3});
  EXPECT_EQ(parse_cores("0-1,7"), (std::vector<uint32_t>{0, 1, 7}));
  for (const char* wrong : {"", "a", "1-", "3-1", "1,,2", "1,", "-1", "0-99999999", "1 2"})
    EXPECT_THROW(parse_cores(wrong), Error) << wrong;
}

}  // namespace
}  // namespace starling::link
