// The settings of Starling: one table, read once from the environment, then passed down. Nothing else reads
// the environment (a test checks that). A new setting is one field of Settings and one row of the table in
// env.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace starling {

// STARLING_PULL: whether ranks read large messages out of each other's buffers.
enum class Pull : std::uint8_t { kNever, kAuto, kAlways };

// STARLING_SM_FREE: whether messages between GPUs are moved by copy engines. The least willing rank decides.
enum class SmFree : std::uint8_t { kNever, kBySize, kAlways };

// STARLING_STREAM_HOLD: what a stream stands by behind an operation on a GPU, and what begins the operation.
enum class StreamHold : std::uint8_t { kGate, kWait, kDoorbell };

// STARLING_GUARD: what waits for work while streams stand.
enum class Guard : std::uint8_t { kAll, kBlock, kWatch };

struct Settings {
  LogLevel log_level{};
  double timeout_s{};
  std::int64_t blocks{};
  std::int64_t pool_bytes{};
  std::int64_t arena_bytes{};
  std::string job;
  std::string table;
  std::string topology;
  std::string flight_dir;
  Pull pull{};
  SmFree sm_free{};
  Guard guard{};
  StreamHold stream_hold{};
  std::int64_t call_linger_us{};
  bool strict{};
  std::string host_id;
  std::string tcp_interfaces;
  std::string tcp_family;
  std::string tcp_congestion;
  bool tcp_striping{};
  double tcp_give_up_s{};
  double probe_s{};
  std::string link;
  bool link_polls{};
  std::string link_cores;
  std::int64_t verbs_queue_pairs{};
  std::int64_t verbs_timeout{};
  std::int64_t verbs_retries{};
  std::int64_t verbs_traffic_class{};
  std::int64_t verbs_service_level{};
  bool verbs_straight{};
  std::string gpudirect;
  std::int64_t window{};
  bool torch_negotiate{};  // read by the package starling.torch
  bool torch_hold_streams{};
};

// One row, as the documentation prints it.
struct SettingRow {
  std::string_view name;
  std::string_view type;
  std::string_view default_text;
  std::string_view help;
};

std::vector<SettingRow> settings_table();

// The same table as Markdown, for docs and `starling info`.
std::string settings_markdown();

struct SettingsReading {
  Settings settings;
  std::vector<std::string> warnings;  // unknown STARLING_* names, each with the nearest known one
};

// Pure: `entries` are "NAME=value" texts. Throws Error(invalid_argument) that names the variable and what it
// takes.
SettingsReading read_settings(std::span<const char* const> entries);

// The process's settings: read at the first call, constant from then on. Throws as read_settings, at every
// call.
const Settings& settings();

// A text that all ranks of one job share and no other job has: STARLING_JOB, or what torchrun, mpirun or srun
// put into the environment. Empty if nobody names the job.
std::string job_name();

// The CUDA driver was told to use one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1).
bool single_hardware_queue();

}  // namespace starling
