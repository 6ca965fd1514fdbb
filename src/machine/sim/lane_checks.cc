// What a lane must look like at a simulation's end, and what its addresses are in words.
#include <algorithm>

#include "machine/sim/lane.h"

namespace starling::sim {

std::string SimLane::leaks(const std::vector<SimLane*>& peers) const {
  for (uint32_t peer = 0; peer < peers.size(); ++peer)
    for (uint32_t channel = 0; channel < channels_; ++channel) {
      const uint32_t e = peer * channels_ + channel;
      const ReceiveEnd& end = receives_[e];
      if (end.private_slots == nullptr) continue;
      const auto who = [&] {
        return "connector " + std::to_string(peer) + " -> " + std::to_string(rank_) + ": ";
      };
      const SendEnd& other = peers[peer]->sends_[rank_ * channels_ + channel];
      // Who dies may have counted in its fast memory what it sent.
      const bool dies = options_->dying_rank >= 0 && spec_->ranks[peer] == uint32_t(options_->dying_rank);
      const uint64_t sent = dies ? end.received : other.sent;
      if (sent != end.received)
        return who() + std::to_string(sent - options_->first_message) + " messages were sent, " +
               std::to_string(end.received - options_->first_message) + " received";
      if (other.packets_sent != end.packets_received && !dies)
        return who() + std::to_string(other.packets_sent - options_->first_message) +
               " packet messages were sent, " +
               std::to_string(end.packets_received - options_->first_message) + " received";
      if (end.lent != end.landed || (other.put != end.landed && !dies))
        return who() + std::to_string(other.put) + " messages were put, " + std::to_string(end.landed) +
               " of " + std::to_string(end.lent) + " that were lent a place seen";
      if (end.granted - end.received != slots_of(peer))
        return who() + std::to_string(end.granted - end.received) +
               " credits are left, not the private slots'";
      uint32_t seen = 0;
      for (uint64_t g = end.received; g < end.granted; ++g)
        seen |= 1u << std::min(end.grants[g % kMaxCredits], 31u);
      if (seen != (1u << slots_of(peer)) - 1) return who() + "a private slot did not come home";
    }
  for (uint32_t b = 0; b < options_->blocks; ++b)
    if (core_->blocks[b].pending != 0) return "a block still has an operation pending";
  return "";
}

std::string SimLane::describe(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  auto within = [&](const auto* array, uint64_t count) {
    return p >= reinterpret_cast<const std::byte*>(array) &&
           p < reinterpret_cast<const std::byte*>(array + count);
  };
  const uint64_t ends = spec_->ranks.size() * channels_;
  auto peer_of = [&](const auto* array) {
    const uint64_t index = uint64_t(p - reinterpret_cast<const std::byte*>(array)) / sizeof(*array);
    return std::to_string(index / channels_) + " (channel " + std::to_string(index % channels_) + ")";
  };
  const std::string lane = "lane " + std::to_string(core_->id) + " of its rank " + std::to_string(rank_);
  if (const std::string text = spec_->copies ? copies_.describe(address) : ""; !text.empty())
    return text + ", " + lane;
  if (within(sends_, ends)) return "send end to " + peer_of(sends_) + ", " + lane;
  if (within(receives_, ends)) return "receive end from " + peer_of(receives_) + ", " + lane;
  if (within(introductions_, ends)) return "introduction to " + peer_of(introductions_) + ", " + lane;
  if (within(inboxes_, ends)) return "posted, from " + peer_of(inboxes_) + ", " + lane;
  if (within(credits_, ends)) return "granted, by " + peer_of(credits_) + ", " + lane;
  if (within(fault_, 1)) return "fault, " + lane;
  if (within(opened_, 1)) return "opened, " + lane;
  if (registrations_.describes(address)) return "a peer's registered buffers, " + lane;
  if (within(out_, spec_->ranks.size())) return "a peer's withdrawal, " + lane;
  if (const std::string text = departures_.describe(address, core_->slot_bytes); !text.empty())
    return text + ", " + lane;
  if (within(core_->finished, kLaneDepth)) return "finished, " + lane;
  if (handover_ != nullptr && !spec_->copies) {
    if (within(handover_->turns, handover_->width)) return "a block's turn, " + lane;
    if (within(handover_->ready, 1)) return "a stream's mark, " + lane;
    if (within(handover_->done, kLaneDepth)) return "done, " + lane;
    if (within(handover_->gates, kLaneDepth)) return "gates, " + lane;
    if (spec_->captured && within(handover_->begun, 1)) return "captured operations begun, " + lane;
    if (within(captured_, captured_ ? spec_->calls.size() : 0))
      return "a captured operation's number, " + lane;
  }
  if (within(operations_, kLaneDepth) || within(core_, 1)) return "lane's operations, " + lane;
  if (within(core_->blocks, options_->blocks)) return "a block's part of " + lane;
  const uint64_t ring_words = uint64_t(core_->packet_bytes) / sizeof(uint32_t) * kPacketSlots;
  for (uint64_t e = 0; e < ends; ++e)
    if (receives_[e].packets && within(receives_[e].packets, ring_words))
      return "packets of the connector from " + std::to_string(e / channels_) + ", " + lane;
  for (uint64_t e = 0; e < ends; ++e)
    if (receives_[e].private_slots &&
        within(receives_[e].private_slots, uint64_t(slots_of(uint32_t(e / channels_))) * core_->slot_bytes))
      return "slot of the connector from " + std::to_string(e / channels_) + ", " + lane;
  for (const Buffers& b : buffers_) {
    for (uint64_t k = 0; k < spec_->calls.size(); ++k) {
      if (b.input && within(b.input, oracle(k).input_bytes(rank_))) return "input, " + lane;
      if (b.output && within(b.output, oracle(k).output_bytes(rank_))) return "output, " + lane;
    }
    if (b.scratch && within(b.scratch, scratch_bytes())) return "scratch, " + lane;
  }
  return "";
}

}  // namespace starling::sim
