/* Starling: collectives that yield. The C API.
 *
 * One process may hold several contexts (ranks as threads); each context owns one daemon. A communicator is a
 * group of contexts; operations are submitted to lanes of a communicator. Operations of one lane match
 * across ranks by their order in the lane; operations of different lanes may be submitted in any order on
 * each rank (ARCHITECTURE.md, Words).
 *
 * Threads. Every function may be called from any thread. The order of submissions that matters is the order
 * inside one lane; threads that share a lane must agree on it themselves.
 * Errors. Functions return a status; starling_last_error() gives the calling thread's message: what failed,
 * where, and the remedy. Errors that come later are reported by the request.
 * Ownership. Strings and structs passed in are copied. Buffers of an operation belong to the library from
 * submission to completion. */
#ifndef STARLING_STARLING_H_
#define STARLING_STARLING_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define STARLING_API __attribute__((visibility("default")))
#else
#define STARLING_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum starling_status {
  STARLING_SUCCESS = 0,
  STARLING_INVALID_ARGUMENT = 1, /* misuse by the caller */
  STARLING_MISMATCH = 2,         /* ranks called different operations in one place of a lane */
  STARLING_TIMEOUT = 3,          /* not finished within the timeout; the message says who waits for what */
  STARLING_PEER_FAILED = 4,      /* a rank died or left */
  STARLING_ABORTED = 5,          /* starling_comm_abort */
  STARLING_UNSUPPORTED = 6,
  STARLING_INTERNAL = 7,
  STARLING_SYSTEM = 8,           /* the operating system refused: no memory, no space in /dev/shm, ... */
  STARLING_EXHAUSTED = 9,
  STARLING_IN_PROGRESS = 10      /* starling_test: not finished yet; no error */
} starling_status;

typedef enum starling_data_type {
  STARLING_INT8 = 0,
  STARLING_UINT8 = 1,
  STARLING_INT16 = 2,
  STARLING_UINT16 = 3,
  STARLING_INT32 = 4,
  STARLING_UINT32 = 5,
  STARLING_INT64 = 6,
  STARLING_UINT64 = 7,
  STARLING_FLOAT16 = 8,
  STARLING_BFLOAT16 = 9,
  STARLING_FLOAT32 = 10,
  STARLING_FLOAT64 = 11,
  STARLING_BOOL = 12
} starling_data_type;

typedef enum starling_reduce_op {
  STARLING_SUM = 0,
  STARLING_PROD = 1,
  STARLING_MIN = 2,
  STARLING_MAX = 3,
  STARLING_AVG = 4,
  STARLING_PREMUL_SUM = 5,
  STARLING_BAND = 6,
  STARLING_BOR = 7,
  STARLING_BXOR = 8
} starling_reduce_op;

typedef enum starling_collective {
  STARLING_ALL_REDUCE = 0,
  STARLING_ALL_GATHER = 1,
  STARLING_REDUCE_SCATTER = 2,
  STARLING_BROADCAST = 3,
  STARLING_REDUCE = 4,
  STARLING_ALL_TO_ALL = 5,
  STARLING_GATHER = 6,
  STARLING_SCATTER = 7,
  STARLING_SEND = 8,
  STARLING_RECV = 9,
  STARLING_BARRIER = 10,
  STARLING_CUSTOM = 11 /* a collective of your own, or "all_to_next": `algorithm` names its plan
                          (starling/plan.h) */
} starling_collective;

typedef struct starling_context starling_context;
typedef struct starling_comm starling_comm;
typedef struct starling_request starling_request;

/* Message of the last error on this thread; never NULL; valid until the thread's next call. */
STARLING_API const char* starling_last_error(void);
STARLING_API const char* starling_status_name(starling_status status);
STARLING_API const char* starling_version(void);

/* ---- context: one rank's memory, daemon and poller -------------------------------------------------- */

typedef enum starling_order { STARLING_ORDER_FIFO = 0, STARLING_ORDER_PRIORITY = 1 } starling_order;

/* How willing a rank is to wait (DFCCL 4.3). All ranks should use the same. Zero: the library's choice. */
typedef struct starling_scheduling {
  uint64_t initial_budget_ns;   /* of the front task */
  uint64_t minimum_budget_ns;   /* no task gets less; 1 means one poll */
  uint32_t success_factor;      /* a finished instruction multiplies the budget of the next; 1: fixed */
  uint32_t
      position_shift; /* task at position p starts with initial >> (p * shift); 0 is "library's choice" */
  uint64_t quit_period_ns; /* without progress for so long, the daemon leaves */
  uint64_t residency_limit_ns; /* it leaves after so long in any case; at least 100 us */
  starling_order order;
  int32_t fixed; /* 1: no stickiness at all: every budget is initial_budget_ns */
  int32_t unbounded; /* 1: budgets never end and the daemon never quits: yielding switched OFF, to
                        show what other libraries do; such a program can hang for ever */
  int32_t in_turn; /* 1: DFCCL's way: wait on each task in turn for its budget; 0: run those tasks that can
                      go on, with short budgets while there are several */
} starling_scheduling;

typedef struct starling_context_options {
  size_t struct_bytes; /* sizeof(starling_context_options) */
  uint32_t blocks; /* of the daemon; 0: STARLING_BLOCKS or the library's choice */
  uint64_t arena_bytes; /* address space of the shared segment (sparse); 0: the default */
  uint64_t pool_bytes; /* of the slot pool; 0: the default */
  starling_scheduling scheduling;
  const char* completion_queue; /* "ring", "packed_ring" or "slots" (DFCCL 5); NULL: the default */
  const char* device; /* where the daemon runs and the buffers lie: "cpu", or "cuda:0" ...; NULL: "cpu" */
} starling_context_options;

/* options may be NULL. */
STARLING_API starling_status starling_context_create(const starling_context_options* options,
                                                     starling_context** context);
/* Communicators of the context must be destroyed before. Waits for what is running, two seconds at most. Not
 * by a callback of the context itself. */
STARLING_API starling_status starling_context_destroy(starling_context* context);
/* Blocks of the daemon: a plan with more cannot run. 0: context is NULL, or was destroyed. */
STARLING_API uint32_t starling_context_blocks(const starling_context* context);
/* Device synchronization: returns when nothing that was resident at the call is resident any more, as
 * cudaDeviceSynchronize does. It does not wait for parked operations: the daemon quits under it and is
 * started again. */
STARLING_API starling_status starling_context_synchronize(starling_context* context);
/* Looks whether ranks that are other processes can open GPU memory of the kind that `buffer` is, which lies
 * on the context's GPU. If not (cudaMallocAsync, expandable segments), groups that the context joins from now
 * on send everything through slots, on all ranks: otherwise such buffers are copied before they are read,
 * which costs memory. Nothing on CPUs. */
STARLING_API starling_status starling_context_try_buffer(starling_context* context, const void* buffer);
/* Measures this machine and sets the scheduling parameters from it (DFCCL 4.3, automated profiling). */
STARLING_API starling_status starling_context_profile(starling_context* context, starling_scheduling* chosen);

typedef struct starling_statistics {
  size_t struct_bytes;
  uint64_t submissions, completions; /* operations */
  uint64_t launches, quits_idle, quits_stuck, quits_drained;
  uint64_t parks, resumes, context_saves, context_loads, instructions, queue_peak;
  uint64_t lanes, lane_bytes; /* memory of all lanes on this rank, slots included */
  uint64_t pool_slots, pool_slots_used;
} starling_statistics;
STARLING_API starling_status starling_context_statistics(starling_context* context,
                                                         starling_statistics* statistics);

typedef struct starling_trace_record {
  uint64_t time_ns; /* monotonic clock of the host */
  uint64_t sequence;
  uint64_t detail; /* park: instruction << 32 | rank waited for */
  uint32_t lane;
  uint32_t block;
  uint32_t event; /* 0 launch 1 quit 2 fetch 3 run 4 park 5 complete 6 publish 7 fault */
  uint32_t reserved;
} starling_trace_record;
/* Copies the newest records, oldest first, of all blocks; *count in: capacity, out: how many. */
STARLING_API starling_status starling_context_trace(starling_context* context, starling_trace_record* records,
                                                    size_t* count);
/* Name of a lane by its number in the trace, "" if unknown; copied into name. */
STARLING_API starling_status starling_context_lane_name(starling_context* context, uint32_t lane, char* name,
                                                        size_t name_bytes);

/* ---- communicator ----------------------------------------------------------------------------------- */

#define STARLING_STORE_LOST 2

/* The key-value store that ranks meet in: PyTorch's c10d Store, or any other. Functions return 0 on success,
 * may be called from any thread, and are used while a communicator is made only. `get` waits for the key up
 * to timeout_ns and copies at most *bytes, setting *bytes to the length; STARLING_STORE_LOST: the store is
 * gone, and nobody need wait any longer (any other number: the key is not there yet). `remove` takes a key
 * away, and `holds` says at once whether there is one (1 or 0; -1 or any other number: it cannot say). Both
 * may be NULL: then what a group has set stays, and its name cannot be used in this store again. */
typedef struct starling_store {
  void* user;
  int (*set)(void* user, const char* key, const void* value, size_t bytes);
  int (*get)(void* user, const char* key, void* value, size_t* bytes, int64_t timeout_ns);
  int (*remove)(void* user, const char* key);
  int (*holds)(void* user, const char* key);
} starling_store;

/* Do copy engines move sends and receives between GPUs, of one host or of two? They cost no multiprocessor,
 * and no kernel of ours runs. The least willing rank decides. What a graph captures is moved by kernels. */
typedef enum starling_sm_free {
  STARLING_SM_FREE_DEFAULT = 0, /* as STARLING_SM_FREE has it */
  STARLING_SM_FREE_NEVER = 1,
  STARLING_SM_FREE_BY_SIZE = 2, /* those for which it is faster */
  STARLING_SM_FREE_ALWAYS = 3
} starling_sm_free;

typedef struct starling_comm_options {
  size_t struct_bytes;
  uint32_t rank, size;
  const char* name; /* the same on all ranks; unique per group within the store, and among the living
                       communicators of these contexts: else STARLING_INVALID_ARGUMENT */
  const starling_store* store; /* NULL: a store in /dev/shm for the job that STARLING_JOB or the launcher's
                                  environment (torchrun, mpirun) names */
  int64_t timeout_ns; /* of every operation without its own, and of joining; 0: the default */
  int (*interrupted)(void* user); /* NULL, or asked by the joining thread some ten times a second while it
                                     waits: not 0 ends it with STARLING_ABORTED (Ctrl-C, say) */
  void* interrupted_user;
  const uint32_t*
      world_ranks; /* NULL, or `size` numbers, read during the call: what messages call the ranks */
  starling_sm_free sm_free;
} starling_comm_options;

/* Collective over the group; returns when all ranks have joined. STARLING_TIMEOUT names a rank that did not
 * come; STARLING_MISMATCH: ranks do not agree on the size, or two processes have one rank;
 * STARLING_PEER_FAILED: a rank died meanwhile. */
STARLING_API starling_status starling_comm_create(starling_context* context,
                                                  const starling_comm_options* options, starling_comm** comm);
/* By a rank that cannot come, because it could not make its context, say: ranks that join the group in this
 * store fail at once with STARLING_PEER_FAILED and the reason. Of the options rank, size, name and store are
 * read; the store must be the caller's. */
STARLING_API starling_status starling_comm_decline(const starling_comm_options* options, const char* reason);
/* Collective over the parent. Ranks with the same color form a group ordered by (key, rank); color < 0: no
 * part in any, *child is NULL. */
STARLING_API starling_status starling_comm_split(starling_comm* parent, int color, int key,
                                                 starling_comm** child);
/* The subgroup that `ranks` (of the parent, in the order of their new ranks) names; collective over these
 * ranks alone. Every one passes the same list and name. A name may be used again, also while the first group
 * lives: the n-th subgroup of one list and name is the n-th on all of its ranks. */
STARLING_API starling_status starling_comm_subgroup(starling_comm* parent, const uint32_t* ranks,
                                                    uint32_t count, const char* name, starling_comm** child);
STARLING_API uint32_t starling_comm_rank(const starling_comm* comm);
STARLING_API uint32_t starling_comm_size(const starling_comm* comm);
/* The same on all ranks, and another for groups of other contexts, also where they have one name. 0: comm is
 * NULL, or was destroyed. */
STARLING_API uint64_t starling_comm_id(const starling_comm* comm);
/* Fails every operation of the communicator, on every rank, with STARLING_ABORTED and this reason. */
STARLING_API starling_status starling_comm_abort(starling_comm* comm, const char* reason);
/* STARLING_SUCCESS, or the first failure of the communicator (message by starling_last_error). */
STARLING_API starling_status starling_comm_error(starling_comm* comm);
/* How the communicator's large messages go: the same on all ranks, from creation on. */
typedef struct starling_large_messages {
  size_t struct_bytes; /* sizeof(starling_large_messages) */
  int32_t reads; /* 1: ranks read them out of each other's buffers; 0: through slots of shared memory */
  uint64_t slots_ns, read_ns; /* of an all_gather of 512 KiB when ranks that are processes joined; 0: not
                                 timed, because of STARLING_PULL, of ranks that may not read each other or
                                 have no core each, or because they are threads */
} starling_large_messages;
STARLING_API starling_status starling_comm_large_messages(starling_comm* comm,
                                                          starling_large_messages* found);
/* What the ranks have agreed on; STARLING_SM_FREE_DEFAULT: comm is NULL, or was destroyed. */
STARLING_API starling_sm_free starling_comm_sm_free(const starling_comm* comm);
STARLING_API starling_status starling_comm_set_timeout(starling_comm* comm, int64_t timeout_ns);
/* Ends at once what has no partner (any-source receives, sends to oneself). Waits half a second at most for
 * other operations under way, then aborts the communicator, on every rank: wait for your requests before.
 * Requests stay valid. */
STARLING_API starling_status starling_comm_destroy(starling_comm* comm);

/* ---- operations ------------------------------------------------------------------------------------- */

/* Runs on the library's callback thread, in order of completion; may submit again; must not wait. That of an
 * operation that is perhaps waited for may run on the thread in starling_wait instead. */
typedef void (*starling_callback)(starling_status status, const char* message, void* user);

/* clang-format off */
/* count and the buffers, in elements, for N ranks:
 *   all_reduce      input count, output count          in place: input == output
 *   all_gather      input count, output N * count      in place: input == output + rank * count
 *   reduce_scatter  input N * count, output count      in place: output == input + rank * count
 *   broadcast       root's input count, output count   in place: input == output (input ignored elsewhere)
 *   reduce          input count, root's output count   in place: input == output
 *   all_to_all      input N * count, output N * count  in place: input == output (with counts: and equal tables)
 *   gather          input count, root's output N * count
 *                                            in place at the root: input == output + rank * count
 *   scatter         root's input N * count, output count
 *                                            in place at the root: output == input + rank * count
 *   send / recv     input count / output count; peer and tag name the other side; peer -1 in recv: any source
 *   barrier         none
 *   custom          count elements for each group of the plan, input and output   in place: input == output
 * v-variants (all_gather, reduce_scatter, all_to_all, gather, scatter): input_counts/input_offsets and
 * output_counts/output_offsets have one entry per rank for the buffer that holds a part of every rank; the other
 * buffer's count is `count`. all_gather and gather: output_*; reduce_scatter and scatter: input_*; all_to_all: both.
 * In place: on all ranks of a call or on none, but for broadcast, reduce, gather and scatter.
 * Offsets NULL: parts follow each other. For all_gather, reduce_scatter, gather and scatter all counts must be known
 * to every rank (pass the table on every rank). */
/* clang-format on */
/* When an operation begins, and what waits for it. A stream is a cudaStream_t of the context's GPU (NULL: the
 * legacy default stream); operations of one lane must come from one stream, or from streams that the caller
 * has ordered.
 * Of a stream that is being captured into a CUDA graph the operation is captured: it runs in each replay, on
 * the buffers of the capture, and never now. Its request ends at once. All ranks capture alike, and replay
 * alike. The communicator outlives the graph's replays; ones that come later find its lanes broken. */
typedef enum starling_start {
  STARLING_START_NOW = 0, /* at the call: what wrote its buffers has ended; the caller waits on the CPU */
  STARLING_START_ON_STREAM = 1, /* after the stream's earlier work; the stream goes on at once. Its later work
                                   is ordered after the operation by starling_stream_wait alone, and a device
                                   synchronization may return before the operation is complete */
  STARLING_START_HOLD_STREAM = 2 /* the same, and the stream's later work begins after the operation, as
                                    NCCL's API has it */
} starling_start;

/* Does the submitting thread call starling_wait next? What it waits for runs on that thread where that is
 * possible, which saves two thread switches. */
typedef enum starling_waited {
  STARLING_NOT_WAITED = 0,
  STARLING_WAITED = 1, /* yes, for this operation or for one that it submits right after it. Without the
                          wait they begin late, not never */
  STARLING_PERHAPS_WAITED = 2 /* it may: without a wait the operation begins 50 us later */
} starling_waited;

typedef struct starling_operation {
  size_t struct_bytes;
  starling_collective kind;
  const char* lane; /* NULL: the communicator's default lane; else the lane of this name */
  int32_t priority; /* larger first, under STARLING_ORDER_PRIORITY */
  const void* input;
  void* output;
  size_t count;
  starling_data_type data_type;
  starling_reduce_op reduce_op;
  double scalar; /* premul_sum */
  int32_t root;
  int32_t peer;
  uint64_t tag;
  const size_t* input_counts;
  const size_t* input_offsets;
  const size_t* output_counts;
  const size_t* output_offsets;
  int64_t timeout_ns; /* 0: the communicator's */
  int32_t waited; /* starling_waited */
  const char*
      algorithm; /* NULL: chosen by size; else "ring", "one_shot", ...: see starling_plan_algorithms */
  starling_callback callback; /* may be NULL */
  void* user;
  starling_start start;
  void* stream; /* unless STARLING_START_NOW */
} starling_operation;

/* Never waits for other ranks; on a stream it may wait for room in the stream's launch queue. *request may be
 * NULL if not wanted; else free it. */
STARLING_API starling_status starling_submit(starling_comm* comm, const starling_operation* operation,
                                             starling_request** request);
/* `count` operations that begin together: as starling_submit of each in turn, but none of them stands behind
 * another, though they are of one stream. A send and a receive that hold it (STARLING_START_HOLD_STREAM) may
 * be crossed, as in NCCL's groups; a stream's later work begins after all. Those of one stream and different
 * lanes, up to 8, are one kernel, which costs little more than one operation alone. `requests`: NULL, or room
 * for `count`. An error of one call: of a stream's operations none was submitted; of others none from that
 * one on, whose requests are NULL. */
STARLING_API starling_status starling_submit_together(starling_comm* comm,
                                                      const starling_operation* operations, size_t count,
                                                      starling_request** requests);
/* STARLING_SUCCESS, the operation's error, or STARLING_TIMEOUT if timeout_ns (>= 0) passed; the operation
 * goes on then. timeout_ns < 0: until it ends (operations have timeouts of their own). */
STARLING_API starling_status starling_wait(starling_request* request, int64_t timeout_ns);
STARLING_API starling_status starling_test(starling_request* request);
/* The work that is put into the stream from now on begins after the request's operation, which was submitted
 * on a stream (this one or another of the same GPU). Does not wait itself. STARLING_SUCCESS, or the
 * operation's error if it has failed; one that fails later lets the stream go on, and starling_test tells. Of
 * a captured operation: the stream is part of the capture, behind the one that the operation was submitted
 * on. */
STARLING_API starling_status starling_stream_wait(starling_request* request, void* stream);
/* *capturing: 1 if an operation that is submitted on the stream now would be captured into a graph, else 0.
 */
STARLING_API starling_status starling_stream_capturing(starling_context* context, void* stream,
                                                       int32_t* capturing);
/* A stream of the context's GPU that waits for no other. urgent: to start operations on, and for what they
 * need before them; its kernels come before those of ordinary streams. Nothing else is put behind an
 * operation there: while a stream stands for it (starling_stream_wait) it may keep its place, and what is
 * behind it waits. Else: for streams that stand. Lives as long as the context. STARLING_UNSUPPORTED where
 * there are no streams. */
STARLING_API starling_status starling_stream_create(starling_context* context, int32_t urgent, void** stream);
/* Rank that a receive got its message from (any-source receives), -1 while unknown. */
STARLING_API int32_t starling_request_source(const starling_request* request);
/* May be called before the end: the operation goes on. */
STARLING_API void starling_request_free(starling_request* request);

/* ---- registered collectives (DFCCL 3.2) --------------------------------------------------------------- */

/* Registers collective `id` over `devices` (ranks of comm, ascending) with the kind, count, data type,
 * reduction, root and priority of `shape`; never waits for other ranks; at any time, in any order. */
STARLING_API starling_status starling_register(starling_comm* comm, int64_t id, const uint32_t* devices,
                                               uint32_t device_count, const starling_operation* shape);
/* Runs it once; the callback is called on completion. */
STARLING_API starling_status starling_run(starling_comm* comm, int64_t id, const void* input, void* output,
                                          starling_callback callback, void* user);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* STARLING_STARLING_H_ */
