// What a rank with streams must have left behind at its end, and what it says of itself in reports.
#include "machine/sim/stream_rank.h"

namespace starling::sim {

std::string StreamRank::describe(const void* address) const {
  if (address == &alone_->stay) return "word that lets start kernels stay, " + name();
  if (address == &alone_->leaving) return "word by which a start kernel leaves, " + name();
  const std::string text = lanes_.describe(address);
  return text.empty() ? describe_core(address) : text + ", " + name();
}

std::string StreamRank::leftovers() {
  if (!driver_->quiet()) return name() + ": the host believes that operations are under way";
  if (has_proxy() && !proxy_.idle()) return name() + ": the proxy believes that operations are under way";
  std::string text = core_leftovers(lanes_.whole());
  if (text.empty()) text = lanes_.leftovers();
  if (!text.empty()) return name() + ": " + text;
  for (SimLane* lane : lanes_.mine()) {
    if (lane->submitted() == 0) continue;
    if (lane->core().handover == nullptr) continue;  // no stream came
    const Handover& handover = lane->handover();
    for (uint32_t b = 0; b < handover.width; ++b)
      if (handover.turns[b].next != o_->first_sequence + lane->placed() || handover.turns[b].marked)
        return name() + ": lane " + std::to_string(lane->number()) + ": a turn was not handed on to the end";
    const uint64_t issued = (o_->first_sequence + lane->placed()) * kIssued;
    const bool closed = lane->broken && handover.turns[0].issued >= kClosed;
    if (lane->spec().captured && handover.turns[0].issued != issued + (closed ? kClosed : 0))
      return name() + ": lane " + std::to_string(lane->number()) + ": blocks came to too few operations";
  }
  return "";
}

// Of a lane of captured operations: how far it is, and who finds no place in its rings.
std::string StreamRank::place_text(SimLane& lane) const {
  const Handover& handover = lane.handover();
  const uint64_t first = o_->first_sequence;
  std::string text = "; lane " + std::to_string(lane.number()) + ": " +
                     std::to_string(*handover.begun - first) + " captured operations begun, " +
                     std::to_string(lane.completed()) + " complete";
  const uint64_t waiting = handover.turns[0].waiting;
  if (waiting / kIssued == *handover.begun + 1 && waiting % kIssued < kPlaceIsFree)
    text += ", " + std::to_string(waiting % kIssued) + " blocks found no place for the next";
  return handover.turns[0].issued >= kClosed ? text + ", closed" : text;
}

std::string StreamRank::state() const {
  std::string text = progress_text() + ", " + (driver_->resident() ? "daemon resident" : "no daemon") + ", " +
                     std::to_string(by_path_[0]) + " started as kernels, " + std::to_string(by_path_[1]) +
                     " through the queue, " + std::to_string(by_path_[2]) + " by marks" + gpu_.state();
  if (has_proxy()) text += proxy_.state();
  if (locked_) text += "; the host's lock is taken";
  for (SimLane* lane : lanes_.mine()) {
    if (*lane->fault() != 0) text += "; lane " + std::to_string(lane->number()) + " is broken";
    if (lane->spec().captured && lane->core().handover != nullptr) text += place_text(*lane);
  }
  for (uint32_t b = 0; b < daemon_->block_count; ++b) {
    const BlockMemory& block = daemon_->blocks[b];
    text += "; block " + std::to_string(b) + " has tasks";
    for (uint32_t t = 0; t < block.task_count; ++t) {
      const Lane& lane = *daemon_->segments[0][block.tasks[t].lane];
      text += " " + std::to_string(lane.id) + "(next " + std::to_string(lane.blocks[b].next) + ", turn " +
              std::to_string(lane.handover && b < lane.handover->width ? lane.handover->turns[b].next : 0) +
              ")";
    }
  }
  return text;
}

}  // namespace starling::sim
