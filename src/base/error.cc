#include "base/error.h"

#include <cerrno>
#include <system_error>
#include <utility>

namespace starling {
namespace {

std::string place(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

std::string full_text(Code code, const std::string& happened, const std::string& remedy,
                      const std::source_location& where) {
  std::string text = happened;
  if (!remedy.empty()) text += "; remedy: " + remedy;
  return text + " [" + code_name(code) + ", " + place(where) + "]";
}

}  // namespace

const char* code_name(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid_argument";
    case Code::mismatch: return "mismatch";
    case Code::timeout: return "timeout";
    case Code::peer_failed: return "peer_failed";
    case Code::aborted: return "aborted";
    case Code::unsupported: return "unsupported";
    case Code::internal: return "internal";
    case Code::system: return "system";
    case Code::exhausted: return "exhausted";
  }
  return "unknown";
}

Error::Error(Code code, std::string happened, std::string remedy, std::source_location where)
    : std::runtime_error(full_text(code, happened, remedy, where)),
      code_(code),
      happened_(std::move(happened)),
      remedy_(std::move(remedy)),
      where_(place(where)) {}

Error system_error(const std::string& happened, std::string remedy, std::source_location where) {
  return Error(Code::system, happened + ": " + std::generic_category().message(errno), std::move(remedy),
               where);
}

}  // namespace starling
