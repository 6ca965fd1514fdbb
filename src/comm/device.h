// Places by name: "cpu", or "cuda:0" where the library's CUDA part is installed.
#pragma once
#include <memory>

#include "machine/cpu/machine.h"
#include "machine/place.h"

namespace starling {

// Null: the CPU. "cuda" alone: cuda:0. Throws Error(invalid_argument | unsupported).
std::unique_ptr<Place> make_place(const char* device, cpu::Arena& arena, const cpu::WaitPolicy& waiting);

}  // namespace starling
