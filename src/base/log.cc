#include "base/log.h"

#include <unistd.h>

#include <string>

#include "base/env.h"
#include "base/error.h"

namespace starling {

const char* log_level_name(LogLevel level) {
  switch (level) {
    case LogLevel::off: return "off";
    case LogLevel::error: return "error";
    case LogLevel::warn: return "warn";
    case LogLevel::info: return "info";
    case LogLevel::debug: return "debug";
    case LogLevel::trace: return "trace";
  }
  return "unknown";
}

bool log_enabled(LogLevel level) {
  // A bad setting is reported by whoever asks for it first; a log line must not throw for it.
  try {
    return level <= settings().log_level;
  } catch (const Error&) {
    return level <= LogLevel::warn;
  }
}

void write_log_line(LogLevel level, int rank, std::string_view message) {
  std::string line = "starling";
  if (rank != kNoRank) line += "[rank " + std::to_string(rank) + "]";
  line += ' ';
  line += log_level_name(level);
  line += ": ";
  line += message;
  line += '\n';
  // Losing a log line is all that can go wrong here.
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace starling
