// Goal: memory of a process is read whole or not at all, and only that of the process that is meant.
// Method: this process reads itself through the kernel; with wrong numbers, nonces and addresses it reads
// nothing.
#include "machine/cpu/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "machine/cpu/arena.h"

namespace starling::cpu {
namespace {

constexpr uint64_t kPage = 4096;

TEST(ProcessMemory, IsReadWhole) {
  std::vector<std::byte> from(3 * kPage + 5, std::byte{7}), to(from.size());
  ASSERT_TRUE(read_process(uint32_t(getpid()), to.data(), from.data(), from.size()));
  EXPECT_EQ(std::memcmp(to.data(), from.data(), from.size()), 0);
}

TEST(ProcessMemory, IsNotReadWhereThereIsNone) {
  auto* pages = static_cast<std::byte*>(
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(pages), MAP_FAILED);
  munmap(pages + kPage, kPage);
  std::vector<std::byte> to(2 * kPage);
  EXPECT_TRUE(read_process(uint32_t(getpid()), to.data(), pages, kPage));
  EXPECT_FALSE(read_process(uint32_t(getpid()), to.data(), pages, 2 * kPage));  // its first page only
  munmap(pages, kPage);
}

TEST(ProcessMemory, IsThatOfTheProcessThatIsMeant) {
  const Arena arena({1 << 24});
  ArenaHeader header = *arena.header();
  EXPECT_TRUE(can_read(header));
  header.process_nonce ^= 1;  // the number is another process's here
  EXPECT_FALSE(can_read(header));
  header = *arena.header();
  header.pid = 0x7fffffff;  // there is none
  EXPECT_FALSE(can_read(header));
  header = *arena.header();
  header.nonce_address = 0;
  EXPECT_FALSE(can_read(header));
}

}  // namespace
}  // namespace starling::cpu
