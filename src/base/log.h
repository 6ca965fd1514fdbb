// Lines for people, on stderr. STARLING_LOG sets the level; a line is one write, so threads and ranks never
// mix.
#pragma once

#include <sstream>
#include <string_view>

namespace starling {

enum class LogLevel { off, error, warn, info, debug, trace };

inline constexpr int kNoRank = -1;

const char* log_level_name(LogLevel level);

bool log_enabled(LogLevel level);

// Writes whatever the level is; the functions below ask log_enabled first.
void write_log_line(LogLevel level, int rank, std::string_view message);

// Arguments are joined as by operator<<. They are evaluated also when the level is off: keep them cheap.
template <typename... Args>
void log_rank(LogLevel level, int rank, const Args&... args) {
  if (!log_enabled(level)) return;
  std::ostringstream text;
  (text << ... << args);
  write_log_line(level, rank, text.str());
}

template <typename... Args>
void log(LogLevel level, const Args&... args) {
  log_rank(level, kNoRank, args...);
}

}  // namespace starling
