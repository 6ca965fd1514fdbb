// Threads that a limit may refuse.
#pragma once
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace starling {

// Throws Error(system) with the remedy.
template <class F>
std::thread start_thread(F&& body) {
  try {
    return std::thread(std::forward<F>(body));
  } catch (const std::system_error& error) {
    throw Error(
        Code::system, std::string("cannot start a thread: ") + error.code().message(),
        "allow this user or container more processes and threads (ulimit -u; docker: --pids-limit), or this "
        "process more address space (ulimit -v)");
  }
}

}  // namespace starling
