// Goal: the bytes that plans consist of never change unnoticed: files, other ranks and devices read them.
// Method: the bytes of a small plan, written down here by hand, against those that are generated.
// sanitize: address (one thread)
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "plan/file.h"
#include "plan/generate.h"
#include "wire/operation.h"

namespace starling {
namespace {

std::string hex(const void* data, std::size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<const unsigned char*>(data)[i];
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

// All_reduce one_shot over two ranks, one block: send to the peer; reduce what comes with the own input.
class OneShotOfTwo : public testing::Test {
 protected:
  const Plan plan = generate("one_shot", {Collective::kAllReduce, 2, 0, 1, false});
  const PlanView view = plan.view(1);
};

// Fields are written apart here, for people.
std::string golden(std::string text) {
  std::erase(text, ' ');
  return text;
}

TEST_F(OneShotOfTwo, Header) {
  const std::string magic_version_collective_in_place = "53504c4e 0100 00 00";
  const std::string rank_and_counts_of_ranks_blocks_channels = " 0100 0200 0100 0100";
  const std::string chunks_per_group_input_and_output_groups = " 01000000 01000000 01000000";
  const std::string scratch_connections_instructions_dependencies = " 00000000 02000000 02000000 00000000";
  const std::string minimum_slots_largest_chunks_canonical_uniform_root = " 0100 0100 01 00 0000";
  const std::string reserved_total_bytes_tile = " 00000000 a8000000 00000000";
  EXPECT_EQ(hex(view.header, offsetof(PlanHeader, hash)),
            golden(magic_version_collective_in_place + rank_and_counts_of_ranks_blocks_channels +
                   chunks_per_group_input_and_output_groups + scratch_connections_instructions_dependencies +
                   minimum_slots_largest_chunks_canonical_uniform_root + reserved_total_bytes_tile));
  EXPECT_EQ(offsetof(PlanHeader, hash), 64u);
  EXPECT_EQ(view.header->hash, plan.header(0)->hash);
}

// Where reserved bytes were: a plan without a tile is what it was, and who does not know tiles refuses one.
TEST_F(OneShotOfTwo, Tile) {
  const Plan tiled = generate("one_shot@74560", {Collective::kAllReduce, 2, 0, 1, false});
  const std::string total_bytes_tile = "a8000000 40230100";
  EXPECT_EQ(hex(&tiled.header(1)->total_bytes, 8), golden(total_bytes_tile));
  EXPECT_EQ(hex(tiled.header(1), offsetof(PlanHeader, tile_bytes)),
            hex(view.header, offsetof(PlanHeader, tile_bytes)));
}

TEST_F(OneShotOfTwo, Block) {
  const std::string instructions_first_count = "00000000 02000000";
  const std::string receive_first_counts_send_first_reserved = " 00000000 0100 0100 01000000 00000000";
  EXPECT_EQ(hex(view.blocks(), sizeof(BlockPlan)),
            golden(instructions_first_count + receive_first_counts_send_first_reserved));
}

TEST_F(OneShotOfTwo, Connections) {
  const std::string peer_channel = "0000 0000";
  EXPECT_EQ(hex(view.connections(), 2 * sizeof(Connection)), golden(peer_channel + peer_channel));
}

TEST_F(OneShotOfTwo, Instructions) {
  // opcode, flags, source and destination buffer; their chunks and the size's; size buffer, local_position,
  // chunks; receive_first, send_first, receive_count, send_count, dependency_count, dependency_first
  const std::string send =
      "03 00 01 00  00000000 00000000 00000000  01 00 0100  ffff 0000 00 01 0000 00000000";
  const std::string reduce =
      "08 02 01 02  00000000 00000000 00000000  02 01 0100  0000 ffff 01 00 0000 00000000";
  EXPECT_EQ(hex(&view.instructions()[0], sizeof(Instruction)), golden(send));
  EXPECT_EQ(hex(&view.instructions()[1], sizeof(Instruction)), golden(reduce));
}

// As libraries before plans had tiles wrote it.
constexpr const char* kOldFile =
    "53504c46 0100 0000 02000000 08000000 7801000000000000 1e845dcd7fd8631e 6f6e655f73686f74"
    "53504c4e 0100 00 00 0000 0200 0100 0100 01000000 01000000 01000000 00000000 02000000 02000000 00000000"
    "0100 0100 01 00 0000 00000000 a8000000 00000000 72608cab2641d7b3"
    "00000000 02000000 00000000 0100 0100 01000000 00000000  0100 0000 0100 0000"
    "03 00 01 00 00000000 00000000 00000000 01 00 0100 ffff 0000 00 01 0000 00000000"
    "08 02 01 02 00000000 00000000 00000000 02 00 0100 0000 ffff 01 00 0000 00000000"
    "53504c4e 0100 00 00 0100 0200 0100 0100 01000000 01000000 01000000 00000000 02000000 02000000 00000000"
    "0100 0100 01 00 0000 00000000 a8000000 00000000 72608cab2641d7b3"
    "00000000 02000000 00000000 0100 0100 01000000 00000000  0000 0000 0000 0000"
    "03 00 01 00 00000000 00000000 00000000 01 00 0100 ffff 0000 00 01 0000 00000000"
    "08 02 01 02 00000000 00000000 00000000 02 01 0100 0000 ffff 01 00 0000 00000000";

TEST_F(OneShotOfTwo, OldFilesAreRead) {
  std::vector<std::byte> bytes;
  const std::string text = golden(kOldFile);
  for (std::size_t at = 0; at < text.size(); at += 2)
    bytes.push_back(std::byte(std::stoi(text.substr(at, 2), nullptr, 16)));
  const Plan old = plan_from_bytes(bytes);
  EXPECT_EQ(old.header(0)->tile_bytes, 0u);
  EXPECT_EQ(old.hash(), plan.hash());
  EXPECT_EQ(to_bytes(plan), bytes);
}

TEST(WireGolden, Offsets) {
  EXPECT_EQ(offsetof(Instruction, size_buffer), 16u);
  EXPECT_EQ(offsetof(Instruction, dependency_first), 28u);
  EXPECT_EQ(offsetof(Operation, buffers), 16u);
  EXPECT_EQ(offsetof(Operation, group_bytes), 80u);
  EXPECT_EQ(offsetof(Operation, data_type), 120u);
  static_assert(std::is_trivially_copyable_v<PlanHeader> && std::is_trivially_copyable_v<Instruction> &&
                std::is_trivially_copyable_v<BlockPlan> && std::is_trivially_copyable_v<Operation>);
  static_assert(std::has_unique_object_representations_v<PlanHeader> &&
                std::has_unique_object_representations_v<Instruction> &&
                std::has_unique_object_representations_v<BlockPlan> &&
                std::has_unique_object_representations_v<Connection> &&
                std::has_unique_object_representations_v<Dependency>);  // no byte that nobody sets
}

TEST(WireGolden, OpcodesKeepTheirNumbers) {
  const char* const names[] = {"nop",
                               "copy",
                               "reduce",
                               "send",
                               "recv",
                               "recv_send",
                               "recv_copy_send",
                               "recv_reduce_send",
                               "recv_reduce_copy",
                               "recv_reduce_copy_send",
                               "reduce_send"};
  ASSERT_EQ(kOpcodeCount, std::size(names));
  for (std::uint32_t i = 0; i < kOpcodeCount; ++i) EXPECT_STREQ(kOpcodeTable[i].name, names[i]);
}

}  // namespace
}  // namespace starling
