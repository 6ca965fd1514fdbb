#include "streams.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <dlfcn.h>

#include <c10/util/Exception.h>

#include "errors.h"

namespace starling::torch_adapter {
namespace {

constexpr std::size_t kMostCompanions = 16;

c10::impl::VirtualGuardImpl cuda() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA); }

// Not every version of torch that is supported answers through the interface. The method of c10's CUDA
// library, whose class is a c10::Stream and nothing else.
void* ask_cuda_library(const c10::Stream& stream) {
  using Method = void* (*)(const c10::Stream*);
  static const auto kMethod = [] {
    void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return reinterpret_cast<Method>(
        dlsym(library != nullptr ? library : RTLD_DEFAULT, "_ZNK3c104cuda10CUDAStream6streamEv"));
  }();
  TORCH_CHECK(kMethod != nullptr, "starling: this torch does not tell the handle of a CUDA stream");
  return kMethod(&stream);
}

template <class Guard>
void* ask(const Guard& guard, const c10::Stream& stream) {
  if constexpr (requires { guard.getStreamNativeHandle(stream); }) {
    return guard.getStreamNativeHandle(stream);
  } else {
    return ask_cuda_library(stream);
  }
}

c10::Stream make_stream(starling_context* context, c10::Device device, bool urgent) {
  void* handle = nullptr;
  check(starling_stream_create(context, urgent ? 1 : 0, &handle), "making a stream");
  return external_stream(device, handle);
}

}  // namespace

c10::Stream current_stream(c10::Device device) { return cuda().getStream(device); }

void* native_handle(const c10::Stream& stream) {
  // Streams from elsewhere are named by their handle; 0 is the default stream.
  if (stream.id() == 0) return nullptr;
  if (stream.id() % 2 == 0) return reinterpret_cast<void*>(stream.id());
  return ask(cuda(), stream);
}

c10::Stream external_stream(c10::Device device, void* handle) {
  const auto id = static_cast<c10::StreamId>(reinterpret_cast<std::intptr_t>(handle));
  return c10::Stream(c10::Stream::UNSAFE, device, id);
}

void synchronize_stream(const c10::Stream& stream) { cuda().synchronizeStream(stream); }

CurrentDevice::CurrentDevice(c10::Device device) : before_(cuda().exchangeDevice(device)) {}
CurrentDevice::~CurrentDevice() { cuda().uncheckedSetDevice(before_); }

CurrentStream::CurrentStream(const c10::Stream& stream)
    : device_(stream.device()), before_(cuda().exchangeStream(stream)) {}
CurrentStream::~CurrentStream() { cuda().exchangeStream(before_); }

DeviceEvent::~DeviceEvent() {
  if (!event_->was_marked_for_recording()) return;
  try {
    const CurrentDevice current(device_);
    event_.reset();
  } catch (const std::exception&) {
    // The GPU has failed, or the process ends. c10's would end that by its exception.
    static_cast<void>(new c10::Event(std::move(*event_)));
    event_.reset();
  }
}

void DeviceEvent::record(const c10::Stream& stream) {
  const CurrentDevice current(device_);
  event_->record(stream);
}

void DeviceEvent::block(const c10::Stream& stream) {
  const CurrentDevice current(device_);
  event_->block(stream);
}

void DeviceEvent::order(const c10::Stream& first, const c10::Stream& then) {
  const CurrentDevice current(device_);
  event_->record(first);
  event_->block(then);
}

bool DeviceEvent::query() const {
  const CurrentDevice current(device_);
  return event_->query();
}

void StreamOrder::after(const c10::Stream& then, const c10::Stream& first) {
  const std::lock_guard lock(mutex_);
  event_.order(first, then);
}

OperationStreams::OperationStreams(starling_context* context, c10::Device device)
    : collectives(make_stream(context, device, true)),
      sends(make_stream(context, device, true)),
      receives(make_stream(context, device, true)),
      futures(make_stream(context, device, false)) {}

HoldingStreams::HoldingStreams(starling_context* context, c10::Device device)
    : stands(make_stream(context, device, false)) {}

GroupStreams::GroupStreams(starling_context* of_context, c10::Device of_device, bool holds)
    : context(of_context),
      device(of_device),
      eager(context, device),
      captured(context, device),
      in_order(make_stream(context, device, true)),
      holding(holds ? std::make_optional<HoldingStreams>(context, device) : std::nullopt),
      spare_(make_stream(context, device, true)) {}

std::optional<c10::Stream> GroupStreams::companion(void* stream) {
  const std::lock_guard lock(companions_mutex_);
  const auto found = companions_.find(stream);
  if (found != companions_.end()) return found->second;
  if (companions_.size() >= kMostCompanions) return std::nullopt;
  const c10::Stream made = spare_ ? *spare_ : make_stream(context, device, true);
  spare_.reset();
  companions_.emplace(stream, made);
  return made;
}

bool GroupStreams::have_stand(std::uint64_t number, const std::function<void(const c10::Stream&)>& stand) {
  const std::unique_lock lock(futures_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (number != 0 && number == begun_in_order_) {
    stand(in_order);
    // Else another thread may have put the next one, and what that comes behind, before the event.
    return number == begun_in_order_;
  }
  // What stands there for a later one would stand before its event.
  if (number != 0 && number < newest_late_) return false;
  newest_late_ = std::max(newest_late_, number);
  stand(eager.futures);
  return true;
}

bool GroupStreams::captures(const c10::Stream& stream) const {
  std::int32_t capturing = 0;
  check(starling_stream_capturing(context, native_handle(stream), &capturing), "asking a stream");
  return capturing != 0;
}

const c10::Stream& OperationStreams::of(starling_collective kind) const {
  if (kind == STARLING_SEND) return sends;
  return kind == STARLING_RECV ? receives : collectives;
}

}  // namespace starling::torch_adapter
