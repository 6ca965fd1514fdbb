// Goal: a context counts the ranks that it shares a host with, and no others: how long its callers poll
// depends on it. Method: three contexts in one process, one of which another one is told to be on another
// host.
#include <gtest/gtest.h>

#include "comm/context.h"

namespace starling {
namespace {

link::carry::RemoteRank introduced(Context& context) {
  const ArenaHeader& header = *context.arena().header();
  link::carry::RemoteRank remote;
  remote.arena = context.arena().name();
  remote.rank = 1;
  remote.pid = header.pid;
  remote.process_nonce = header.process_nonce;
  remote.pool_slots = header.pool_slots;
  remote.pool_slot_bytes = header.pool_slot_bytes;
  remote.blocks = header.blocks;
  return remote;
}

TEST(RanksOnAHost, AreThoseThatShareItsMemory) {
  starling_context_options options{};
  options.struct_bytes = sizeof options;
  options.blocks = 1;
  options.arena_bytes = uint64_t(1) << 30;
  Context a(options), near(options), far(options);
  EXPECT_EQ(a.ranks_on_host(), 1u);
  a.link_ports();
  const Peer remote = a.attach_remote(introduced(far), far.link_ports());
  EXPECT_NE(remote.way, nullptr);
  EXPECT_EQ(a.ranks_on_host(), 1u) << "a rank of another host is behind a shadow";
  for (int twice = 0; twice < 2; ++twice) a.attach(near.arena().name());
  EXPECT_EQ(a.ranks_on_host(), 2u);
}

}  // namespace
}  // namespace starling
