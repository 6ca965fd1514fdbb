// send and recv. They match by (source, destination, tag), so crossed ones finish in any order.
#include "call.h"

namespace starling::torch_adapter {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

namespace {

std::uint64_t checked_tag(int tag, const char* title) {
  TORCH_CHECK(tag >= 0, title, ": Tag must be nonnegative, got ", tag);
  return static_cast<std::uint64_t>(tag);
}

void check_peer(int peer, int size, const char* title) {
  TORCH_CHECK(peer >= 0 && peer < size, title, ": rank ", peer, " is not in this group of ", size);
}

constexpr std::int32_t kAnySource = -1;

}  // namespace

WorkPointer Backend::send(std::vector<at::Tensor>& tensors, int destination, int tag) {
  constexpr const char* kTitle = "starling:send";
  const at::Tensor& tensor = single_tensor(tensors, kTitle);
  check_peer(destination, getSize(), kTitle);
  const ElementType element = movable_type(tensor);
  Call call(*this, {c10d::OpType::SEND, kTitle, {tensor}, {}});
  starling_operation operation = call.operation(STARLING_SEND, element);
  operation.input = call.read(tensor);
  operation.count = static_cast<size_t>(tensor.numel()) * element.per_element;
  operation.peer = destination;
  operation.tag = checked_tag(tag, kTitle);
  operation.waited = STARLING_PERHAPS_WAITED;  // torch.distributed.send is isend and wait
  call.submit(operation);
  return call.launch();
}

namespace {

struct Reception {
  c10d::OpType type;
  const char* title;
  std::int32_t source;
  int tag;
};

WorkPointer receive(Backend& backend, const std::vector<at::Tensor>& tensors, const Reception& reception) {
  const at::Tensor& tensor = single_tensor(tensors, reception.title);
  const ElementType element = movable_type(tensor);
  const std::uint64_t tag = checked_tag(reception.tag, reception.title);
  Call call(backend, {reception.type, reception.title, {tensor}, {tensor}});
  starling_operation operation = call.operation(STARLING_RECV, element);
  operation.output = call.write(tensor);
  operation.count = static_cast<size_t>(tensor.numel()) * element.per_element;
  operation.peer = reception.source;
  operation.tag = tag;
  // One from any source is submitted to its lane later, by another thread.
  if (reception.source >= 0) operation.waited = STARLING_PERHAPS_WAITED;
  call.submit(operation);
  return call.launch();
}

}  // namespace

WorkPointer Backend::recv(std::vector<at::Tensor>& tensors, int source, int tag) {
  check_peer(source, getSize(), "starling:recv");
  return receive(*this, tensors, {c10d::OpType::RECV, "starling:recv", source, tag});
}

WorkPointer Backend::recvAnysource(std::vector<at::Tensor>& tensors, int tag) {
  return receive(*this, tensors, {c10d::OpType::RECVANYSOURCE, "starling:recvAnySource", kAnySource, tag});
}

}  // namespace starling::torch_adapter
