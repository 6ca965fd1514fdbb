// Plans as bytes: what a file holds, and what one rank may send to another.
//
//   FileHeader | name | postcondition, in version 2 | part of rank 0 | part of rank 1 | ...   each padded to
//   8 bytes
//
// Loading checks magic, version, lengths and a checksum over everything behind the header, then verifies the
// plan.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace starling {

std::vector<std::byte> to_bytes(const Plan& plan);
// Throws Error(invalid_argument) that says what is wrong with the bytes; never reads beyond them.
Plan plan_from_bytes(std::span<const std::byte> bytes);

// Throw Error(system) if the operating system refuses.
void save_plan(const Plan& plan, const std::string& path);
Plan load_plan(const std::string& path);

}  // namespace starling
