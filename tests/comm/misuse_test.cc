// Goal: every function of the C API refuses misuse with a status and a message that names the remedy; nothing
// breaks. Method: null pointers, wrong sizes, wrong numbers, wrong order of destruction; a right call in
// between still works.
#include <starling/plan.h>

#include <atomic>

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
  options.scheduling.order = starling_order(7);
  expect_refused(starling_context_create(&options, &context), "order 7 does not exist");
  options.scheduling.order = STARLING_ORDER_FIFO;
  options.pool_bytes = uint64_t(1) << 30;
  options.arena_bytes = uint64_t(1) << 24;
  expect_refused(starling_context_create(&options, &context), "STARLING_POOL_BYTES");
  options.pool_bytes = options.arena_bytes = 0;
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

TEST(Misuse, OfWhatWasDestroyed) {
  starling_context* context = nullptr;
  ASSERT_EQ(starling_context_create(nullptr, &context), STARLING_SUCCESS) << starling_last_error();
  MemoryStore memory;
  const starling_store store = memory.functions();
  starling_comm_options options{};
  options.struct_bytes = sizeof options;
  options.size = 1;
  options.name = "alone";
  options.store = &store;
  starling_comm* comm = nullptr;
  ASSERT_EQ(starling_comm_create(context, &options, &comm), STARLING_SUCCESS) << starling_last_error();
  starling_operation op = operation(STARLING_RECV);
  float value = 0;
  op.peer = 0;
  op.output = &value;
  op.count = 1;
  starling_request* request = nullptr;
  ASSERT_EQ(starling_submit(comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
  ASSERT_EQ(starling_comm_destroy(comm), STARLING_SUCCESS);

  const uint32_t ranks[] = {0};
  starling_comm* child = nullptr;
  expect_refused(starling_comm_destroy(comm), "comm was destroyed");
  expect_refused(starling_submit(comm, &op, nullptr), "comm was destroyed");
  expect_refused(starling_comm_split(comm, 0, 0, &child), "parent was destroyed");
  expect_refused(starling_comm_subgroup(comm, ranks, 1, "x", &child), "parent was destroyed");
  expect_refused(starling_comm_abort(comm, "x"), "comm was destroyed");
  expect_refused(starling_comm_error(comm), "comm was destroyed");
  expect_refused(starling_comm_set_timeout(comm, 1), "comm was destroyed");
  expect_refused(starling_register(comm, 1, ranks, 1, &op), "comm was destroyed");
  expect_refused(starling_run(comm, 1, nullptr, nullptr, nullptr, nullptr), "comm was destroyed");
  EXPECT_EQ(starling_comm_size(comm), 0u);
  EXPECT_EQ(starling_comm_rank(comm), 0u);

  ASSERT_EQ(starling_context_destroy(context), STARLING_SUCCESS);
  expect_refused(starling_context_destroy(context), "context was destroyed");
  expect_refused(starling_context_synchronize(context), "context was destroyed");
  expect_refused(starling_context_profile(context, nullptr), "context was destroyed");
  expect_refused(starling_comm_create(context, &options, &comm), "context was destroyed");
  starling_statistics statistics{};
  statistics.struct_bytes = sizeof statistics;
  expect_refused(starling_context_statistics(context, &statistics), "context was destroyed");
  size_t count = 0;
  expect_refused(starling_context_trace(context, nullptr, &count), "context was destroyed");
  char name[8];
  expect_refused(starling_context_lane_name(context, 0, name, sizeof name), "context was destroyed");

  // Requests outlive both.
  EXPECT_EQ(starling_wait(request, -1), STARLING_ABORTED);
  EXPECT_EQ(starling_test(request), STARLING_ABORTED);
  EXPECT_EQ(starling_request_source(request), 0);
  starling_request_free(request);
}

// The context's thread that runs callbacks would wait for itself.
TEST(Misuse, OfAContextByItsOwnCallback) {
  RankOptions one;
  one.size = 1;
  run_ranks(one, [](Rank& rank) {
    struct Called {
      starling_context* context;
      std::atomic<bool> refused{false};
    } called{rank.context};
    starling_operation op = operation(STARLING_BARRIER);
    op.user = &called;
    op.callback = [](starling_status, const char*, void* user) {
      auto* own = static_cast<Called*>(user);
      expect_refused(starling_context_destroy(own->context), "on another thread");
      own->refused = true;
    };
    starling_request* request = nullptr;
    ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
    expect_done(request);
    while (!called.refused) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
}

// What is wrong with a call is told to who made it, before a partner comes or the poller looks.
TEST(Misuse, OfCallsThatWaitForAPartner) {
  RankOptions one;
  one.size = 1;
  run_ranks(one, [](Rank& rank) {
    for (const int peer : {-1, 0}) {
      starling_operation op = operation(STARLING_RECV);
      op.peer = peer;
      op.count = 4;
      expect_refused(starling_submit(rank.comm, &op, nullptr), "output is a null pointer");
      float buffer[4];
      op.output = buffer;
      op.data_type = starling_data_type(-1);
      expect_refused(starling_submit(rank.comm, &op, nullptr), "does not exist");
    }
    starling_operation op = operation(STARLING_SEND);
    op.peer = 0;
    op.count = 4;
    expect_refused(starling_submit(rank.comm, &op, nullptr), "input is a null pointer");
    // The partner of none of these is found.
    float buffer[4] = {1, 2, 3, 4};
    float received[4] = {};
    op.input = buffer;
    starling_request* request = nullptr;
    ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS) << starling_last_error();
    starling_operation receive = operation(STARLING_RECV);
    receive.output = received;
    receive.count = 4;
    starling_request* other = nullptr;
    ASSERT_EQ(starling_submit(rank.comm, &receive, &other), STARLING_SUCCESS) << starling_last_error();
    expect_done(request);
    expect_done(other);
    EXPECT_EQ(received[3], 4);
  });
}

// Those before a wrong one are under way, and have their requests.
TEST(Misuse, OfOperationsThatBeginTogether) {
  RankOptions one;
  one.size = 1;
  run_ranks(one, [](Rank& rank) {
    float buffer[4] = {1, 2, 3, 4}, received[4] = {};
    starling_operation calls[3] = {operation(STARLING_SEND), operation(STARLING_RECV),
                                   operation(STARLING_RECV)};
    for (starling_operation& call : calls) {
      call.count = 4;
      call.peer = 0;
    }
    calls[0].input = buffer;
    calls[1].output = received;
    starling_request* requests[3];
    expect_refused(starling_submit_together(nullptr, calls, 3, requests), "null pointer");
    expect_refused(starling_submit_together(rank.comm, nullptr, 3, requests), "null pointer");
    EXPECT_EQ(starling_submit_together(rank.comm, nullptr, 0, nullptr), STARLING_SUCCESS);
    expect_refused(starling_submit_together(rank.comm, calls, 3, requests), "output is a null pointer");
    EXPECT_EQ(requests[2], nullptr);
    expect_done(requests[0]);
    expect_done(requests[1]);
    EXPECT_EQ(received[3], 4);
    ASSERT_EQ(starling_submit_together(rank.comm, calls, 2, requests), STARLING_SUCCESS)
        << starling_last_error();
    expect_done(requests[0]);
    expect_done(requests[1]);
  });
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
    expect_refused(starling_comm_decline(nullptr, "x"), "null pointer");
    expect_refused(starling_comm_decline(&options, "x"), "struct_bytes");
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
    expect_refused(starling_comm_decline(&options, "x"), "needs a name");
    options.store = nullptr;
    expect_refused(starling_comm_decline(&options, "x"), "pass the store");
    options.store = &store;
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
    expect_refused(starling_comm_set_timeout(rank.comm, -1), "positive");
    const uint32_t beyond[] = {0, 1};
    expect_refused(starling_comm_subgroup(rank.comm, beyond, 2, "x", &comm), "ranks of the parent");
    expect_refused(starling_comm_subgroup(rank.comm, beyond, UINT32_MAX, "x", &comm), "4294967295 ranks");
    expect_refused(starling_comm_set_timeout(nullptr, 1), "null pointer");
    expect_refused(starling_comm_destroy(nullptr), "null pointer");
    EXPECT_EQ(starling_comm_rank(nullptr), 0u);
    EXPECT_EQ(starling_comm_size(nullptr), 0u);
    EXPECT_EQ(comm, nullptr);
  });
}

TEST(Misuse, OfPlansAndTables) {
  RankOptions one;
  one.size = 1;
  run_ranks(one, [](Rank& rank) {
    expect_refused(starling_comm_add_plan(rank.comm, nullptr, 1, 0), "text is a null pointer");
    expect_refused(starling_comm_add_plan(rank.comm, "no plan", 1, 0), "remedy");
    expect_refused(starling_comm_use_table(rank.comm, nullptr, nullptr), "null pointer");
    char* name = nullptr;
    expect_refused(starling_comm_topology(nullptr, &name), "comm is a null pointer");
    expect_refused(starling_comm_topology(rank.comm, nullptr), "name is a null pointer");
    EXPECT_EQ(name, nullptr);
  });
}

TEST(Misuse, OfStreams) {
  RankOptions one;
  one.size = 1;
  run_ranks(one, [](Rank& rank) {
    void* stream = nullptr;
    expect_refused(starling_stream_wait(nullptr, stream), "request is a null pointer");
    expect_refused(starling_stream_create(nullptr, 0, &stream), "context is a null pointer");
    expect_refused(starling_stream_create(rank.context, 0, nullptr), "stream is a null pointer");
    EXPECT_EQ(starling_stream_create(rank.context, 0, &stream), STARLING_UNSUPPORTED);
    EXPECT_NE(std::string(starling_last_error()).find("cuda:N"), std::string::npos) << starling_last_error();
    EXPECT_EQ(starling_context_blocks(nullptr), 0u);
    EXPECT_NE(starling_status_name(starling_status(1000)), nullptr);
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
    refused("count 18446744073709551615 is more", [](auto& o) { o.count = size_t(-1); });
    refused("does not exist", [](auto& o) { o.kind = starling_collective(-1); });
    refused("does not exist", [](auto& o) { o.data_type = starling_data_type(-1); });
    refused("does not exist", [](auto& o) { o.reduce_op = starling_reduce_op(-1); });
    refused("a timeout of -5 ns", [](auto& o) { o.timeout_ns = -5; });
    const size_t negative[] = {size_t(-1)};
    refused("output count 18446744073709551615 is more", [&](auto& o) {
      o.kind = STARLING_ALL_GATHER;
      o.output_counts = negative;
    });
    refused("input offset 18446744073709551615 is more", [&](auto& o) {
      o.kind = STARLING_REDUCE_SCATTER;
      o.input_offsets = negative;
    });
    refused("both input_counts and output_counts", [&](auto& o) {
      o.kind = STARLING_ALL_TO_ALL;
      o.input_counts = &o.count;
    });
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
    for (const starling_collective kind :
         {STARLING_ALL_REDUCE, STARLING_ALL_GATHER, STARLING_REDUCE_SCATTER, STARLING_ALL_TO_ALL})
      refused("overlap", [&](auto& o) {
        o.kind = kind;
        o.count = 3;
        o.output = buffer + 1;
      });
    const size_t two = 2;
    const size_t behind_a_gap = 1;
    refused("overlap", [&](auto& o) {
      o.kind = STARLING_ALL_TO_ALL;
      o.count = 0;
      o.input_counts = o.output_counts = &two;
      o.input_offsets = &behind_a_gap;
      o.output = buffer + 2;
    });
    expect_refused(starling_wait(nullptr, 0), "null pointer");
    expect_refused(starling_test(nullptr), "null pointer");
    EXPECT_EQ(starling_request_source(nullptr), -1);
    starling_request_free(nullptr);
    ASSERT_EQ(starling_submit(rank.comm, &op, &request), STARLING_SUCCESS);
    expect_done(request);
  });
}

// What is refused leaves nothing behind that an abort would trip over.
TEST(Misuse, OfDeviceSets) {
  RankOptions two;
  two.size = 2;
  run_ranks(two, [](Rank& rank) {
    const starling_operation shape = operation(STARLING_BARRIER);
    const uint32_t descending[] = {1, 0};
    const uint32_t beyond[] = {rank.rank, 7};
    expect_refused(starling_register(rank.comm, 1, descending, 2, &shape), "not ascending");
    expect_refused(starling_register(rank.comm, 1, beyond, 2, &shape), "rank 7");
    EXPECT_EQ(starling_comm_abort(rank.comm, "the test says so"), STARLING_SUCCESS) << starling_last_error();
  });
}

// The first of two groups that shared lanes took them from the other.
TEST(Misuse, OfOneNameForTwoGroups) {
  MemoryStore memory;
  const starling_store store = memory.functions();
  RankOptions two;
  two.size = 2;
  run_ranks(two, [&](Rank& rank) {
    starling_comm_options options{};
    options.struct_bytes = sizeof options;
    options.rank = rank.rank;
    options.size = rank.size;
    options.name = "world";
    options.store = &store;
    starling_comm* comm = nullptr;
    expect_refused(starling_comm_create(rank.context, &options, &comm), "'world' of the same ranks already");
    EXPECT_EQ(comm, nullptr);
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
    expect_refused(starling_register(rank.comm, 1, devices, UINT32_MAX, &shape), "4294967295 ranks");
    starling_operation foreign = shape;
    foreign.struct_bytes = 8;
    expect_refused(starling_register(rank.comm, 1, devices, 1, &foreign), "struct_bytes");
    expect_refused(starling_run(rank.comm, 1, nullptr, nullptr, nullptr, nullptr), "starling_register first");
    expect_refused(starling_run(nullptr, 1, nullptr, nullptr, nullptr, nullptr), "null pointer");
    ASSERT_EQ(starling_register(rank.comm, 1, devices, 1, &shape), STARLING_SUCCESS) << starling_last_error();
    expect_refused(starling_register(rank.comm, 1, devices, 1, &shape), "already");
  });
}

}  // namespace
}  // namespace starling::testing
