// Files that users name: plans and tables.
#pragma once
#include <string>

namespace starling {

// All of a regular file of at most 64 MiB. Throws Error(system): "<what> '<path>' cannot be read", why, and
// the remedy. What is no file, a pipe or a device say, might never end.
std::string read_file(const std::string& path, const std::string& what, const std::string& remedy);

}  // namespace starling
