// Threads that a limit may refuse.
#pragma once
#include <pthread.h>
#include <sched.h>

#include <cstdint>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace starling {

// `name` is what `top -H` and debuggers show of it: a literal of 15 letters at most. Throws Error(system)
// with the remedy.
template <class F>
std::thread start_thread(const char* name, F&& body) {
  try {
    return std::thread([name, body = std::forward<F>(body)]() mutable {
      pthread_setname_np(pthread_self(), name);
      body();
    });
  } catch (const std::system_error& error) {
    throw Error(
        Code::system, std::string("cannot start a thread: ") + error.code().message(),
        "allow this user or container more processes and threads (ulimit -u; docker: --pids-limit), or this "
        "process more address space (ulimit -v)");
  }
}

// That this thread may run on. Empty: the system does not say.
inline std::vector<uint32_t> allowed_cores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::vector<uint32_t> cores;
  for (uint32_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  return cores;
}

// To those of the cores that it may run on, if there is any. Allocates nothing: a thread that begins has
// nobody to tell of it.
inline void pin_this_thread(const std::vector<uint32_t>& cores) {
  cpu_set_t allowed, wanted;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&wanted);
  for (const uint32_t core : cores)
    if (core < CPU_SETSIZE && CPU_ISSET(core, &allowed)) CPU_SET(core, &wanted);
  if (CPU_COUNT(&wanted) > 0) sched_setaffinity(0, sizeof wanted, &wanted);
}

}  // namespace starling
