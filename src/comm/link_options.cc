#include "comm/link_options.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/host_layout.h"
#include "link/tcp/near.h"

namespace starling {
namespace {

template <class To>
To within(const char* name, int64_t value, int64_t most) {
  if (value > most)
    throw Error(Code::invalid_argument, std::string(name) + "=" + std::to_string(value) + " is not valid",
                "the most is " + std::to_string(most));
  return To(value);
}

link::carry::Rdma rdma_of(const std::string& text) {
  if (text == "auto") return link::carry::Rdma::kWherePossible;
  if (text == "tcp") return link::carry::Rdma::kNever;
  if (text == "verbs") return link::carry::Rdma::kAlways;
  throw Error(Code::invalid_argument, "STARLING_LINK='" + text + "' is not valid",
              "set it to auto, tcp or verbs");
}

bool gpu_direct_of(const std::string& text) {
  if (text == "auto" || text == "anywhere") return true;
  if (text == "never") return false;
  throw Error(Code::invalid_argument, "STARLING_GPUDIRECT='" + text + "' is not valid",
              "set it to auto, never or anywhere");
}

link::tcp::Family family_of(const std::string& text) {
  if (text == "auto") return link::tcp::Family::kAny;
  if (text == "ipv4") return link::tcp::Family::kIpv4;
  if (text == "ipv6") return link::tcp::Family::kIpv6;
  throw Error(Code::invalid_argument, "STARLING_TCP_FAMILY='" + text + "' is not valid",
              "set it to auto, ipv4 or ipv6");
}

std::vector<uint32_t> cores_of(const std::string& text, const std::string& device) {
  if (text == "any") return {};
  if (text == "auto") return device.empty() ? std::vector<uint32_t>{} : link::cores_near(device);
  return link::parse_cores(text);
}

// Of this host, by the rank's own file. One that cannot be read is said by rank 0, or is there alone.
link::ToldHost told_of_host(const Settings& settings) {
  try {
    for (link::ToldHost& host : link::read_topology(settings.topology))
      if (host.name == name_of_host(settings)) return std::move(host);
  } catch (const Error& error) {
    if (error.code() != Code::system) throw;
    log(LogLevel::info, error.happened(), "; ports are chosen by what the system says");
  }
  return {};
}

bool is_usable(const std::string& port, link::tcp::Family family) {
  try {
    return !link::tcp::usable_ports(port, family).empty();
  } catch (const Error& error) {
    if (error.code() != Code::invalid_argument) throw;
    log(LogLevel::info, error.happened(), "; links do without it");
    return false;
  }
}

// Interfaces that the file names for the GPU come in the place of the nearest. Those that are down now are
// left out: the others carry what they would.
void choose_ports_by_file(const Settings& settings, link::carry::ProxyOptions& options) {
  if (settings.topology.empty() || options.device.empty() || !options.interfaces.empty()) return;
  options.told = told_of_host(settings);
  const link::ToldDevice* const gpu = options.told.gpu(options.device);
  if (gpu == nullptr || gpu->ports.empty()) return;
  std::string named;
  for (const std::string& port : gpu->ports) {
    named += (named.empty() ? "" : ",") + port;
    if (is_usable(port, options.family)) options.interfaces += (options.interfaces.empty() ? "" : ",") + port;
  }
  if (options.interfaces.empty())
    throw Error(Code::invalid_argument,
                "of the ports that " + settings.topology + " names for GPU " + options.device + " (" + named +
                    ") none is up and has an address",
                "mend the GPU's \"ports\" there, or set STARLING_TCP_INTERFACES");
  log(LogLevel::info, "links of GPU ", options.device, " go by ", options.interfaces, ", as ",
      settings.topology, " says");
}

}  // namespace

link::carry::ProxyOptions link_options(const Settings& settings, uint64_t shadow_bytes,
                                       const std::string& device) {
  link::carry::ProxyOptions options;
  options.interfaces = settings.tcp_interfaces;
  if (settings.tcp_congestion != "auto") options.congestion = settings.tcp_congestion;
  options.family = family_of(settings.tcp_family);
  options.policy = settings.tcp_striping ? link::Policy::kStriping : link::Policy::kPrimaryBackup;
  options.lengths.give_up_ns = uint64_t(settings.tcp_give_up_s * 1e9);
  options.lengths.probe_ns = uint64_t(settings.probe_s * 1e9);
  options.shadow_bytes = shadow_bytes;
  options.recorded = settings.window > 0;
  options.rdma = rdma_of(settings.link);
  options.polls = settings.link_polls;
  options.device = device;
  choose_ports_by_file(settings, options);
  options.cores = cores_of(settings.link_cores, device);
  link::verbs::QueuePairSettings& pairs = options.queue_pairs;
  pairs.count = within<uint32_t>("STARLING_VERBS_QUEUE_PAIRS", settings.verbs_queue_pairs, kMaxQueuePairs);
  pairs.timeout = within<uint8_t>("STARLING_VERBS_TIMEOUT", settings.verbs_timeout, 31);
  pairs.retries = within<uint8_t>("STARLING_VERBS_RETRIES", settings.verbs_retries, 6);
  pairs.traffic_class = within<uint8_t>("STARLING_VERBS_TRAFFIC_CLASS", settings.verbs_traffic_class, 255);
  pairs.service_level = within<uint8_t>("STARLING_VERBS_SERVICE_LEVEL", settings.verbs_service_level, 15);
  options.straight = settings.verbs_straight;
  options.gpu_direct = gpu_direct_of(settings.gpudirect);
  return options;
}

}  // namespace starling
