// What a Work knows of one operation of the library.
#pragma once

#include <atomic>
#include <optional>

#include <starling/starling.h>

#include "work.h"

namespace starling::torch_adapter {

struct Work::Operation {
  Work* work = nullptr;
  c10::intrusive_ptr<Work> alive;  // as long as the library may call back
  starling_comm* comm = nullptr;
  starling_operation description{};
  starling_request* request = nullptr;  // null while negotiated
  bool negotiated = false;
  bool caller_stands = false;  // the stream that was current at the call is behind it
  std::optional<DeviceEvent> behind;  // what holds a stream of the group's: behind it there
  std::atomic<bool> settled = false;

  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() {
    if (request != nullptr) starling_request_free(request);
  }
};

}  // namespace starling::torch_adapter
