// The stages behind verify(); each adds what it finds and may rely on the stages before it (plan/verify.h).
#pragma once
#include <optional>
#include <vector>

#include "plan/network.h"
#include "plan/verify.h"

namespace starling::stages {

// Parts that do not belong together; then instruction by instruction.
void check_headers(std::span<const PlanView> ranks, std::vector<Violation>& violations);
void check_instructions(std::span<const PlanView> ranks, std::vector<Violation>& violations);
// Both ends of every connection exist and agree on number and order of messages.
void check_links(const Network& network, std::vector<Violation>& violations);
// Protocol pull: likewise on which messages are put, and those are few. Of links that agree on their number.
void check_puts(const Network& network, std::vector<Violation>& violations);
// Operands of one instruction, and both ends of one message, are equally long whatever the count.
void check_lengths(const Network& network, Parts parts, std::vector<Violation>& violations);
// What is read lies there in full: scratch holds chunks of any length. Of a plan that finishes, free of
// races.
void check_held_lengths(const Network& network, Parts parts, std::vector<Violation>& violations);
// The least number of slots with which the plan finishes; 0 if none does, and then there are violations.
std::uint32_t find_minimum_slots(const Network& network, std::vector<Violation>& violations);
void check_races(const Network& network, Parts parts, std::vector<Violation>& violations);
// Protocol pull: a slice that a message names is not written before its reader is through, and one that a
// message is put into is not touched from when its sender may write until it was received.
void check_pulls(const Network& network, Parts parts, std::vector<Violation>& violations);
// A postcondition that can be meant: chunks that are there, each named once.
void check_postcondition(const Geometry& geometry, const Postcondition& postcondition,
                         std::vector<Violation>& violations);
// postcondition: NULL for all but custom collectives that have one.
void check_result(const Network& network, const Postcondition* postcondition,
                  std::vector<Violation>& violations);

// Length of chunk k of the instruction's slice; none: scratch that is used at its full size, never empty.
std::optional<LengthClass> length_of(const Network& network, Parts parts, std::uint32_t rank,
                                     const Instruction& i, std::uint32_t k);
// Whether the instruction has something to do whenever a chunk of such a length has. A nop always waits.
bool carries(const Network& network, Parts parts, std::uint32_t rank, const Instruction& i,
             const std::optional<LengthClass>& length);

// Where a rank's chunks lie in memory, in chunks: input and output of an in-place plan overlap.
class Storage {
 public:
  Storage(const Geometry& geometry, std::uint32_t rank, std::uint32_t scratch_chunks);
  std::uint64_t at(BufferKind buffer, std::uint64_t chunk) const;
  std::uint64_t size() const { return size_; }

 private:
  std::uint64_t input_first_ = 0;
  std::uint64_t output_first_ = 0;
  std::uint64_t scratch_first_ = 0;
  std::uint64_t size_ = 0;
};

std::string operand_name(BufferKind buffer, std::uint64_t chunk, std::uint64_t chunks);
Violation violation_at(const char* rule, const NetworkBlock& block, std::uint32_t instruction,
                       std::string text);

}  // namespace starling::stages
