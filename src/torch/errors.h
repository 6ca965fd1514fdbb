// Errors of the library as the exceptions that torch.distributed raises.
#pragma once

#include <exception>
#include <string>

#include <starling/starling.h>

namespace starling::torch_adapter {

// RuntimeError for misuse, NotImplementedError for what is not supported, DistBackendError for everything
// that other ranks or the machine had a part in.
std::exception_ptr make_exception(starling_status status, const std::string& message);

// Throws the exception of a status that is not success, with starling_last_error() of this thread.
void check(starling_status status, const std::string& doing);

}  // namespace starling::torch_adapter
