// Goal: what two ends of a flow send each other keeps its bytes, and 32 bits of a write name epoch and
// transfer. Method: a message's bytes written down by hand; immediates around the numbers where their fields
// wrap.
// sanitize: address (one thread)
#include "wire/link.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "wire/carried.h"
#include "wire/frame.h"

namespace starling {
namespace {

TEST(LinkMessageBytes, AreTheseForEver) {
  LinkMessage message{};
  message.kind = uint32_t(LinkMessageKind::kReport);
  message.epoch = 0x01020304;
  message.attempt = 5;
  message.probe = 6;
  message.done = 0x1112131415161718;
  message.landed = 0x21;
  message.incarnations[1] = 7;
  message.use = 3;
  message.survivors = 2;
  std::vector<uint8_t> bytes(sizeof message),
      expected = {2,    0,    0,    0,    4,    3,    2, 1, 5, 0, 0, 0, 6, 0, 0, 0, 0x18, 0x17, 0x16,
                  0x15, 0x14, 0x13, 0x12, 0x11, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    7};
  expected.resize(sizeof message);
  expected[64] = 3;
  expected[65] = 2;
  std::memcpy(bytes.data(), &message, sizeof message);
  EXPECT_EQ(bytes, expected);
}

TEST(HelloBytes, AreTheseForEver) {
  Hello hello{};
  hello.magic = kHelloMagic;
  hello.from = 1;
  hello.to = 2;
  hello.path = 3;
  hello.path_count = 4;
  hello.incarnation = 5;
  hello.policy = 1;
  QueuePairs& pairs = hello.queue_pairs;
  pairs.count = 2;
  pairs.numbers[0] = 0x11;
  pairs.numbers[1] = 0x12;
  pairs.first_packet = 0x1234;
  pairs.gid[15] = 9;
  pairs.lid = 6;
  pairs.mtu = 3;
  pairs.ring_key = 7;
  pairs.ring_address = 8;
  pairs.ring_bytes = 64;
  pairs.most_frame_bytes = 16;
  pairs.device = 2;
  pairs.offers_void = 0x21;
  std::vector<uint8_t> bytes(sizeof hello),
      expected = {'S', 'T', 'L', 'I', 'N', 'K', '0', '5', 1, 0, 0,    0, 0, 0, 0,   0, 2,
                  0,   0,   0,   0,   0,   0,   0,   3,   0, 0, 0,    4, 0, 0, 0,   5, 0,
                  0,   0,   1,   0,   0,   0,   2,   0,   0, 0, 0x11, 0, 0, 0, 0x12};
  expected.resize(sizeof hello);
  expected[60] = 0x34;
  expected[61] = 0x12;
  expected[79] = 9;
  expected[80] = 6;
  expected[82] = 3;
  expected[84] = 7;
  expected[88] = 8;
  expected[96] = 64;
  expected[100] = 16;
  expected[104] = 2;
  expected[112] = 0x21;
  std::memcpy(bytes.data(), &hello, sizeof hello);
  EXPECT_EQ(bytes, expected);
}

TEST(MessagePlaceBytes, AreTheseForEver) {
  const MessagePlace place{0x01020304, 5, 6, 7 | kLastPiece, 0x11121314};
  std::vector<uint8_t> bytes(sizeof place),
      expected = {4, 3, 2, 1, 5, 0, 0, 0, 6, 0, 7, 0x80, 0x14, 0x13, 0x12, 0x11};
  std::memcpy(bytes.data(), &place, sizeof place);
  EXPECT_EQ(bytes, expected);
}

TEST(OpenBytes, AreTheseForEver) {
  const OpenRecord open{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 0};
  std::vector<uint8_t> bytes(sizeof open), expected(sizeof open);
  expected[0] = 1;
  expected[8] = 2;
  for (int k = 0; k < 8; ++k) expected[16 + 4 * k] = uint8_t(3 + k);
  expected[48] = 1;
  std::memcpy(bytes.data(), &open, sizeof open);
  EXPECT_EQ(bytes, expected);
}

TEST(OfferBytes, AreTheseForEver) {
  const OfferRecord offer{1, 2, 3, 0x04030201, 5, 6, {{7, 8, 9, 10, 0, 0, 0, 12}}, 11, 0};
  std::vector<uint8_t> bytes(sizeof offer), expected(sizeof offer);
  const uint8_t words[] = {1, 2, 3, 0, 5, 6};
  for (int k = 0; k < 6; ++k) expected[8 * k] = words[k];
  for (int k = 0; k < 4; ++k) expected[24 + k] = uint8_t(k + 1);
  for (int k = 0; k < 4; ++k) expected[48 + 4 * k] = uint8_t(7 + k);
  expected[48 + 4 * 7] = 12;
  expected[80] = 11;
  std::memcpy(bytes.data(), &offer, sizeof offer);
  EXPECT_EQ(bytes, expected);
}

TEST(Records, AreReadWholeOrNotAtAll) {
  const std::pair<RecordKind, size_t> bodies[] = {{RecordKind::kOpen, sizeof(OpenRecord)},
                                                  {RecordKind::kUnpublished, 0},
                                                  {RecordKind::kGone, 0},
                                                  {RecordKind::kBoard, sizeof(BoardRecord)},
                                                  {RecordKind::kSubmitted, sizeof(WordRecord)},
                                                  {RecordKind::kBroken, sizeof(FaultRecord)},
                                                  {RecordKind::kSlots, sizeof(SlotsRecord)},
                                                  {RecordKind::kGrants, sizeof(GrantsRecord)},
                                                  {RecordKind::kFault, sizeof(FaultRecord)},
                                                  {RecordKind::kMet, sizeof(WordRecord)},
                                                  {RecordKind::kOut, 0},
                                                  {RecordKind::kClosed, 0},
                                                  {RecordKind::kOffer, sizeof(OfferRecord)},
                                                  {RecordKind::kWaiting, sizeof(WaitingRecord)},
                                                  {RecordKind::kLeft, 0},
                                                  {RecordKind(99), 0}};
  for (const auto& [kind, body] : bodies) {
    const uint32_t bytes = uint32_t(sizeof(RecordHeader) + body);
    EXPECT_TRUE(is_whole({kind, bytes, 0, 0}, bytes)) << int(kind);
    EXPECT_TRUE(is_whole({kind, bytes + 8, 0, 0}, bytes + 8)) << int(kind);
    EXPECT_FALSE(is_whole({kind, bytes - 1, 0, 0}, bytes)) << int(kind) << ": its body is cut off";
    EXPECT_FALSE(is_whole({kind, bytes, 0, 0}, bytes - 1)) << int(kind) << ": it goes beyond the frame";
  }
}

TEST(Immediate, NamesEpochAndTransferNearWhatIsKnown) {
  for (const uint64_t sequence :
       {uint64_t{0}, uint64_t{63}, (uint64_t{1} << 24) - 1, uint64_t{1} << 24, (uint64_t{1} << 40) + 5})
    for (const uint64_t ahead : {0, 1, 63})
      for (const uint32_t epoch : {1u, 127u, 128u, 255u, 256u, 1000000u}) {
        const uint32_t immediate = immediate_of(epoch, sequence + ahead);
        EXPECT_EQ(sequence_of(immediate, sequence), sequence + ahead);
        EXPECT_EQ(epoch_of(immediate, epoch), epoch);
        EXPECT_EQ(epoch_of(immediate, epoch + 1), epoch) << "of the epoch before";
        EXPECT_EQ(epoch_of(immediate, epoch - 1), epoch) << "of the epoch to come";
      }
}

TEST(Immediate, ALateTransferIsBehindWhatIsKnown) {
  const uint64_t done = (uint64_t{1} << 24) + 3;
  EXPECT_EQ(sequence_of(immediate_of(1, done - 10), done), done - 10);
}

}  // namespace
}  // namespace starling
