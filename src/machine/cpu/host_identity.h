// Which ranks share memory.
#pragma once
#include <string>

namespace starling::cpu {

// Equal for two processes that see one /dev/shm of one running system; no spaces in it.
std::string host_identity();

}  // namespace starling::cpu
