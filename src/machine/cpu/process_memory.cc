#include "machine/cpu/process_memory.h"

#include <sys/uio.h>

#include <cerrno>

namespace starling::cpu {
namespace {

template <class Call>
bool move_all(Call call, uint32_t pid, std::byte* local, std::byte* remote, uint64_t bytes) {
  while (bytes > 0) {
    const iovec here{local, bytes};
    const iovec there{remote, bytes};
    const ssize_t done = call(pid_t(pid), &here, 1, &there, 1, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    local += done;
    remote += done;
    bytes -= uint64_t(done);
  }
  return true;
}

}  // namespace

bool read_process(uint32_t pid, std::byte* to, const std::byte* from, uint64_t bytes) {
  return move_all(process_vm_readv, pid, to, const_cast<std::byte*>(from), bytes);
}

bool write_process(uint32_t pid, std::byte* to, const std::byte* from, uint64_t bytes) {
  return move_all(process_vm_writev, pid, const_cast<std::byte*>(from), to, bytes);
}

// Numbers of processes are those of a namespace; the nonce is the owner's alone.
bool can_read(const ArenaHeader& owner) {
  uint64_t nonce = 0;
  return read_process(owner.pid, reinterpret_cast<std::byte*>(&nonce),
                      reinterpret_cast<const std::byte*>(owner.nonce_address), sizeof nonce) &&
         nonce == owner.process_nonce;
}

}  // namespace starling::cpu
