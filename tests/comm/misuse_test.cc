// Goal: every function of the C API refuses misuse with a status and a message that names the remedy; nothing
// breaks. Method: null pointers, wrong sizes, wrong numbers, wrong order of destruction; a right call in
// between still works.
#include "comm/threads.h"

namespace starling::testing {
namespace {

void expect_refused(starling_status status, const std::string& fragment) {
  EXPECT_EQ(status, STARLING_INVALID_ARGUMENT);
  const std::string text = starling_last_error();
  EXPECT_NE(text.find(fragment), std::string::npos) << text;
}

TEST(Misuse, OfContexts) {
  expect_refused(starling_context_create(nullptr, nullptr), "context is a null pointer");
  starling_context* context = nullptr;
  starling_context_options options{};
  expect_refused(starling_context_create(&options, &context), "struct_bytes");
  options.struct_bytes = sizeof options;
  options.blocks = 1000;
  expect_refused(starling_context_create(&options, &context), "block");
  options.blocks = 0;
  options.completion_queue = "stack";
  expect_refused(starling_context_create(&options, &context), "completion");
  EXPECT_EQ(context, nullptr);
  expect_refused(starling_context_destroy(nullptr), "null pointer");
  expect_refused(starling_context_synchronize(nullptr), "null pointer");
  expect_refused(starling_context_profile(nullptr, nullptr), "null pointer");
  starling_statistics statistics{};
  statistics.struct_bytes = sizeof statistics;
  expect_refused(starling_context_statistics(nullptr, &statistics), "null pointer");
  size_t count = 0;
  expect_refused(starling_context_trace(nullptr, nullptr, &count), "null pointer");
  char name[8];
  expect_refused(starling_context_lane_name(nullptr, 0, name, sizeof name), "null pointer");
}

TEST(Misuse, OfAContextInUse) {
  RankOptions one;
  one.size = 1;
  run_ranks(one, [](Rank& rank) {
    expect_refused(starling_context_destroy(rank.context), "destroy its communicators first");
    expect_refused(starling_context_statistics(rank.context, nullptr), "null pointer");
    starling_statistics statistics{};
    expect_refused(starling_context_statistics(rank.context, &statistics), "struct_bytes");
    expect_refused(starling_context_trace(rank.context, nullptr, nullptr), "null pointer");
    expect_refused(starling_context_lane_name(rank.context, 0, nullptr, 4), "null pointer");
    expect_refused(starling_context_lane_name(rank.context, 0, nullptr, 0), "name_bytes");
  });
}

TEST(Misuse, OfCommunicators) {
  RankOptions one;
  one.size = 1;
  run_ranks(one, [](Rank& rank) {
    starling_comm* comm = nullptr;
    starling_comm_options options{};
    expect_refused(starling_comm_create(rank.context, nullptr, &comm), "null pointer");
    expect_refused(starling_comm_create(rank.context, &options, nullptr), "null pointer");
    expect_refused(starling_comm_create(rank.context, &options, &comm), "struct_bytes");
    MemoryStore memory;
    starling_store store = memory.functions();
    options.struct_bytes = sizeof options;
    options.store = &store;
    options.name = "other";
    expect_refused(starling_comm_create(rank.context, &options, &comm), "ranks are 0 to size - 1");
    options.rank = 1;
    options.size = 1;
    expect_refused(starling_comm_create(rank.context, &options, &comm), "ranks are 0 to size - 1");
    options.rank = 0;
    expect_refused(starling_comm_create(nullptr, &options, &comm), "context is a null pointer");
    options.name = nullptr;
    expect_refused(starling_comm_create(rank.context, &options, &comm), "needs a name");
    options.name = "other";
    store.get = nullptr;
    expect_refused(starling_comm_create(rank.context, &options, &comm), "null function");
    const uint32_t ranks[] = {0, 0};
    expect_refused(starling_comm_split(nullptr, 0, 0, &comm), "null pointer");
    expect_refused(starling_comm_split(rank.comm, 0, 0, nullptr), "null pointer");
    expect_refused(starling_comm_subgroup(rank.comm, ranks, 2, "x", &comm), "each once");
    expect_refused(starling_comm_subgroup(rank.comm, nullptr, 2, "x", &comm), "null pointer");
    expect_refused(starling_comm_subgroup(nullptr, ranks, 1, "x", &comm), "null pointer");
    expect_refused(starling_comm_abort(nullptr, "x"), "null pointer");
    expect_refused(starling_comm_error(nullptr), "null pointer");
    expect_refused(starling_comm_set_timeout(rank.comm, 0), "positive");
    expect_refused(starling_comm_set_timeout(nullptr, 1), "null pointer");
    expect_refused(starling_comm_destroy(nullptr), "null pointer");
    EXPECT_EQ(starling_comm_rank(nullptr), 0u);
    EXPECT_EQ(starling_comm_size(nullptr), 0u);
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(Misuse, OfOperations) {
  RankOptions one;
  one.size = 1;
  run_ranks(one, [](Rank& rank) {
    float buffer[4] = {};
    starling_request* request = nullptr;
    starling_operation op = operation(STARLING_ALL_REDUCE);
    op.input = op.output = buffer;
    op.count = 4;
    expect_refused(starling_submit(nullptr, &op, &request), "null pointer");
    expect_refused(starling_submit(rank.comm, nullptr, &request), "null pointer");
    auto refused = [&](const char* fragment, auto change) {
      starling_operation wrong = op;
      change(wrong);
      expect_refused(starling_submit(rank.comm, &wrong, &request), fragment);
      EXPECT_EQ(request, nullptr);
    };
    refused("struct_bytes", [](auto& o) { o.struct_bytes = 8; });
    refused("does not exist", [](auto& o) { o.kind = starling_collective(77); });
    refused("does not exist", [](auto& o) { o.data_type = starling_data_type(77); });
    refused("does not exist", [](auto& o) { o.reduce_op = starling_reduce_op(77); });
    refused("null pointer", [](auto& o) { o.input = nullptr; });
    refused("null pointer", [](auto& o) { o.output = nullptr; });
    refused("ring", [](auto& o) { o.algorithm = "square"; });
    refused("root", [](auto& o) {
      o.kind = STARLING_BROADCAST;
      o.root = 1;
    });
    refused("peer", [](auto& o) {
      o.kind = STARLING_SEND;
      o.peer = -2;
    });
    expect_refused(starling_wait(nullptr, 0), "null pointer");
    expect_refused(starling_test(nullptr), "null pointer");
    EXPECT_EQ(starling_request_source(nullptr), -1);
    starling_request_free(nullptr);
    ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS);
    expect_done(request);
  });
}

TEST(Misuse, OfRegisteredCollectives) {
  RankOptions one;
  one.size = 1;
  run_ranks(one, [](Rank& rank) {
    starling_operation shape = operation(STARLING_BARRIER);
    const uint32_t devices[] = {0};
    const uint32_t elsewhere[] = {3};
    expect_refused(starling_register(nullptr, 1, devices, 1, &shape), "null pointer");
    expect_refused(starling_register(rank.comm, 1, nullptr, 1, &shape), "null pointer");
    expect_refused(starling_register(rank.comm, 1, devices, 1, nullptr), "null pointer");
    expect_refused(starling_register(rank.comm, 1, elsewhere, 1, &shape), "not in the device set");
    expect_refused(starling_run(rank.comm, 1, nullptr, nullptr, nullptr, nullptr), "starling_register first");
    expect_refused(starling_run(nullptr, 1, nullptr, nullptr, nullptr, nullptr), "null pointer");
    ASSERT_EQ(starling_register(rank.comm, 1, devices, 1, &shape), STARLING_SUCCESS) << starling_last_error();
    expect_refused(starling_register(rank.comm, 1, devices, 1, &shape), "already");
  });
}

}  // namespace
}  // namespace starling::testing
