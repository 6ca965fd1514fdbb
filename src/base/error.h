// The one exception that Starling throws: misuse by the caller, or a broken environment.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

#include "base/assert.h"

namespace starling {

enum class Code {
  ok,
  invalid_argument,  // the caller passed what the function does not take
  mismatch,          // ranks called with operations that do not fit together
  timeout,           // a bounded wait ended
  peer_failed,       // another rank died or reported an error
  aborted,           // abort() was called on this communicator
  unsupported,       // a legal request that this build or machine cannot serve
  internal,          // a bug of ours that was still caught in good order
  system,            // the operating system or a driver refused
  exhausted,         // a bounded resource is used up
};

const char* code_name(Code code);

// `what()` is one text for people: what happened, the remedy, and where it was noticed.
class Error : public std::runtime_error {
 public:
  Error(Code code, std::string happened, std::string remedy = {},
        std::source_location where = std::source_location::current());

  Code code() const { return code_; }
  const std::string& happened() const { return happened_; }
  const std::string& remedy() const { return remedy_; }
  const std::string& where() const { return where_; }

 private:
  Code code_;
  std::string happened_;
  std::string remedy_;
  std::string where_;
};

// Code::system with errno's text appended; call it before anything else touches errno.
Error system_error(const std::string& happened, std::string remedy = {},
                   std::source_location where = std::source_location::current());

}  // namespace starling
