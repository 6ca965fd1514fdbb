#include "base/quick_mutex.h"

#include <cstdint>

namespace starling {
namespace {

thread_local uint32_t held = 0;  // quick mutexes
thread_local uint32_t excused = 0;

}  // namespace

void DriverRule::take() { ++held; }
void DriverRule::give() { --held; }
void DriverRule::excuse(bool begins) { begins ? ++excused : --excused; }
bool DriverRule::forbids() { return held != 0 && excused == 0; }

}  // namespace starling
