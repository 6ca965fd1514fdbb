/* Plans by name and by text: what the built-in algorithms do, and whether a plan of your own is right.
 *
 * The text form is described in docs/WIRE.md. Statuses and starling_last_error() are those of starling.h;
 * every function may be called from any thread. */
#ifndef STARLING_PLAN_H_
#define STARLING_PLAN_H_

#include <stdint.h>
#include <starling/starling.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collectives go by name here: "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
 * "all_to_all", "gather", "scatter", "send_recv", "barrier"; "custom" are all others (STARLING_CUSTOM), whose
 * algorithms are the library's own of that kind:
 *
 *   all_to_next          every rank's input becomes the next rank's output; rank 0's output stays as it is.
 * What crosses from node to node goes in a part for each rank of the node (GC3 section 7.4)
 *   all_to_next_direct   the same by one message from rank to rank; also _packets and _pull
 *
 * They run without starling_comm_add_plan: kind = STARLING_CUSTOM, algorithm = "all_to_next", count of a
 * rank's whole buffer, in place or not. A plan that was added under such a name goes before them. */

/* Algorithms that know nodes ("hierarchical" of all_reduce, "rails" of all_reduce, all_gather and
 * reduce_scatter, "leaders" of all_reduce, broadcast, reduce and barrier, "two_step" and "three_step" of
 * all_to_all, "all_to_next") take their number behind a colon, here and in starling_operation.algorithm:
 * "hierarchical:4". Ranks follow each other node by node. Without it: a communicator's hosts, if it has
 * several of equally many ranks, and else the smallest number above 1 that divides the ranks. Behind an @,
 * last, any may have the most bytes of a chunk that go at once, a multiple of 16: "ring@16384". */

/* The text of a built-in plan, for ranks = 1 to 4096 and blocks = 1 to 64. root counts for rooted
 * collectives. On success *text is the caller's, to be freed by starling_plan_free; else it is NULL. */
STARLING_API starling_status starling_plan_generate(const char* collective, const char* algorithm,
                                                    uint32_t ranks, uint32_t root, uint32_t blocks,
                                                    int in_place, char** text);

/* Messages under way on a connection that every lane has room for. A plan that needs more finishes in no
 * communicator: starling_comm_add_plan and tables of choices refuse it. */
#define STARLING_LANE_SLOTS 2

/* Judges a plan's text: structure, deadlock, races, result (of collective "custom" what its `holds` lines
 * say; text of version 1 has none). STARLING_SUCCESS, or STARLING_INVALID_ARGUMENT with the first violation
 * in starling_last_error(). On success *minimum_slots (if not NULL) is the least number of slots per
 * connection with which the plan finishes; it may be more than STARLING_LANE_SLOTS. *equal_parts_only (if not
 * NULL) is 1 if it is right for parts of one length alone, and so not for operations with counts for each
 * rank. */
STARLING_API starling_status starling_plan_verify(const char* text, uint32_t* minimum_slots,
                                                  int* equal_parts_only);

/* Names of the algorithms of a collective, separated by spaces, the most general one first; freed like the
 * above. */
STARLING_API starling_status starling_plan_algorithms(const char* collective, char** names);

STARLING_API void starling_plan_free(char* text);

/* Adds a plan to a communicator, from its text: judged like the above, and refused if it has more blocks than
 * the daemon, or needs more slots than STARLING_LANE_SLOTS. Every rank adds the same plans in the same order,
 * before it calls what they serve; nothing is exchanged (ranks that run different plans get
 * STARLING_MISMATCH). From then on an operation whose `algorithm` is the plan's name runs it: the plan's
 * collective, or STARLING_CUSTOM for a plan of collective "custom". An operation without `algorithm` runs the
 * plan that was added last among those whose sizes include its own: from smallest_bytes to largest_bytes of
 * the larger of a rank's buffers, all parts included; smallest_bytes > largest_bytes: by name only. Two plans
 * may have one name if one of them is in place, or their roots differ. Plans of rooted collectives are
 * written out of place, and must be right in place too: the root alone knows. */
STARLING_API starling_status starling_comm_add_plan(starling_comm* comm, const char* text,
                                                    uint64_t smallest_bytes, uint64_t largest_bytes);

/* Operations that are not told their algorithm, and for which no plan was added, follow a table of choices
 * that `starling tune` wrote, where it has something for them. Every rank uses the same table, before its
 * first operation; nothing is exchanged. *rows (if not NULL): what the table has for groups like this. 0:
 * nothing, a line in the log says so, and the library's own choice stays. The setting STARLING_TABLE does the
 * same for every communicator. STARLING_INVALID_ARGUMENT names the line of a table that is wrong. */
STARLING_API starling_status starling_comm_use_table(starling_comm* comm, const char* path, uint32_t* rows);

/* By which tables know the group: the kind of its devices, its ranks, how they share hosts and processes,
 * blocks and cores. Freed by starling_plan_free. */
STARLING_API starling_status starling_comm_topology(starling_comm* comm, char** name);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* STARLING_PLAN_H_ */
