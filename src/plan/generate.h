// The built-in algorithms. Each is one function in a file of its own that fills a PlanBuilder for any number
// of ranks and blocks; generate() finds it by name.
//
// Every built-in plan needs at most two slots per connection, and gives bitwise identical results on all
// ranks. All but the all-to-alls in steps, which pass parts of others on, are canonical (block b uses channel
// b alone, nothing is shared between blocks) and take parts of unequal lengths.
//
// Algorithms that know nodes take their number behind a colon, "hierarchical:4"; without it that of the
// request, else the smallest number above 1 that divides the ranks. Ranks follow each other node by node, in
// the order of the request; the all-to-alls in steps and AllToNext as they are numbered.
//
// Of Collective::kCustom there are those of AllToNext, "all_to_next" and "all_to_next_direct": each carries
// the postcondition that it is proved by.
//
// Behind an @ stands the most bytes of a tile, "ring@16384", "rails:2@65536": a multiple of 16
// (PlanHeader::tile_bytes).
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "plan/plan.h"

namespace starling {

// Throws Error(invalid_argument) for an unknown algorithm, or one that does not take the request; the text
// names those that do.
Plan generate(std::string_view algorithm, const PlanRequest& request);

// Names that generate() knows for a collective, the most general one first: it takes every rank count that
// plans have.
std::span<const std::string_view> algorithms_for(Collective collective);

// The algorithm that does the same without touching peers' buffers; the name itself if it touches none. A
// tile's size goes with the reading, for which it was chosen.
std::string_view without_pull(std::string_view algorithm);

// Whether it writes to peers' buffers: between processes on CPUs, which copy out of each other's, it does not
// go.
bool takes_addresses(std::string_view algorithm);

// Whether ranks speak with the next and the one before alone, in the order of the request: rings and chains.
bool is_of_neighbours(std::string_view algorithm);

// Whether there is one of this name, nodes and tiles aside; of Collective::kCustom all have one group in
// either buffer.
bool is_algorithm(std::string_view name, Collective collective);

// Whether the algorithm exists for the collective and takes so many ranks (fan-in is bounded by kMaxFan,
// nodes are equally large), and its name is right.
bool algorithm_takes(std::string_view algorithm, Collective collective, std::uint32_t rank_count);

}  // namespace starling
