// How peers reach a rank's GPU memory: a page of the rank's segment (ArenaHeader::device_offset), written by
// the owner.
//
// Exported memory comes in chunks, which never move and are never given back while the rank lives. An offset
// of exported memory is chunk << 40 | bytes into it. Order of stores: a chunk's entry, then chunk_count
// (release; peers acquire), then whatever names an offset in it.
#pragma once
#include <cstdint>

#include "wire/registration.h"

namespace starling::cuda {

inline constexpr uint32_t kMaxChunks = 128;
inline constexpr uint32_t kChunkShift = 40;

struct ExportedChunk {
  uint64_t address;  // in the owner's process
  uint64_t bytes;
  uint8_t handle[64];  // cudaIpcMemHandle_t
};
static_assert(sizeof(ExportedChunk) == 80);

struct DeviceExport {
  uint8_t uuid[16];      // of the owner's GPU
  uint32_t device;       // its number in the owner's process
  uint32_t network;      // namespace of the owner's process (machine/registered/descriptors.h)
  uint64_t chunk_count;  // writer: owner
  uint64_t importers;    // processes' contexts that have chunks open; writers: peers, atomically
  ExportedChunk chunks[kMaxChunks];
  RegistrationTable registrations;  // the caller's buffers, where groups read each other's
};

}  // namespace starling::cuda
