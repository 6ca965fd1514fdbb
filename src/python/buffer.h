// A contiguous piece of memory behind a Python object: DLPack, the buffer protocol, numpy.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <starling/starling.h>

#include <cstddef>
#include <optional>

namespace starling::python {

struct Buffer {
  void* data = nullptr;
  size_t count = 0;  // elements
  std::optional<starling_data_type> data_type;
};

enum class Access { kRead, kWrite };

// `name` is the argument's, for messages. Raises TypeError or BufferError with the remedy. None: empty. The
// memory stays alive as long as the object: keep it.
// on_gpu: CUDA memory is expected (and pinned CPU memory taken; the library checks that); else CPU memory
// alone.
Buffer buffer_of(const nanobind::object& object, const char* name, Access access, bool on_gpu);

// The data type of this name ("float32", "bfloat16", ...); raises ValueError.
starling_data_type data_type_named(const char* name);
size_t bytes_of(starling_data_type type);

}  // namespace starling::python
