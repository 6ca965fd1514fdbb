#include "link/tcp/topology_file.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/read_file.h"

namespace starling::link {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(Code::invalid_argument, path + " is no topology: " + what,
              "write it with `starling topo --json`, or unset STARLING_TOPOLOGY");
}

// Members that are missing, or something else, say nothing.
std::string text_in(const Json& json, const char* name) {
  const Json* const member = json.member(name);
  return member != nullptr && member->string() != nullptr ? *member->string() : "";
}

std::vector<std::string> texts_in(const Json& json, const char* name) {
  std::vector<std::string> texts;
  const Json* const member = json.member(name);
  if (member == nullptr || member->array() == nullptr) return texts;
  for (const Json& one : *member->array())
    if (one.string() != nullptr) texts.push_back(*one.string());
  return texts;
}

ToldDevice device_in(const Json& json) {
  ToldDevice device{text_in(json, "kind"),
                    text_in(json, "name"),
                    text_in(json, "pci"),
                    texts_in(json, "path"),
                    -1,
                    text_in(json, "leaf"),
                    true,
                    texts_in(json, "ports")};
  const Json* const numa = json.member("numa");
  if (numa != nullptr && numa->number() != nullptr) device.numa = int(*numa->number());
  const Json* const up = json.member("up");
  if (up != nullptr && up->boolean() != nullptr) device.up = *up->boolean();
  return device;
}

ToldHost host_in(const Json& json, const std::string& path) {
  const Json* const name = json.member("name");
  if (name == nullptr || name->string() == nullptr) refuse(path, "a host has no name");
  ToldHost host{*name->string(), {}};
  const Json* const devices = json.member("devices");
  if (devices == nullptr || devices->array() == nullptr) return host;
  for (const Json& device : *devices->array()) host.devices.push_back(device_in(device));
  return host;
}

}  // namespace

const ToldDevice* ToldHost::gpu(const std::string& pci) const {
  const auto is_it = [&](const ToldDevice& one) { return one.kind == "gpu" && one.pci == pci; };
  const auto found = std::find_if(devices.begin(), devices.end(), is_it);
  return found == devices.end() ? nullptr : &*found;
}

const ToldDevice* ToldHost::port(const std::string& interface) const {
  const auto is_it = [&](const ToldDevice& one) { return one.kind == "nic" && one.name == interface; };
  const auto found = std::find_if(devices.begin(), devices.end(), is_it);
  return found == devices.end() ? nullptr : &*found;
}

std::vector<ToldHost> read_topology(const std::string& path) {
  const Json file = Json::parse(read_file(path, "the topology",
                                          "write one with `starling topo --json`, or unset "
                                          "STARLING_TOPOLOGY"),
                                path);
  const Json* const list = file.member("hosts");
  if (list == nullptr || list->array() == nullptr || list->array()->empty()) refuse(path, "it has no hosts");
  std::vector<ToldHost> hosts;
  for (const Json& one : *list->array()) {
    hosts.push_back(host_in(one, path));
    const auto is_it = [&](const ToldHost& other) { return other.name == hosts.back().name; };
    if (std::count_if(hosts.begin(), hosts.end(), is_it) > 1)
      refuse(path, "two hosts are called " + hosts.back().name);
  }
  return hosts;
}

}  // namespace starling::link
