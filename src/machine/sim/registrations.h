// Registered buffers of one rank in one lane (wire/registration.h), as between processes on GPUs: peers'
// hosts open them a while after they were published, and until then no block knows where they are.
#pragma once
#include <cstdint>
#include <vector>

#include "machine/sim/machine.h"
#include "wire/registration.h"

namespace starling::sim {

class LaneRegistrations {
 public:
  // numbers: as many as the rank publishes at most. Where Options::opens is 0, nobody needs any.
  void build(World& world, const Options& options, uint32_t size, uint32_t rank, uint32_t numbers);

  // Null: addresses of that peer hold here.
  OpenedTable* table(uint32_t peer) const { return tables_.empty() ? nullptr : tables_[peer]; }
  // By the owner's host, which then may name `count` numbers more: the first of them; 0: no need.
  uint16_t publish(uint32_t count);
  // By the reader's host, again and again.
  void open(SimMachine& host, uint32_t peer, const LaneRegistrations& theirs);

  bool describes(const void* address) const;

 private:
  World* world_ = nullptr;
  const Options* options_ = nullptr;
  uint64_t* published_ = nullptr;  // numbers up to this one; writer: the owner's host
  uint64_t count_ = 0;             // the same, as the owner knows it
  uint32_t numbers_ = 0;
  std::vector<OpenedTable*> tables_;  // by peer; empty: none
  std::vector<uint64_t> told_;        // by peer: numbers up to this one
  std::vector<uint64_t> open_after_;  // by peer: when what was published is open; 0: nothing was seen
};

}  // namespace starling::sim
