// From exceptions to the C API's statuses, and the calling thread's last error text.
#pragma once
#include <starling/starling.h>

#include <exception>
#include <new>
#include <string>

#include "base/error.h"

namespace starling {

starling_status status_of(Code code);
Code code_of(starling_status status);

// Of whatever was thrown: an Error's own, of memory that is not there STARLING_EXHAUSTED, else
// STARLING_INTERNAL.
starling_status status_of_exception(const std::exception& error);

// Keeps the text for starling_last_error() and returns the status.
starling_status set_last_error(starling_status status, std::string text);
starling_status set_last_error(const Error& error);

// Runs f and turns what it throws into a status: the border between C++ and C.
template <class F>
starling_status guarded(F&& f) {
  try {
    f();
    return STARLING_SUCCESS;
  } catch (const Error& error) {
    return set_last_error(error);
  } catch (const std::bad_alloc&) {
    return set_last_error(STARLING_EXHAUSTED, "the process has no memory left; remedy: give it more");
  } catch (const std::exception& error) {
    return set_last_error(STARLING_INTERNAL, std::string("unexpected: ") + error.what());
  }
}

}  // namespace starling
