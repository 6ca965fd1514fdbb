#include "base/status.h"

#include <utility>

namespace starling {
namespace {

std::string& last_error_text() {
  thread_local std::string text = "no error";
  return text;
}

}  // namespace

// Code and starling_status list the same things in the same order.
static_assert(int(Code::mismatch) == STARLING_MISMATCH && int(Code::exhausted) == STARLING_EXHAUSTED);

starling_status status_of(Code code) { return starling_status(int(code)); }
Code code_of(starling_status status) { return Code(int(status)); }

starling_status status_of_exception(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (ours != nullptr) return status_of(ours->code());
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? STARLING_EXHAUSTED : STARLING_INTERNAL;
}

starling_status set_last_error(starling_status status, std::string text) {
  last_error_text() = std::move(text);
  return status;
}

starling_status set_last_error(const Error& error) {
  return set_last_error(status_of(error.code()), error.what());
}

}  // namespace starling

extern "C" {

const char* starling_last_error(void) { return starling::last_error_text().c_str(); }

const char* starling_status_name(starling_status status) {
  switch (status) {
    case STARLING_SUCCESS: return "success";
    case STARLING_INVALID_ARGUMENT: return "invalid argument";
    case STARLING_MISMATCH: return "mismatch";
    case STARLING_TIMEOUT: return "timeout";
    case STARLING_PEER_FAILED: return "peer failed";
    case STARLING_ABORTED: return "aborted";
    case STARLING_UNSUPPORTED: return "unsupported";
    case STARLING_INTERNAL: return "internal error";
    case STARLING_SYSTEM: return "system error";
    case STARLING_EXHAUSTED: return "exhausted";
    case STARLING_IN_PROGRESS: return "in progress";
  }
  return "unknown status";
}

}  // extern "C"
