// Buffers that blocks of other processes of the host read where they lie (protocol pull on GPUs).
//
//   owner's host                    owner's block          reader's host                    reader's block
//   Registration, published ─────────────────────────────▶ opens its handle
//   Operation::registrations ─────▶ message: address, ────────────────────────────────────▶ looks its number
//   up:
//                                   its number             OpenedRegistration, made ──────▶ reads at address
//                                   + offset
//
// A registration is one allocation of the owner's driver, or mappings of it one behind the other, under a
// number that it keeps as long as anybody has it open. The table lies in the owner's segment; each reader has
// a table of its own for each owner.
#pragma once
#include <cstdint>

namespace starling {

// Numbers are 1 to kMaxRegistrations - 1: 0 means none. They fit into Operation::registrations.
inline constexpr uint32_t kMaxRegistrations = 1024;
inline constexpr uint32_t kRegistrationHandleBytes = 64;

// Of Registration::kind.
inline constexpr uint64_t kDriversHandle = 0;  // a handle that the driver opens
inline constexpr uint64_t kViewHandle = 1;  // whom to ask for descriptors (machine/registered/descriptors.h)

// Of Registration::state.
inline constexpr uint64_t kUnused = 0;
inline constexpr uint64_t kPublished =
    1;  // the fields are there, and the allocation was when this was stored
inline constexpr uint64_t kRetired = 2;  // the allocation is gone: nobody opens it any more

struct alignas(64) Registration {
  uint64_t state;  // writer: the owner's host, after the fields below (release; readers acquire)
  uint64_t openers;  // readers that have it open, or look whether they may; writers: their hosts, atomically
  uint64_t base;  // in the owner's process
  uint64_t bytes;
  uint64_t identity;  // of the allocation: another one at the same address has another
  uint8_t handle[kRegistrationHandleBytes];
  uint64_t kind;  // of the handle
  uint64_t reserved[2];
};
static_assert(sizeof(Registration) == 128);

struct RegistrationTable {
  uint64_t published;  // how often something was published; writer: the owner's host (release)
  uint64_t used;  // numbers below this were published at some time; writer: owner, before `published`
  uint64_t reserved[6];
  Registration entries[kMaxRegistrations];
};

// What a reader's host tells its blocks of one number, in the host's memory: telling takes plain stores, and
// no call of a driver. Zero until then.
struct alignas(32) OpenedRegistration {
  uint64_t made;  // 1: `offset` is there, for as long as the reader is connected; writer: the host (release)
  uint64_t offset;  // from the owner's addresses to the reader's
  uint64_t wanted;  // 1: a block has met a message that names it and found it missing; writers: blocks
  uint64_t reserved;
};
static_assert(sizeof(OpenedRegistration) == 32);

// What a block of the reader has learned of it. One word, so that one look finds whether and where.
struct alignas(16) KnownRegistration {
  uint64_t place;  // the offset + 1; 0: not known
  uint64_t wanted;  // as OpenedRegistration::wanted
};
static_assert(sizeof(KnownRegistration) == 16);

// Of one owner, in the memory of the reader's blocks, who copy what they were told: each number crosses PCIe
// once. `known` has no one writer: whichever block comes first copies, and all copy the same.
struct OpenedTable {
  OpenedRegistration* told;  // [kMaxRegistrations]
  uint64_t reserved[3];
  KnownRegistration known[kMaxRegistrations];
};
static_assert(sizeof(OpenedTable) == 32 + kMaxRegistrations * sizeof(KnownRegistration));

}  // namespace starling
