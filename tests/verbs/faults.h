// What fails in the guest (init.sh), and how its programs tell of their cases.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "machine/cpu/futex.h"

namespace starling::guest {

struct Failure {
  std::string why;
};

// How much slower than on a machine that does nothing else, at least 1: by how long the guest took to start.
// A guest whose processors get a tenth of a core must not be taken for one whose rails are silent; what is
// waited for is an event in either case.
inline double slowness() {
  constexpr double kStartS = 8;
  static const double times = [] {
    std::ifstream file("/run/ready");
    double seconds = 0;
    file >> seconds;
    return std::clamp(seconds / kStartS, 1.0, 16.0);
  }();
  return times;
}
inline uint64_t patiently(uint64_t length_ns) { return uint64_t(double(length_ns) * slowness()); }
// What a queue pair's timeout is doubled by, as verbs count it.
inline uint8_t patient_timeout(uint8_t exponent) {
  return uint8_t(std::min(exponent + std::ceil(std::log2(slowness())), 31.0));
}

inline void command(const std::string& text) {
  if (std::system(text.c_str()) != 0) throw Failure{"cannot: " + text};
}

// What is not as it was at the start, of all processes that the first one forks: to set a rail right takes an
// emulated processor a good part of a second, so only what is wrong is set right.
struct Wrongs {
  std::atomic<bool> down[2][2], lossy[2][2];  // of a rail's ends: its port, and what is behind its switch
};
inline Wrongs& wrongs() {
  static Wrongs* const shared = [] {
    void* memory = mmap(nullptr, sizeof(Wrongs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Failure{"no memory to share"};
    return new (memory) Wrongs{};
  }();
  return *shared;
}

inline void set_port(int rail, char end, const std::string& how) {
  command("/bin/port " + std::to_string(rail) + " " + end + " " + how);
}

inline void port(int rail, char end, bool up) {
  wrongs().down[rail][end == 'b'] = !up;
  set_port(rail, end, up ? "up" : "down");
}

// With another address than before, until it comes up the next time.
inline void come_up_elsewhere(int rail, char end) {
  wrongs().down[rail][end == 'b'] = true;  // where it was
  set_port(rail, end, "up elsewhere");
}

// What `end` sends meets `discipline` behind the switch.
inline void hinder(int rail, char end, const std::string& discipline) {
  wrongs().lossy[rail][end == 'b'] = true;
  command("/tools/tc qdisc replace dev m" + std::string(1, end == 'a' ? 'b' : 'a') + std::to_string(rail) +
          " root netem " + discipline);
}

// What `end` sent is lost behind the switch.
inline void lose(int rail, char end, const std::string& share) { hinder(rail, end, "loss " + share); }

inline void heal(int rail) {
  for (const char end : {'a', 'b'}) {
    if (wrongs().lossy[rail][end == 'b'].exchange(false))
      command("/tools/tc qdisc del dev m" + std::string(1, end == 'a' ? 'b' : 'a') + std::to_string(rail) +
              " root");
    if (wrongs().down[rail][end == 'b']) port(rail, end, true);
  }
}

// By RDMA.
inline uint64_t packets_sent(int rail, char end = 'a') {
  const std::string device = std::string("rxe_") + end + std::to_string(rail);
  std::ifstream file("/sys/class/infiniband/" + device + "/ports/1/hw_counters/sent_pkts");
  uint64_t count = 0;
  file >> count;
  return count;
}

// Of all devices, and of all processes.
inline uint64_t queue_pairs() {
  const std::unique_ptr<FILE, int (*)(FILE*)> shown(popen("/tools/rdma resource show", "r"), pclose);
  if (shown == nullptr) throw Failure{"cannot ask for the queue pairs"};
  uint64_t count = 0;
  for (char line[256]; std::fgets(line, sizeof line, shown.get()) != nullptr;)
    if (const char* at = std::strstr(line, " qp ")) count += std::strtoull(at + 4, nullptr, 10);
  return count;
}

struct Case {
  const char* name;
  void (*run)();
};

inline bool run(const Case& entry) {
  const uint64_t begin = cpu::monotonic_ns();
  std::string why;
  try {
    entry.run();
  } catch (const Failure& failure) {
    why = failure.why;
  } catch (const Error& error) {
    why = error.what();
  }
  for (const int rail : {0, 1}) heal(rail);
  const double seconds = double(cpu::monotonic_ns() - begin) / 1e9;
  if (why.empty())
    std::printf("CASE %s passed (%.1f s)\n", entry.name, seconds);
  else
    std::printf("CASE %s failed: %s\n", entry.name, why.c_str());
  std::fflush(stdout);
  return why.empty();
}

// Those that are named, or all. 0: they passed.
inline int run_those(std::span<const Case> cases, int count, char** names) {
  wrongs();  // before ranks are forked
  bool good = true;
  for (const Case& entry : cases) {
    const auto wanted = [&](const char* name) { return std::strcmp(name, entry.name) == 0; };
    if (count == 0 || std::any_of(names, names + count, wanted)) good &= run(entry);
  }
  return good ? 0 : 1;
}

}  // namespace starling::guest
