#include "machine/sim/crossing_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "machine/sim/options.h"
#include "plan/builder.h"

namespace starling::sim {
namespace {

constexpr uint16_t kMostSlots = 4;  // private ones that a connection of the simulator's lanes may need

// A rank's instructions in the order in which one block would run them.
struct PlanPart {
  std::vector<starling::Step> steps;
  std::vector<uint32_t> blocks;  // of each
  std::vector<uint32_t> places;  // of each inside its block
  uint32_t scratch = 0;          // chunks
};

starling::Step decode(const PlanView& plan, const Instruction& i) {
  const BlockPlan& block = plan.blocks()[0];
  const Connection* receives = plan.connections() + block.receive_first;
  const Connection* sends = plan.connections() + block.send_first;
  starling::Step step{.opcode = i.opcode,
                      .source = {i.source_buffer, i.source_chunk},
                      .destination = {i.destination_buffer, i.destination_chunk},
                      .local_position = i.local_position,
                      .chunks = i.chunks,
                      .size = {i.size_buffer, i.size_chunk},
                      .final = (i.flags & kFinal) != 0,
                      .put = (i.flags & kPut) != 0};
  for (uint32_t k = 0; k < i.receive_count; ++k) step.receives.push_back(receives[i.receive_first + k]);
  for (uint32_t k = 0; k < i.send_count; ++k) step.sends.push_back(sends[i.send_first + k]);
  return step;
}

class Crossing {
 public:
  Crossing(const Plan& plan, uint32_t blocks, Random& random)
      : plan_(plan), blocks_(blocks), random_(random) {}

  // Nothing: the verifier refuses it.
  std::optional<Plan> draw() {
    for (uint32_t rank = 0; rank < plan_.rank_count(); ++rank) parts_.push_back(take_apart(rank));
    for (PlanPart& part : parts_) give_out(part);
    connect();
    for (PlanPart& part : parts_) order(part);
    std::optional<Plan> whole = build();
    if (!whole || whole->header(0)->minimum_slots > kMostSlots) return {};
    if (!random_.chance(kAlways / 4)) return whole;
    for (PlanPart& part : parts_)
      for (starling::Step& step : part.steps)
        std::erase_if(step.after, [&](const Dependency&) { return random_.chance(kAlways / 8); });
    std::optional<Plan> thinned = build();
    return thinned ? std::move(thinned) : std::move(whole);
  }

 private:
  PlanPart take_apart(uint32_t rank) {
    const PlanView view = plan_.view(rank);
    PlanPart part;
    part.scratch = view.header->scratch_chunks;
    for (uint32_t n = 0; n < view.blocks()[0].instruction_count; ++n)
      take_apart(part, decode(view, view.instructions()[view.blocks()[0].instruction_first + n]));
    return part;
  }

  // Through a local slice, which another block may go on from.
  void take_apart(PlanPart& part, starling::Step step) {
    const bool through_scratch = step.opcode == Opcode::copy || step.opcode == Opcode::send;
    if (random_.chance(kAlways / 2) || (!through_scratch && step.sends.empty())) {
      part.steps.push_back(std::move(step));
      return;
    }
    starling::Step second = step;
    if (step.destination.buffer == BufferKind::kNone || through_scratch) {
      step.destination = scratch(part.scratch);
      part.scratch += step.chunks;
    }
    second.source = step.destination;
    second.receives.clear();
    second.local_position = 0;
    second.final = false;
    step.sends.clear();
    step.put = false;
    switch (step.opcode) {
      case Opcode::copy:
      case Opcode::send: step.opcode = Opcode::copy; break;
      case Opcode::recv_send:
      case Opcode::recv_copy_send: step.opcode = Opcode::recv; break;
      case Opcode::reduce_send: step.opcode = Opcode::reduce; break;
      default: step.opcode = Opcode::recv_reduce_copy; break;
    }
    if (second.opcode != Opcode::copy) {
      second.opcode = Opcode::send;
      second.destination = {};
    }
    part.steps.push_back(std::move(step));
    part.steps.push_back(std::move(second));
  }

  void give_out(PlanPart& part) {
    std::vector<uint32_t> lengths(blocks_, 0);
    uint32_t block = random_.below(blocks_);
    for (size_t k = 0; k < part.steps.size(); ++k) {
      if (random_.chance(kAlways / 2)) block = random_.below(blocks_);
      part.blocks.push_back(block);
      part.places.push_back(lengths[block]++);
    }
  }

  // Message k from one rank to another has the channel of the two blocks that it goes between: each
  // connection is one block's at either end, and its messages stay in their order.
  void connect() {
    struct Ends {
      std::vector<std::pair<Connection*, uint32_t>> senders, receivers;  // with their blocks
    };
    std::map<std::pair<uint32_t, uint32_t>, Ends> links;
    for (uint32_t rank = 0; rank < parts_.size(); ++rank)
      for (size_t k = 0; k < parts_[rank].steps.size(); ++k) {
        const uint32_t block = parts_[rank].blocks[k];
        for (Connection& c : parts_[rank].steps[k].sends)
          links[{rank, c.peer}].senders.push_back({&c, block});
        for (Connection& c : parts_[rank].steps[k].receives)
          links[{c.peer, rank}].receivers.push_back({&c, block});
      }
    for (auto& [ranks, ends] : links)
      for (size_t k = 0; k < ends.senders.size(); ++k) {
        const uint32_t channel = ends.senders[k].second * blocks_ + ends.receivers[k].second;
        ends.senders[k].first->channel = ends.receivers[k].first->channel = uint16_t(channel);
      }
  }

  static bool overlap(const Operand& a, uint32_t a_chunks, const Operand& b, uint32_t b_chunks) {
    return a.buffer == b.buffer && a.buffer != BufferKind::kNone && a.chunk < b.chunk + b_chunks &&
           b.chunk < a.chunk + a_chunks;
  }
  static bool conflict(const starling::Step& a, const starling::Step& b) {
    return overlap(a.destination, a.chunks, b.destination, b.chunks) ||
           overlap(a.destination, a.chunks, b.source, b.chunks) ||
           overlap(a.source, a.chunks, b.destination, b.chunks);
  }

  // Of what a step has to come after on another block, the last: that block goes in order.
  void order(PlanPart& part) {
    for (size_t k = 1; k < part.steps.size(); ++k) {
      std::vector<bool> found(blocks_, false);
      found[part.blocks[k]] = true;
      for (size_t before = k; before-- > 0;) {
        const uint32_t block = part.blocks[before];
        if (found[block]) continue;
        if (!conflict(part.steps[before], part.steps[k]) && !random_.chance(kAlways / 16)) continue;
        found[block] = true;
        part.steps[k].after.push_back({block, part.places[before]});
      }
    }
  }

  std::optional<Plan> build() const {
    PlanBuilder builder(plan_.name() + "+crossing", Geometry::of(*plan_.header(0)));
    builder.set_protocol(plan_.protocol());
    for (uint32_t rank = 0; rank < parts_.size(); ++rank) {
      const PlanPart& part = parts_[rank];
      builder.set_blocks(rank, blocks_);
      builder.set_scratch(rank, part.scratch);
      for (size_t k = 0; k < part.steps.size(); ++k) builder.add(rank, part.blocks[k], part.steps[k]);
    }
    try {
      return builder.build();
    } catch (const Error&) {
      return {};
    }
  }

  const Plan& plan_;
  uint32_t blocks_;
  Random& random_;
  std::vector<PlanPart> parts_;
};

}  // namespace

std::shared_ptr<const Plan> crossing_plan(std::shared_ptr<const Plan> plan, uint32_t blocks, Random& random) {
  for (uint32_t attempt = 0; attempt < 3; ++attempt)
    if (std::optional<Plan> drawn = Crossing(*plan, blocks, random).draw())
      return std::make_shared<const Plan>(std::move(*drawn));
  return plan;
}

}  // namespace starling::sim
