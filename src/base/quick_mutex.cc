#include "base/quick_mutex.h"

#include <cstdint>

namespace starling {
namespace {

// In the room that the loader keeps for libraries that come late: no function has to find them.
#define STARLING_NEAR_THREAD __attribute__((tls_model("initial-exec"))) thread_local
STARLING_NEAR_THREAD uint32_t held = 0;  // quick mutexes
STARLING_NEAR_THREAD uint32_t excused = 0;
#undef STARLING_NEAR_THREAD

}  // namespace

void DriverRule::take() { ++held; }
void DriverRule::give() { --held; }
void DriverRule::excuse(bool begins) { begins ? ++excused : --excused; }
bool DriverRule::forbids() { return held != 0 && excused == 0; }

}  // namespace starling
