// Memory of other processes of the host, read and written without their help, where the kernel allows it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "wire/arena.h"

namespace starling::cpu {

// All of `bytes`, or false: the process is gone, it has no memory there, or the kernel refuses.
bool read_process(uint32_t pid, std::byte* to, const std::byte* from, uint64_t bytes);

// The same, into the other's memory.
bool write_process(uint32_t pid, std::byte* to, const std::byte* from, uint64_t bytes);

// Whether this process may read the owner's memory, and the owner's number means the same process to both.
bool can_read(const ArenaHeader& owner);

}  // namespace starling::cpu
