#include "machine/cpu/host_identity.h"

#include <sys/stat.h>

#include <fstream>

namespace starling::cpu {

// Containers of one machine have one boot id, and each its own /dev/shm unless they were told to share it;
// that they share other things (a network, process numbers) says nothing.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat shared{};
  stat("/dev/shm", &shared);
  return boot + "." + std::to_string(shared.st_dev) + "." + std::to_string(shared.st_ino);
}

}  // namespace starling::cpu
