// What the files of the module share.
#pragma once
#include <nanobind/nanobind.h>
#include <starling/starling.h>

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

void bind_errors(nanobind::module_& m);
void bind_requests(nanobind::module_& m);
void bind_context(nanobind::module_& m);
void bind_communicator(nanobind::module_& m);
void bind_timing(nanobind::module_& m);  // after communicators

namespace starling::python {

// Raises the class of starling.errors that belongs to the status, with the thread's last message.
void check(starling_status status);
[[noreturn]] void raise(starling_status status, const char* message);

// Gives the GIL back at its end, unless the interpreter has ended meanwhile: then the thread (a daemon
// thread that nobody joins) stays asleep, where Python would end it in the middle of C++.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Runs Ctrl-C's handler if it is this thread's turn; throws what it raises.
void check_signals();

// A Python function to be called once with (status, message) by a thread of the library.
struct PythonCallback;
PythonCallback* make_callback(nanobind::object function);
void drop_callback(PythonCallback* callback);
extern "C" void run_python_callback(starling_status status, const char* message, void* callback);

// Threads that are inside the context for a request of theirs. Its destruction waits for them: at exit,
// nobody joins Python's daemon threads.
class ContextUse {
 public:
  // False: the context ends; stay out.
  bool enter() {
    ++inside_;
    // Counted first, then looked: end() sets first and then reads the count.
    if (!ending_.load()) return true;
    --inside_;
    return false;
  }
  void leave() { --inside_; }
  bool on_gpu = false;  // what kind of buffers the context takes; set when it is made

  // Returns when nobody is inside; they look every few milliseconds.
  void end();

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> ending_{false};
};

struct Request {
  starling_request* handle = nullptr;
  std::shared_ptr<ContextUse> use;
  explicit Request(std::shared_ptr<ContextUse> of) : use(std::move(of)) {}
  Request(Request&& other) noexcept : handle(other.handle), use(std::move(other.use)) {
    other.handle = nullptr;
  }
  ~Request() { starling_request_free(handle); }
};

// Both are destroyed by name. Where Ctrl-C came between their making and their first owner in Python, nobody
// can: then their destructors do it, in the process that made them.
struct Context {
  starling_context* handle = nullptr;
  std::shared_ptr<ContextUse> use = std::make_shared<ContextUse>();
  pid_t made_in = getpid();
  starling_context* get() const;
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();
};

struct Communicator {
  starling_comm* handle = nullptr;
  std::shared_ptr<ContextUse> use;  // its context's
  pid_t made_in = getpid();
  Communicator(starling_comm* comm, std::shared_ptr<ContextUse> of) : handle(comm), use(std::move(of)) {}
  Communicator(Communicator&& other) noexcept
      : handle(std::exchange(other.handle, nullptr)), use(other.use), made_in(other.made_in) {}
  starling_comm* get() const;
  ~Communicator();
};

}  // namespace starling::python
