#include "python/buffer.h"

#include <cstdio>
#include <cstring>
#include <string>

namespace nb = nanobind;

namespace starling::python {
namespace {

struct Row {
  const char* name;
  starling_data_type type;
  nb::dlpack::dtype_code code;
  uint8_t bits;
};

constexpr Row kRows[] = {
    {"int8", STARLING_INT8, nb::dlpack::dtype_code::Int, 8},
    {"uint8", STARLING_UINT8, nb::dlpack::dtype_code::UInt, 8},
    {"int16", STARLING_INT16, nb::dlpack::dtype_code::Int, 16},
    {"uint16", STARLING_UINT16, nb::dlpack::dtype_code::UInt, 16},
    {"int32", STARLING_INT32, nb::dlpack::dtype_code::Int, 32},
    {"uint32", STARLING_UINT32, nb::dlpack::dtype_code::UInt, 32},
    {"int64", STARLING_INT64, nb::dlpack::dtype_code::Int, 64},
    {"uint64", STARLING_UINT64, nb::dlpack::dtype_code::UInt, 64},
    {"float16", STARLING_FLOAT16, nb::dlpack::dtype_code::Float, 16},
    {"bfloat16", STARLING_BFLOAT16, nb::dlpack::dtype_code::Bfloat, 16},
    {"float32", STARLING_FLOAT32, nb::dlpack::dtype_code::Float, 32},
    {"float64", STARLING_FLOAT64, nb::dlpack::dtype_code::Float, 64},
    {"bool", STARLING_BOOL, nb::dlpack::dtype_code::Bool, 8},
};

// Row-major without gaps; dimensions of one element may have any stride, and so may all where there is none.
template <class Array>
bool is_contiguous(const Array& array) {
  if (array.size() == 0) return true;
  int64_t expected = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= int64_t(array.shape(i));
  }
  return true;
}

template <class Array>
Buffer describe(const Array& array, const char* name, bool on_gpu) {
  const bool host =
      array.device_type() == nb::device::cpu::value || array.device_type() == nb::device::cuda_host::value;
  if (!host && !(on_gpu && array.device_type() == nb::device::cuda::value))
    throw nb::type_error((std::string(name) +
                          " is not in CPU memory; copy it there first, or make the context "
                          "with a device of its own")
                             .c_str());
  if (!is_contiguous(array))
    throw nb::buffer_error(
        (std::string(name) + " is not contiguous; pass numpy.ascontiguousarray(...) or tensor.contiguous()")
            .c_str());
  Buffer buffer;
  buffer.data = const_cast<void*>(static_cast<const void*>(array.data()));
  buffer.count = array.size();
  for (const Row& row : kRows)
    if (array.dtype().lanes == 1 && array.dtype().code == uint8_t(row.code) && array.dtype().bits == row.bits)
      buffer.data_type = row.type;
  return buffer;
}

}  // namespace

Buffer buffer_of(const nb::object& object, const char* name, Access access, bool on_gpu) {
  if (object.is_none()) return {};
  if (access == Access::kWrite) {
    nb::ndarray<> array;
    if (nb::try_cast(object, array, false)) return describe(array, name, on_gpu);
  }
  nb::ndarray<nb::ro> readable;
  if (!nb::try_cast(object, readable, false))
    throw nb::type_error(
        (std::string(name) +
         " must be a numpy array of numbers in native byte order, a CPU tensor, or another object "
         "with DLPack or the buffer protocol")
            .c_str());
  if (access == Access::kWrite)
    throw nb::buffer_error((std::string(name) + " is read-only; pass a writable array").c_str());
  return describe(readable, name, on_gpu);
}

starling_data_type data_type_named(const char* name) {
  for (const Row& row : kRows)
    if (std::strcmp(row.name, name) == 0) return row.type;
  throw nb::value_error((std::string("data type '") + name +
                         "' is not supported; use int8 to uint64, float16, "
                         "bfloat16, float32, float64 or bool")
                            .c_str());
}

size_t bytes_of(starling_data_type type) {
  for (const Row& row : kRows)
    if (row.type == type) return row.bits / 8;
  return 1;
}

}  // namespace starling::python
