// Which process this is, in memory that several share: numbers of the system may mean different things to
// them.
#pragma once
#include <cstdint>

namespace starling::cpu {

// Random, the same for all contexts of this process.
uint64_t process_nonce();

}  // namespace starling::cpu
