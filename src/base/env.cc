#include "base/env.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>
#include <variant>

#include "base/error.h"

namespace starling {
namespace {

constexpr std::string_view kPrefix = "STARLING_";

// Which field a row fills, and how its text is read. `Bytes` takes the suffixes k, m and g (powers of 1024).
struct Bytes {
  std::int64_t Settings::* field;
};
using Field = std::variant<bool Settings::*, std::int64_t Settings::*, double Settings::*,
                           std::string Settings::*, LogLevel Settings::*, Pull Settings::*,
                           SmFree Settings::*, StreamHold Settings::*, Guard Settings::*, Bytes>;

struct Row {
  std::string_view name;
  std::string_view type;
  std::string_view default_text;
  std::string_view help;
  Field field;
  double min = 0;
  double max = 1e9;  // 31 years as seconds, in nanoseconds well within 64 bits; a count in 32. Not of bytes
};

// long: the table. Other programs of the project (build, tests) read no STARLING_* variable that is not here.
const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"STARLING_LOG", "off|error|warn|info|debug|trace", "warn", "How much is logged to stderr.",
       &Settings::log_level},
      {"STARLING_TIMEOUT_S", "seconds", "1800",
       "How long an operation may take before it fails with an error that names who waits for what.",
       &Settings::timeout_s, 1e-3},
      {"STARLING_BLOCKS", "count", "0",
       "Blocks of a rank's daemon: threads on the CPU, thread blocks on a GPU. 0: 1 on the CPU, 32 on a GPU.",
       &Settings::blocks},
      {"STARLING_POOL_BYTES", "bytes", "64m",
       "Shared pool of a rank from which connectors borrow large slots.", Bytes{&Settings::pool_bytes}},
      {"STARLING_ARENA_BYTES", "bytes", "16g",
       "Address space of a rank's segment for counters, slots and queues (memory is used only where "
       "touched).",
       Bytes{&Settings::arena_bytes}, 1 << 20},
      {"STARLING_JOB", "text", "",
       "Names the job, for `starling top` and `diagnose` and where no store is given: the same on all ranks, "
       "different from other jobs of the user.",
       &Settings::job},
      {"STARLING_PULL", "auto|0|1", "auto",
       "Whether ranks read large operations' buffers directly. auto: ranks of one process do, and processes "
       "on CPUs where the kernel lets them and it was faster when they joined, and processes on GPUs of one "
       "host, through CUDA IPC, from sizes on where that is faster. 1: all of these, whatever is faster and "
       "of all sizes but small ones. 0: never, on no rank; for threads on GPUs whose memory peers cannot "
       "read "
       "(cudaMallocAsync, expandable segments).",
       &Settings::pull},
      {"STARLING_SM_FREE", "0|auto|1", "0",
       "Whether sends, receives, all_gather, all_to_all, broadcast, gather and scatter between GPUs are "
       "moved by "
       "copy engines, which cost no multiprocessor and no kernel; between hosts sends and receives alone, "
       "through pinned memory. 1: all; auto: messages of 2 MiB and more, and others of 8 MiB and more. The "
       "least willing rank decides.",
       &Settings::sm_free},
      {"STARLING_GUARD", "0|1|watch", "watch",
       "GPUs: what waits for work while streams stand. watch: nothing; behind the waits of streams, 64 at "
       "most, are blocks that come where the daemon does not within 2 ms, and large operations of lanes with "
       "names begin when all ranks' streams have come to them. 1: one of the daemon's blocks, which calls "
       "the "
       "others when there is work for them. 0: the whole daemon.",
       &Settings::guard},
      {"STARLING_STREAM_HOLD", "gate|wait|doorbell", "gate",
       "GPUs, for measurements: what a stream stands by behind an operation. gate: its start kernel, of "
       "which "
       "a block stays if the operation is left to the daemon. wait: a wait value. doorbell: a wait value, "
       "and "
       "no start kernel: the stream tells the daemon. No CUDA graphs with doorbell.",
       &Settings::stream_hold},
      {"STARLING_CALL_LINGER_US", "microseconds", "100",
       "GPUs: where the CPU calls small operations in a row, the last one's kernel stays for the next so "
       "long, 2000 at most, which spares its launch. A device synchronization may wait for it. 0: none "
       "stays.",
       &Settings::call_linger_us, 0, 2000},
      {"STARLING_STRICT", "0|1", "0",
       "For tests. 1: what is a bug of ours and only costs time, mostly, ends the process.",
       &Settings::strict},
      {"STARLING_TABLE", "path", "",
       "Table of choices that `starling tune` wrote: which algorithm for which size. The same on all ranks.",
       &Settings::table},
      {"STARLING_TOPOLOGY", "path", "",
       "Hosts, their GPUs and ports, as `starling topo --json` writes them. Rings pass hosts of one leaf "
       "switch one after the other, by rank 0's file. What a rank's own file says of its host comes in the "
       "place of the system's word: which ports are near a GPU, or which it takes (\"ports\" of a GPU). A "
       "host's name is its STARLING_HOST_ID, or what `hostname` says.",
       &Settings::topology},
      {"STARLING_FLIGHT_DIR", "path", "",
       "Folder where ranks write their flight records when an operation fails, for `starling diagnose`: one "
       "that all hosts see. Unset: they stay in /dev/shm.",
       &Settings::flight_dir},
      {"STARLING_HOST_ID", "text", "",
       "Ranks with one host id share memory, others are linked by TCP. Unset: one system with one /dev/shm.",
       &Settings::host_id},
      {"STARLING_TCP_INTERFACES", "names", "",
       "Network interfaces for links to other hosts, or literal addresses of theirs, separated by commas, "
       "the preferred one first. Unset: all that are up and have an address that is not link-local, without "
       "loopback, those near the rank's GPU or NUMA nodes first.",
       &Settings::tcp_interfaces},
      {"STARLING_TCP_FAMILY", "auto|ipv4|ipv6", "auto",
       "Which address stands for an interface that is named by its name. auto: IPv4 if it has one. The same "
       "on all ranks.",
       &Settings::tcp_family},
      {"STARLING_TCP_CONGESTION", "auto|system|name", "auto",
       "Congestion control of links over TCP. auto: the system's, but CUBIC in the place of BBR, which finds "
       "out slowly what a burst may have. system: the system's. Or one that it has, by its name.",
       &Settings::tcp_congestion},
      {"STARLING_TCP_STRIPING", "0|1", "0",
       "1: links use all interfaces at once. 0: the first that lives. The same on all ranks.",
       &Settings::tcp_striping},
      {"STARLING_TCP_GIVE_UP_S", "seconds", "10",
       "How long a link waits for one of its interfaces to live again before its operations fail.",
       &Settings::tcp_give_up_s, 1e-1},
      {"STARLING_PROBE_S", "seconds", "0.3",
       "How long a path may leave a probe unanswered before links leave it. More for slow or busy hosts.",
       &Settings::probe_s, 1e-2},
      {"STARLING_LINK", "auto|tcp|verbs", "auto",
       "What links to other hosts go over. auto: RDMA where both ends' interfaces have it (RoCE v2), else "
       "TCP. verbs: "
       "likewise, but an error where this host has no RDMA device.",
       &Settings::link},
      {"STARLING_LINK_POLLS", "0|1", "0",
       "1: the thread of the links looks for what this rank sends instead of being woken; for GPUs always.",
       &Settings::link_polls},
      {"STARLING_LINK_CORES", "auto|any|cores", "auto",
       "Processor cores that the links' threads may run on, like 0-3,8. auto: of a GPU's rank those near the "
       "GPU, else any.",
       &Settings::link_cores},
      {"STARLING_VERBS_QUEUE_PAIRS", "count", "1", "Queue pairs of a path over RDMA, 1 to 4.",
       &Settings::verbs_queue_pairs, 1},
      {"STARLING_VERBS_TIMEOUT", "exponent", "14",
       "How long a queue pair waits for an acknowledgement: 4.096 us times two to this power, 1 to 31.",
       &Settings::verbs_timeout, 1},
      {"STARLING_VERBS_RETRIES", "count", "6",
       "How often a queue pair sends again before its path fails, 0 to 6.", &Settings::verbs_retries},
      {"STARLING_VERBS_TRAFFIC_CLASS", "0..255", "0",
       "Traffic class of what goes over RDMA (the DSCP is its upper six bits).",
       &Settings::verbs_traffic_class},
      {"STARLING_VERBS_SERVICE_LEVEL", "0..15", "0", "Service level of what goes over RDMA.",
       &Settings::verbs_service_level},
      {"STARLING_VERBS_STRAIGHT", "0|1", "1",
       "1: over RDMA large messages are written from where they lie to where they are wanted. 0: all are "
       "copied into rings, and out of them.",
       &Settings::verbs_straight},
      {"STARLING_GPUDIRECT", "auto|never|anywhere", "auto",
       "Where slots of messages to other hosts lie. auto: in the GPU's memory, if all paths of two ranks go "
       "over RDMA "
       "and their devices reach it; then paths do not fall back to TCP. never: in pinned memory of the host. "
       "anywhere: as auto, of ranks on CPUs in memory that hosts do not touch (for tests).",
       &Settings::gpudirect},
      {"STARLING_WINDOW", "transfers", "8",
       "Sliding window in which watchers (`starling top`) measure a path's throughput: 1 to 1024. 0: "
       "transfers "
       "are not recorded.",
       &Settings::window, 0, 1024},
      {"STARLING_TORCH_NEGOTIATE", "0|1", "0",
       "PyTorch: submit an operation when all ranks have issued it (OCCL section 4); the same on all ranks.",
       &Settings::torch_negotiate},
      {"STARLING_TORCH_HOLD_STREAMS", "0|1", "0",
       "PyTorch: an asynchronous operation of CUDA holds a stream of its group until it is complete, as "
       "NCCL's do: a device synchronization waits for it.",
       &Settings::torch_hold_streams},
  };
  return rows;
}

[[noreturn]] void refuse(const Row& row, std::string_view text, const std::string& remedy) {
  throw Error(Code::invalid_argument, std::string(row.name) + "='" + std::string(text) + "' is not valid",
              remedy);
}

std::string takes(const Row& row) {
  return "set it to a value of type " + std::string(row.type) + ", or unset it for " +
         std::string(row.default_text);
}

template <typename T>
T parse_number(const Row& row, std::string_view text, std::string_view whole) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) refuse(row, whole, takes(row));
  // Written so that NaN is refused too.
  if (!(static_cast<double>(value) >= row.min))
    refuse(row, whole, "the least value is " + std::to_string(row.min));
  if (static_cast<double>(value) > row.max)
    refuse(row, whole, "the largest value is " + std::to_string(int64_t(row.max)));
  return value;
}

std::int64_t parse_bytes(const Row& row, std::string_view text) {
  std::int64_t unit = 1;
  std::string_view digits = text;
  const char suffix = digits.empty() ? '\0' : static_cast<char>(digits.back() | 0x20);
  if (suffix == 'k') unit = std::int64_t{1} << 10;
  if (suffix == 'm') unit = std::int64_t{1} << 20;
  if (suffix == 'g') unit = std::int64_t{1} << 30;
  if (unit != 1) digits.remove_suffix(1);
  Row any = row;
  any.min = 0;
  any.max = static_cast<double>(std::numeric_limits<std::int64_t>::max());
  const auto count = parse_number<std::int64_t>(any, digits, text);
  if (count > std::numeric_limits<std::int64_t>::max() / unit) refuse(row, text, "it is beyond 64 bits");
  if (static_cast<double>(count * unit) < row.min)
    refuse(row, text, "the least is " + std::to_string(row.min));
  return count * unit;
}

std::optional<bool> flag_of(std::string_view text) {
  if (text == "1" || text == "true" || text == "on" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "off" || text == "no") return false;
  return std::nullopt;
}

bool parse_flag(const Row& row, std::string_view text) {
  if (const auto flag = flag_of(text)) return *flag;
  refuse(row, text, "set it to 1 or 0");
}

Pull parse_pull(const Row& row, std::string_view text) {
  if (text == "auto") return Pull::kAuto;
  if (text == "0") return Pull::kNever;
  if (text == "1") return Pull::kAlways;
  refuse(row, text, "set it to auto, 0 or 1");
}

SmFree parse_sm_free(const Row& row, std::string_view text) {
  if (text == "0") return SmFree::kNever;
  if (text == "auto") return SmFree::kBySize;
  if (text == "1") return SmFree::kAlways;
  refuse(row, text, "set it to 0, auto or 1");
}

Guard parse_guard(const Row& row, std::string_view text) {
  if (text == "watch") return Guard::kWatch;
  if (const auto flag = flag_of(text)) return *flag ? Guard::kBlock : Guard::kAll;
  refuse(row, text, "set it to 0, 1 or watch");
}

StreamHold parse_stream_hold(const Row& row, std::string_view text) {
  if (text == "gate") return StreamHold::kGate;
  if (text == "wait") return StreamHold::kWait;
  if (text == "doorbell") return StreamHold::kDoorbell;
  refuse(row, text, "set it to gate, wait or doorbell");
}

LogLevel parse_level(const Row& row, std::string_view text) {
  for (int level = 0; level <= static_cast<int>(LogLevel::trace); ++level) {
    if (text == log_level_name(static_cast<LogLevel>(level))) return static_cast<LogLevel>(level);
  }
  refuse(row, text, takes(row));
}

struct Assign {
  const Row& row;
  std::string_view text;
  Settings& out;

  void operator()(bool Settings::* field) const { out.*field = parse_flag(row, text); }
  void operator()(std::int64_t Settings::* field) const {
    out.*field = parse_number<std::int64_t>(row, text, text);
  }
  void operator()(double Settings::* field) const { out.*field = parse_number<double>(row, text, text); }
  void operator()(std::string Settings::* field) const { out.*field = std::string(text); }
  void operator()(LogLevel Settings::* field) const { out.*field = parse_level(row, text); }
  void operator()(Pull Settings::* field) const { out.*field = parse_pull(row, text); }
  void operator()(SmFree Settings::* field) const { out.*field = parse_sm_free(row, text); }
  void operator()(Guard Settings::* field) const { out.*field = parse_guard(row, text); }
  void operator()(StreamHold Settings::* field) const { out.*field = parse_stream_hold(row, text); }
  void operator()(Bytes bytes) const { out.*bytes.field = parse_bytes(row, text); }
};

void assign(const Row& row, std::string_view text, Settings& out) {
  std::visit(Assign{row, text, out}, row.field);
}

// Levenshtein's distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view name) {
  const auto& rows = table();
  return std::min_element(rows.begin(), rows.end(),
                          [&](const Row& a, const Row& b) {
                            return edit_distance(a.name, name) < edit_distance(b.name, name);
                          })
      ->name;
}

const Row* find_row(std::string_view name) {
  for (const Row& row : table()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

Settings read_process_settings() {
  std::vector<const char*> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) entries.push_back(*entry);
  SettingsReading reading = read_settings(entries);
  if (reading.settings.log_level >= LogLevel::warn) {
    for (const std::string& warning : reading.warnings) write_log_line(LogLevel::warn, kNoRank, warning);
  }
  return reading.settings;
}

}  // namespace

SettingsReading read_settings(std::span<const char* const> entries) {
  SettingsReading reading;
  for (const Row& row : table()) assign(row, row.default_text, reading.settings);
  for (std::string_view entry : entries) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || !entry.starts_with(kPrefix)) continue;
    const std::string_view name = entry.substr(0, equals);
    if (const Row* row = find_row(name)) {
      assign(*row, entry.substr(equals + 1), reading.settings);
    } else {
      reading.warnings.push_back("unknown setting " + std::string(name) + " is ignored; did you mean " +
                                 std::string(nearest_name(name)) + "?");
    }
  }
  return reading;
}

std::vector<SettingRow> settings_table() {
  std::vector<SettingRow> rows;
  for (const Row& row : table()) rows.push_back({row.name, row.type, row.default_text, row.help});
  return rows;
}

std::string settings_markdown() {
  std::string text = "| setting | type | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const SettingRow& row : settings_table()) {
    std::string type(row.type);
    for (std::size_t at = 0; (at = type.find('|', at)) != std::string::npos; at += 2) type.insert(at, "\\");
    text += "| `" + std::string(row.name) + "` | " + type + " | " + std::string(row.default_text) + " | " +
            std::string(row.help) + " |\n";
  }
  return text;
}

const Settings& settings() {
  static const Settings read_once = read_process_settings();
  return read_once;
}

std::string job_name() {
  if (!settings().job.empty()) return settings().job;
  // Names that only together are unique to one run of a launcher.
  static constexpr const char* kLaunchers[][2] = {{"TORCHELASTIC_RUN_ID", "MASTER_PORT"},
                                                  {"PMIX_NAMESPACE", "PMIX_SERVER_TMPDIR"},
                                                  {"OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"},
                                                  {"SLURM_JOB_ID", "SLURM_STEP_ID"}};
  for (const auto& names : kLaunchers) {
    std::string job;
    for (const char* name : names) {
      const char* value = std::getenv(name);
      if (value != nullptr) job += (job.empty() ? "" : " ") + std::string(name) + "=" + value;
    }
    if (!job.empty()) return job;
  }
  return "";
}

bool single_hardware_queue() {
  const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return connections != nullptr && std::string_view(connections) == "1";
}

}  // namespace starling
