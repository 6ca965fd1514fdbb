// A topology as a file says it, in the place of the machine: what `starling topo --json` writes, and what was
// written into it by hand.
#pragma once
#include <string>
#include <vector>

namespace starling::link {

struct ToldDevice {
  std::string kind;  // gpu, nic
  std::string name;  // of a port: its interface
  std::string pci;  // address, "0000:17:00.0"
  std::vector<std::string> path;  // above it: the root complex, then bridges
  int numa = -1;  // -1: not known
  std::string leaf;  // of a port: the switch at the other end; "": not known
  bool up = true;
  std::vector<std::string>
      ports;  // of a GPU: interfaces for its links, the preferred one first; empty: the nearest
};

struct ToldHost {
  std::string name;
  std::vector<ToldDevice> devices;

  const ToldDevice* gpu(const std::string& pci) const;  // null: it says nothing of it
  const ToldDevice* port(const std::string& name) const;
};

// Throws Error(system) if the file cannot be read, Error(invalid_argument) if it says no topology.
std::vector<ToldHost> read_topology(const std::string& path);

}  // namespace starling::link
