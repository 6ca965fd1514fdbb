// The table of types and reductions for the cuda machine, a file a row: what one edit compiles takes seconds,
// and the rows compile side by side. The interpreter finds combine() by argument-dependent lookup, before the
// template of device/combine.h, which does the work here too.
#pragma once
#include "device/packets.h"
#include "machine/cuda/machine.cuh"

namespace starling::cuda {

// One unit whose operands are in registers already: its type's reduction, and nothing is moved.
struct KeptUnit {
  const Pack* in;
  Pack* out;
};

// combine_<row>.cu. `kept` null: the whole of `c`.
__device__ void combine_bytes(CudaMachine m, const device::Combine& c, const KeptUnit* kept);
__device__ void combine_shorts(CudaMachine m, const device::Combine& c, const KeptUnit* kept);
__device__ void combine_ints(CudaMachine m, const device::Combine& c, const KeptUnit* kept);
__device__ void combine_longs(CudaMachine m, const device::Combine& c, const KeptUnit* kept);
__device__ void combine_halves(CudaMachine m, const device::Combine& c, const KeptUnit* kept);
__device__ void combine_floats(CudaMachine m, const device::Combine& c, const KeptUnit* kept);

__device__ inline void combine_row(CudaMachine m, const device::Combine& c, const KeptUnit* kept = nullptr) {
  switch (c.data_type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool: return combine_bytes(m, c, kept);
    case DataType::kInt16:
    case DataType::kUint16: return combine_shorts(m, c, kept);
    case DataType::kInt32:
    case DataType::kUint32: return combine_ints(m, c, kept);
    case DataType::kInt64:
    case DataType::kUint64: return combine_longs(m, c, kept);
    case DataType::kFloat16:
    case DataType::kBfloat16: return combine_halves(m, c, kept);
    case DataType::kFloat32:
    case DataType::kFloat64: return combine_floats(m, c, kept);
  }
}

__device__ inline void combine(CudaMachine& m, const device::Combine& c) {
  device::is_plain(c) ? device::copy_strided(m, c) : combine_row(m, c);
}

__device__ inline void combine_packets(CudaMachine& m, const device::Combine& c) {
  device::is_plain(c) ? device::copy_packets(m, c) : combine_row(m, c);
  device::refresh(m, c);
}

__device__ inline void reduce_unit(CudaMachine& m, const device::Combine& c, const Pack* in, Pack& out) {
  const KeptUnit kept{in, &out};
  combine_row(m, c, &kept);
}

// Of a thread of the daemon, and of an operation that begins with others: the same. Without these the
// templates, which fit better, would bring the whole table into the kernel.
__device__ inline void combine(DaemonMachine& m, const device::Combine& c) {
  combine(static_cast<CudaMachine&>(m), c);
}
__device__ inline void combine_packets(DaemonMachine& m, const device::Combine& c) {
  combine_packets(static_cast<CudaMachine&>(m), c);
}
__device__ inline void reduce_unit(DaemonMachine& m, const device::Combine& c, const Pack* in, Pack& out) {
  reduce_unit(static_cast<CudaMachine&>(m), c, in, out);
}
__device__ inline void combine(StartMachine& m, const device::Combine& c) {
  combine(static_cast<CudaMachine&>(m), c);
}
__device__ inline void combine_packets(StartMachine& m, const device::Combine& c) {
  combine_packets(static_cast<CudaMachine&>(m), c);
}
__device__ inline void reduce_unit(StartMachine& m, const device::Combine& c, const Pack* in, Pack& out) {
  reduce_unit(static_cast<CudaMachine&>(m), c, in, out);
}

// A row, for the files of the rows.
template <class T>
__device__ void combine_as(CudaMachine m, const device::Combine& c, const KeptUnit* kept) {
  device::with_op(T{}, c.data_type, c.reduce_op, [&](auto element, auto op) {
    if (kept != nullptr)
      *kept->out = device::reduce_unit_as<decltype(element), decltype(op)>(c, kept->in);
    else if (c.packet_bytes != 0)
      device::reduce_packets_as<decltype(element), decltype(op)>(m, c);
    else
      device::combine_strided<decltype(element), decltype(op)>(m, c);
  });
}

}  // namespace starling::cuda
