// Goal: what a limit of the system refuses is an error with its remedy, on a rank that can end in order.
// Method: ranks in processes of their own, under limits from nothing to enough. sanitize: no (their runtimes
// die of these limits themselves)
#include <sys/resource.h>

#include "comm/threads.h"
#include "support/in_child.h"

namespace starling::testing {
namespace {

void limit(int what, rlim_t to) {
  const rlimit both{to, to};
  if (setrlimit(__rlimit_resource_t(what), &both) != 0) std::abort();
}

// A context of several blocks, and an operation with a callback: "" or the error's text.
std::string one_rank() {
  starling_context_options chosen{};
  chosen.struct_bytes = sizeof chosen;
  chosen.blocks = 3;
  starling_context* context = nullptr;
  if (starling_context_create(&chosen, &context) != STARLING_SUCCESS) return starling_last_error();
  MemoryStore memory;
  const starling_store store = memory.functions();
  starling_comm_options options{};
  options.struct_bytes = sizeof options;
  options.size = 1;
  options.name = "alone";
  options.store = &store;
  starling_comm* comm = nullptr;
  starling_request* request = nullptr;
  float value = 3;
  starling_operation op = operation(STARLING_ALL_REDUCE);
  op.input = op.output = &value;
  op.count = 1;
  op.callback = [](starling_status, const char*, void*) {};
  std::string text;
  if (starling_comm_create(context, &options, &comm) != STARLING_SUCCESS ||
      starling_submit(comm, &op, &request) != STARLING_SUCCESS ||
      starling_wait(request, -1) != STARLING_SUCCESS)
    text = starling_last_error();
  starling_request_free(request);
  if (comm != nullptr) starling_comm_destroy(comm);
  starling_context_destroy(context);
  return text;
}

TEST(Limits, OfFiles) {
  const Outcome told = in_child([] {
    limit(RLIMIT_FSIZE, 1 << 20);
    return one_rank();
  });
  EXPECT_EQ(told.signal, 0);
  EXPECT_NE(told.text.find("ulimit -f unlimited"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("STARLING_ARENA_BYTES to at most 1048576"), std::string::npos) << told.text;
}

TEST(Limits, OfThreads) {
  uint32_t refused = 0;
  for (rlim_t threads = 1; threads <= 8; ++threads) {
    const Outcome told = in_child([&]() -> std::string {
      // Limits are not for root, and count all processes of a user.
      if (geteuid() == 0 && setuid(uid_t(1'000'000 + threads)) != 0) return "cannot become another user";
      limit(RLIMIT_NPROC, threads);
      return one_rank();
    });
    EXPECT_EQ(told.signal, 0) << "with " << threads;
    if (told.text.empty()) continue;
    ++refused;
    EXPECT_NE(told.text.find("cannot start a thread"), std::string::npos) << told.text;
    EXPECT_NE(told.text.find("ulimit -u"), std::string::npos) << told.text;
  }
  // The process itself, three blocks, the poller, the callbacks: five are refused.
  EXPECT_GE(refused, 5u);
}

}  // namespace
}  // namespace starling::testing
