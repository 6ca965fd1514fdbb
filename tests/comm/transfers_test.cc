// Goal: the transfers of all ranks together do what the collective means, whoever sends to whom, and a large
// broadcast leaves no rank twice.
//
// Method: every rank's transfers are made on buffers of bytes, in any order that has what it passes on
// before, for groups of two to eight ranks and several roots.
// sanitize: address (one thread)
#include "comm/transfers.h"

#include <gtest/gtest.h>

#include <cstring>

namespace starling {
namespace {

constexpr uint64_t kLarge = (9 << 20) + 5;

struct Ranks {
  uint32_t size;
  Collective kind;
  uint32_t root;
  uint64_t group;
  std::vector<std::vector<std::byte>> inputs, outputs;
  std::vector<Transfers> transfers;

  Ranks(uint32_t size, Collective kind, uint32_t root, uint64_t group)
      : size(size), kind(kind), root(root), group(group) {
    for (uint32_t r = 0; r < size; ++r) {
      inputs.emplace_back(group);
      outputs.emplace_back(group);
      for (uint64_t b = 0; b < group; ++b) inputs[r][b] = std::byte(b * 7 + b / 4096 + r + 1);
    }
    for (uint32_t r = 0; r < size; ++r) transfers.push_back(transfers_of(lowered(r), r, size));
  }

  Lowered lowered(uint32_t rank) {
    Lowered lowered;
    lowered.signature.collective = kind;
    lowered.signature.root = int32_t(root);
    lowered.operation.group_bytes = group;
    lowered.operation.buffers[uint32_t(BufferKind::kInput)].base = inputs[rank].data();
    lowered.operation.buffers[uint32_t(BufferKind::kOutput)].base = outputs[rank].data();
    return lowered;
  }

  // What `rank` receives, from whom it comes first.
  void receive(uint32_t rank, uint32_t hops) {
    ASSERT_LT(hops, size) << "a circle";
    for (const Transfer& to : transfers[rank].receives) {
      const Transfers& sender = transfers[to.peer];
      if (sender.passes_on) receive(to.peer, hops + 1);
      const auto send = std::find_if(sender.sends.begin(), sender.sends.end(),
                                     [&](const Transfer& t) { return t.peer == rank; });
      ASSERT_NE(send, sender.sends.end());
      ASSERT_EQ(send->bytes, to.bytes);
      const auto& source = sender.passes_on ? outputs[to.peer] : inputs[to.peer];
      for (uint32_t k = 0; k < send->pieces; ++k) {
        const uint64_t at = k * piece_bytes(*send);
        ASSERT_LT(at, send->bytes);
        std::memcpy(&outputs[rank][to.to + at], &source[send->from + at],
                    std::min(piece_bytes(*send), send->bytes - at));
      }
      if (send->pieces > 1) {
        ASSERT_GE(send->pieces * piece_bytes(*send), send->bytes);
      }
    }
    for (const Transfer& own : transfers[rank].own)
      std::memcpy(&outputs[rank][own.to], &inputs[rank][own.from], own.bytes);
  }
};

TEST(Transfers, ABroadcastComesToAll) {
  for (const uint32_t size : {2u, 3u, 4u, 8u})
    for (const uint64_t bytes : {uint64_t(100), kLarge})
      for (uint32_t root = 0; root < size; root += bytes == kLarge ? 3 : 1) {
        SCOPED_TRACE(std::to_string(size) + " ranks, root " + std::to_string(root));
        Ranks ranks(size, Collective::kBroadcast, root, bytes);
        for (uint32_t r = 0; r < size; ++r) {
          ranks.receive(r, 0);
          EXPECT_EQ(ranks.outputs[r], ranks.inputs[root]) << "rank " << r;
        }
      }
}

TEST(Transfers, ALargeBroadcastIsPassedOn) {
  for (const uint32_t size : {2u, 3u, 8u}) {
    const Ranks large(size, Collective::kBroadcast, 1, kLarge);
    const Ranks small(size, Collective::kBroadcast, 1, 1000);
    EXPECT_EQ(small.transfers[1].sends.size(), size - 1);
    for (uint32_t r = 0; r < size; ++r) {
      EXPECT_LE(large.transfers[r].sends.size(), 1u);
      EXPECT_EQ(large.transfers[r].passes_on, size > 2 && r != 1);
      for (const Transfer& send : large.transfers[r].sends) EXPECT_EQ(send.pieces, size > 2 ? 4u : 1u);
    }
  }
}

}  // namespace
}  // namespace starling
