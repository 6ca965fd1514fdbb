// Measures one collective of one library, as nccl-tests does: warm up, barrier, N calls back to back, and
// then one more call on known data, of which every element is checked. The library is the only thing that
// differs between the programs.
#pragma once
#include <cstring>
#include <functional>

#include "element_values.h"
#include "worker.h"

namespace starling::bench {

enum class Kind {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,
  kBarrier
};
inline constexpr const char* kKindNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                             "reduce",     "all_to_all", "gather",         "scatter",
                                             "send_recv",  "barrier"};

// Counts and buffers as in <starling/starling.h>. send_recv: to the next rank, from the one before.
struct Call {
  Kind kind;
  DataType type;
  ReduceOp op;
  int root;
  size_t count;
  bool in_place;
  std::byte* input;
  std::byte* output;
};

struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Library {
 public:
  virtual ~Library() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Once per measurement; throws Unsupported. What it returns does one call, start to end.
  virtual std::function<void()> prepare(const Call& call) = 0;
  virtual void barrier() = 0;
};

// Touched at once, so that no page fault falls into a measurement.
class Buffer {
 public:
  ~Buffer() { std::free(data_); }
  std::byte* of_bytes(size_t bytes) {
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = (bytes + 4095) / 4096 * 4096;
      data_ = static_cast<std::byte*>(std::aligned_alloc(4096, bytes_));
      if (data_ == nullptr) throw std::runtime_error("no memory for " + std::to_string(bytes) + " bytes");
      std::memset(data_, 1, bytes_);
    }
    return data_;
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

class CollectiveWorker {
 public:
  explicit CollectiveWorker(Library& library) : library_(library) {}

  // measure kind= type= op= root= count= in_place= warmups= iterations= check=
  std::string answer(const Command& command) {
    try {
      return measure(command);
    } catch (const Unsupported& reason) {
      return "\"unsupported\": " + json_text(reason.what());
    }
  }

 private:
  std::string measure(const Command& command) {
    Call call{Kind(index_of(kKindNames, command.text("kind"), "collective")),
              DataType(index_of(kTypeNames, command.text("type"), "data type")),
              ReduceOp(index_of(kOpNames, command.text("op"), "reduction")),
              int(command.number("root")),
              size_t(command.number("count")),
              command.number("in_place") != 0,
              nullptr,
              nullptr};
    if (call.in_place && (call.kind == Kind::kSendRecv || call.kind == Kind::kBarrier))
      throw Unsupported("not in place");
    lay_out(call);
    fill(call);
    const std::function<void()> run = library_.prepare(call);
    for (long k = command.number("warmups"); k > 0; --k) run();
    library_.barrier();
    const long iterations = command.number("iterations");
    const double start = now_s();
    for (long k = 0; k < iterations; ++k) run();
    const double seconds = (now_s() - start) / double(iterations);
    std::string reply = json_number("seconds", seconds);
    if (command.number("check") != 0 && call.kind != Kind::kBarrier) {
      library_.barrier();
      fill(call);
      library_.barrier();  // nobody reads a peer's old data
      run();
      reply += ", " + json_number("wrong", double(wrong_elements(call)));
    }
    library_.barrier();
    return reply;
  }

  // Elements in this rank's input and output; what a rank does not use is 0.
  size_t input_count(const Call& call) const {
    const size_t n = size_t(library_.size());
    const bool root = library_.rank() == call.root;
    switch (call.kind) {
      case Kind::kReduceScatter:
      case Kind::kAllToAll: return n * call.count;
      case Kind::kScatter: return root ? n * call.count : 0;
      case Kind::kBroadcast: return root ? call.count : 0;
      case Kind::kBarrier: return 0;
      default: return call.count;
    }
  }
  size_t output_count(const Call& call) const {
    const size_t n = size_t(library_.size());
    const bool root = library_.rank() == call.root;
    switch (call.kind) {
      case Kind::kAllGather:
      case Kind::kAllToAll: return n * call.count;
      case Kind::kGather: return root ? n * call.count : 0;
      case Kind::kReduce: return root ? call.count : 0;
      case Kind::kBarrier: return 0;
      default: return call.count;
    }
  }

  void lay_out(Call& call) {
    const size_t width = data_type_bytes(call.type);
    const size_t all = std::max<size_t>(size_t(library_.size()) * call.count * width, 64);
    if (!call.in_place) {
      call.input = input_.of_bytes(all);
      call.output = output_.of_bytes(all);
      return;
    }
    std::byte* const memory = input_.of_bytes(all);
    const size_t mine = size_t(library_.rank()) * call.count * width;
    const bool root = library_.rank() == call.root;
    call.input = call.output = memory;
    if (call.kind == Kind::kAllGather || (call.kind == Kind::kGather && root)) call.input = memory + mine;
    if (call.kind == Kind::kReduceScatter || (call.kind == Kind::kScatter && root))
      call.output = memory + mine;
  }

  // The output first: in place, the input lies in it.
  void fill(const Call& call) const {
    with_type(call.type, [&](auto* tag) {
      using T = std::remove_reference_t<decltype(*tag)>;
      T* const output = reinterpret_cast<T*>(call.output);
      for (size_t i = 0; i < output_count(call); ++i) put(output[i], 77);
      T* const input = reinterpret_cast<T*>(call.input);
      for (size_t i = 0; i < input_count(call); ++i)
        put(input[i], double(input_value(call.op, library_.rank(), i, library_.size())));
    });
  }

  double expected(const Call& call, size_t i) const {
    const int n = library_.size(), rank = library_.rank();
    const size_t mine = size_t(rank) * call.count;
    auto of = [&](int from, size_t element) { return double(input_value(call.op, from, element, n)); };
    switch (call.kind) {
      case Kind::kAllReduce:
      case Kind::kReduce: return reduced_value(call.op, i, n);
      case Kind::kReduceScatter: return reduced_value(call.op, mine + i, n);
      case Kind::kBroadcast: return of(call.root, i);
      case Kind::kScatter: return of(call.root, mine + i);
      case Kind::kAllGather:
      case Kind::kGather: return of(int(i / call.count), i % call.count);
      case Kind::kAllToAll: return of(int(i / call.count), mine + i % call.count);
      case Kind::kSendRecv: return of((rank + n - 1) % n, i);
      case Kind::kBarrier: break;
    }
    return 0;
  }

  size_t wrong_elements(const Call& call) const {
    size_t wrong = 0;
    with_type(call.type, [&](auto* tag) {
      using T = std::remove_reference_t<decltype(*tag)>;
      const T* const output = reinterpret_cast<const T*>(call.output);
      for (size_t i = 0; i < output_count(call); ++i) wrong += !equal(output[i], expected(call, i), call.op);
    });
    return wrong;
  }

  Library& library_;
  Buffer input_, output_;
};

}  // namespace starling::bench
