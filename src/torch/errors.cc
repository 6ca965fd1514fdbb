#include "errors.h"

#include <c10/util/Exception.h>

namespace starling::torch_adapter {
namespace {

[[noreturn]] void raise(starling_status status, const std::string& message) {
  const std::string text = message + " [" + starling_status_name(status) + "]";
  switch (status) {
    case STARLING_INVALID_ARGUMENT: C10_THROW_ERROR(Error, text);
    case STARLING_UNSUPPORTED: C10_THROW_ERROR(NotImplementedError, text);
    default: C10_THROW_ERROR(DistBackendError, text);
  }
}

}  // namespace

std::exception_ptr make_exception(starling_status status, const std::string& message) {
  try {
    raise(status, message);
  } catch (...) {
    return std::current_exception();
  }
}

void check(starling_status status, const std::string& doing) {
  if (status != STARLING_SUCCESS) raise(status, "starling: " + doing + ": " + starling_last_error());
}

}  // namespace starling::torch_adapter
