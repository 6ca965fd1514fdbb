// The one table of instructions. Parser, printer, verifier and interpreter are generated from it.
//
// Every instruction is `destinations = combine(sources)` (device/combine.h) between waits and signals:
//   sources       the messages of its receive connections and, where `reads_source` says so, a local slice
//   destinations  the slots of its send connections and, where `writes_destination` says so, a local slice
// GC3's names are in brackets; GC3's semantics hold: the source of rrc and rrs is local.
#pragma once
#include <cstdint>

#include "base/portable.h"

namespace starling {

// clang-format off
//  name                  value receives sends reads_source writes_destination reduces
#define STARLING_OPCODES(X)                                                               \
  X(nop,                    0,   false, false, false, false, false) /* dependencies only */   \
  X(copy,                   1,   false, false, true,  true,  false)                           \
  X(reduce,                 2,   false, false, true,  true,  true)  /* dst = dst op src */    \
  X(send,                   3,   false, true,  true,  false, false) /* [s]   */               \
  X(recv,                   4,   true,  false, false, true,  false) /* [r]   */               \
  X(recv_send,              5,   true,  true,  false, false, false) /* forward only */        \
  X(recv_copy_send,         6,   true,  true,  false, true,  false) /* [rcs] */               \
  X(recv_reduce_send,       7,   true,  true,  true,  false, true)  /* [rrs] */               \
  X(recv_reduce_copy,       8,   true,  false, true,  true,  true)  /* [rrc] */               \
  X(recv_reduce_copy_send,  9,   true,  true,  true,  true,  true)  /* [rrcs] */              \
  X(reduce_send,           10,   false, true,  true,  true,  true)  /* reduce, and sends dst */
// clang-format on

enum class Opcode : uint8_t {
#define STARLING_OPCODE_ENUM(name, value, ...) name = value,
  STARLING_OPCODES(STARLING_OPCODE_ENUM)
#undef STARLING_OPCODE_ENUM
};

struct OpcodeTraits {
  const char* name;
  bool receives;
  bool sends;
  bool reads_source;
  bool writes_destination;
  bool reduces;
};

// Rows stand in the order of the values, so that a value is an index.
inline constexpr OpcodeTraits kOpcodeTable[] = {
#define STARLING_OPCODE_ROW(name, value, r, s, src, dst, red) {#name, r, s, src, dst, red},
    STARLING_OPCODES(STARLING_OPCODE_ROW)
#undef STARLING_OPCODE_ROW
};
inline constexpr uint32_t kOpcodeCount = sizeof(kOpcodeTable) / sizeof(kOpcodeTable[0]);

#define STARLING_OPCODE_BIT(name, value, r, s, src, dst, red) | (uint32_t(r) << value)
inline constexpr uint32_t kReceiveMask = 0 STARLING_OPCODES(STARLING_OPCODE_BIT);
#undef STARLING_OPCODE_BIT
#define STARLING_OPCODE_BIT(name, value, r, s, src, dst, red) | (uint32_t(s) << value)
inline constexpr uint32_t kSendMask = 0 STARLING_OPCODES(STARLING_OPCODE_BIT);
#undef STARLING_OPCODE_BIT
#define STARLING_OPCODE_BIT(name, value, r, s, src, dst, red) | (uint32_t(src) << value)
inline constexpr uint32_t kSourceMask = 0 STARLING_OPCODES(STARLING_OPCODE_BIT);
#undef STARLING_OPCODE_BIT
#define STARLING_OPCODE_BIT(name, value, r, s, src, dst, red) | (uint32_t(dst) << value)
inline constexpr uint32_t kDestinationMask = 0 STARLING_OPCODES(STARLING_OPCODE_BIT);
#undef STARLING_OPCODE_BIT
#define STARLING_OPCODE_BIT(name, value, r, s, src, dst, red) | (uint32_t(red) << value)
inline constexpr uint32_t kReduceMask = 0 STARLING_OPCODES(STARLING_OPCODE_BIT);
#undef STARLING_OPCODE_BIT

// Masks, not the table, on the device: no constant memory is read on the path of an instruction.
STARLING_HOST_DEVICE constexpr bool receives(Opcode op) { return (kReceiveMask >> uint32_t(op)) & 1; }
STARLING_HOST_DEVICE constexpr bool sends(Opcode op) { return (kSendMask >> uint32_t(op)) & 1; }
STARLING_HOST_DEVICE constexpr bool reads_source(Opcode op) { return (kSourceMask >> uint32_t(op)) & 1; }
STARLING_HOST_DEVICE constexpr bool writes_destination(Opcode op) {
  return (kDestinationMask >> uint32_t(op)) & 1;
}
STARLING_HOST_DEVICE constexpr bool reduces(Opcode op) { return (kReduceMask >> uint32_t(op)) & 1; }
// Its destination is the first operand of what it reduces.
STARLING_HOST_DEVICE constexpr bool reduces_into(Opcode op) {
  return ((kReduceMask & ~kReceiveMask) >> uint32_t(op)) & 1;
}

}  // namespace starling
