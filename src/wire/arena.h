// A rank's shared segment: what its peers and other hosts' threads see of it.
//
//   ArenaHeader | directory | lane regions ...
//
// Peers find a lane by its key in the owner's directory: no rank ever waits for another to make one.
// A lane region, for hosts:     LaneShared | Signature[board] | Traffic[board * size] | Withdrawal[size]
//                               and of a lane of copies CopyOffer[kCopyDepth * size]
// and its connectors, for blocks: Inbox[size * channels] | Credit[size * channels] | slots
// Connectors and pool slots lie in exported memory (machine/place.h): in the same segment on the CPU machine,
// in GPU memory on the cuda machine. Offsets of exported memory mean something to the peer's place alone.
#pragma once
#include <cstdint>

#include "base/portable.h"
#include "wire/connector.h"
#include "wire/doorbell.h"
#include "wire/types.h"

namespace starling {

inline constexpr uint64_t kArenaMagic = 0x33414e4552415453;  // "STARENA3"

struct DirectoryEntry {
  uint64_t key_low;
  uint64_t key_high;
  uint64_t offset;  // of the LaneShared; 0: free; kRemovedLane. Writer: the owner's host (release)
  uint64_t reserved;
};
static_assert(sizeof(DirectoryEntry) == 32);
inline constexpr uint64_t kRemovedLane = 1;

// `starling diagnose` reads it, too (python/starling/diagnose/remote.py), and the regions of lanes.
struct ArenaHeader {
  uint64_t magic;
  uint64_t bytes;
  uint64_t process_nonce;  // random per process
  uint32_t pid;
  uint32_t closed;  // 1: the owner left in order; 2: a shadow's, its rank is lost. Writer: owner
  uint64_t directory_offset;
  uint64_t directory_capacity;  // power of two
  uint64_t pool_offset;  // of exported memory
  uint64_t pool_slot_bytes;
  uint64_t pool_slots;
  uint64_t faults;  // how many lanes of this rank were broken; writers: hosts, atomically
  uint64_t device_offset;  // of the segment: what a GPU's peers need (machine/cuda/export.h); 0: none
  uint64_t blocks;  // of the daemon: a lane has a channel for each
  uint64_t nonce_address;  // in the owner's memory: where process_nonce lies too, for those that may read it
  uint64_t monitor_offset;  // what watchers read (wire/monitor.h); 0: none, as of a shadow. Writer: owner
                            // (release)
  // What this rank waits for, in words, for the messages of others; renewed by its poller.
  uint64_t waiting_version;  // odd while the text is being written
  char waiting_text[456];
  alignas(64) Doorbell daemon;  // rung when something was stored for the rank's blocks
  alignas(64) Doorbell host;  // rung when its poller should look: new lanes of peers, faults, completions
};
static_assert(sizeof(ArenaHeader) == 704);

// What a rank says it does at one position of a lane. Compared by whoever comes later, before it starts.
struct Signature {
  uint64_t position;  // sequence + 1; 0: nothing yet. Writer: the owner's host, last (release)
  Collective collective;
  DataType data_type;
  ReduceOp reduce_op;
  uint8_t varying;  // 1: counts differ by rank: Traffic is compared pair by pair
  int32_t root;
  uint64_t count;
  uint64_t plan_hash;  // the algorithm must agree too
  uint64_t counts_hash;  // of the table that every rank must pass alike (all_gatherv, ...)
  uint64_t in_place;  // 1: as the caller said it, for messages
  uint64_t deadline_ns;  // when the owner gives up, on the host's monotonic clock
  uint64_t waiting_ns;  // reserved for diagnosis
};
static_assert(sizeof(Signature) == 64);

// Bytes that go from the owner to `peer` and back at one position of a lane (varying operations only).
struct Traffic {
  uint64_t sent_bytes;
  uint64_t received_bytes;
};

// Of each peer, whether it has come to the lane, and whether its blocks are through with it, after it broke
// or because the peer left.
struct Withdrawal {
  // 1: they write into no memory of the owner's any more, and read none. Writer: the peer's host, after the
  // last completion of its operations in the lane (release).
  uint64_t out;
  // 1: its host has found this region. 2: it has closed its own lane since, and must not take this one for
  // the next lane of the name. Writer: the peer's host.
  uint64_t met;
};

enum class FaultKind : uint64_t {
  kNone = 0,
  kMismatch = 1,
  kTimeout = 2,
  kPeerFailed = 3,
  kAborted = 4,
  kInternal = 5,
};

// What broke a lane, and at which position. The text ends with a 0.
struct FaultNote {
  uint64_t sequence;
  char text[488];
};

inline constexpr uint64_t kOwnersNote = 1 << 8;  // in LaneShared::fault, beside its kind
constexpr FaultKind fault_kind(uint64_t fault) { return FaultKind(fault % kOwnersNote); }

struct alignas(64) LaneShared {
  // FaultKind, and which note is its: by compare-exchange from 0, so once (release).
  uint64_t fault;
  // Of other_note: 0, or 1 + rank of its writer.
  uint64_t claim;
  FaultNote other_note;  // writer: the host or proxy that took `claim`
  // Writer: the owner's host. It needs no claim, and waits for nobody who has one and does not go on.
  FaultNote own_note;
  uint64_t reserved_of_faults[2];
  uint32_t size;
  uint32_t rank;
  uint32_t channel_count;
  uint32_t private_slots;
  uint32_t slot_bytes;
  uint32_t packet_bytes;
  uint32_t board_size;  // positions that the board remembers: twice what the device holds
  uint32_t reserved;
  uint64_t connectors_offset;  // of exported memory; the next four are counted from there
  uint64_t inbox_offset;
  uint64_t credit_offset;
  uint64_t slots_offset;
  uint64_t packets_offset;
  uint64_t traffic_offset;  // from the LaneShared
  uint64_t withdrawals_offset;  // likewise
  uint64_t offers_offset;  // likewise; 0: no lane of copies
  uint64_t reserved_offsets[4];
  char name[64];  // cut
  // What changes has a line of its own: peers look at what is above in every operation.
  alignas(64) uint64_t closed;  // peers that will never touch this region again; writers: their hosts,
                                // atomically
  uint64_t submitted;  // operations that the owner has submitted; writer: owner's host
  uint64_t completed;  // of those, how many have ended, well or not; writer: owner's host
  // s + 1: for operation s the owner's peers need not wait before they begin: its stream has come to it, or
  // it is run without a rendezvous (StreamPath); writer: owner's host
  uint64_t arrived;
  uint64_t reserved_tail[4];
  // Signature board[board_size] follows.
};
static_assert(sizeof(LaneShared) == 1280);

}  // namespace starling
