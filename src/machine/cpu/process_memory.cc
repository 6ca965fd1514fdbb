#include "machine/cpu/process_memory.h"

#include <sys/uio.h>

#include <cerrno>

namespace starling::cpu {

bool read_process(uint32_t pid, std::byte* to, const std::byte* from, uint64_t bytes) {
  while (bytes > 0) {
    const iovec local{to, bytes};
    const iovec remote{const_cast<std::byte*>(from), bytes};
    const ssize_t done = process_vm_readv(pid_t(pid), &local, 1, &remote, 1, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    to += done;
    from += done;
    bytes -= uint64_t(done);
  }
  return true;
}

// Numbers of processes are those of a namespace; the nonce is the owner's alone.
bool can_read(const ArenaHeader& owner) {
  uint64_t nonce = 0;
  return read_process(owner.pid, reinterpret_cast<std::byte*>(&nonce),
                      reinterpret_cast<const std::byte*>(owner.nonce_address), sizeof nonce) &&
         nonce == owner.process_nonce;
}

}  // namespace starling::cpu
