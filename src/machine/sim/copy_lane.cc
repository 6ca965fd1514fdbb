#include "machine/sim/copy_lane.h"

#include "machine/sim/copy_work.h"
#include "machine/sim/lane.h"

namespace starling::sim {

void CopyLane::build(World& world, const Options& options, const LaneSpec& spec) {
  Region& region = world.memory.region();
  size_ = uint32_t(spec.ranks.size());
  handover_ = region.make<Handover>();
  handover_->done = region.make<Done>(kCopyDepth);
  handover_->depth = kCopyDepth;
  marks_ = region.make<uint64_t>(kCopyDepth);
  for (uint32_t at = 0; at < kCopyDepth; ++at) marks_[at] = handover_->done[at].done = options.first_sequence;
  offers_ = region.make<CopyOffer>(size_t(kCopyDepth) * size_);
  board_ = region.make<uint64_t>(kBoard);
  notes_.assign(kBoard, {});
}

void CopyLane::note(uint64_t index, bool on_stream, bool differs) {
  if (index >= notes_.size()) notes_.resize(index + 1);
  notes_[index] = {on_stream, differs};
}

void CopyLane::post(SimMachine& host, uint64_t index, uint64_t sequence) {
  // Release, and the fence: this board before the look at the peers', as in post_signature().
  host.store_release(&board_[sequence % kBoard], (sequence + 1) << 1 | notes_[index].differs);
  host.fence();
}

bool CopyLane::matches(SimMachine& host, uint64_t sequence, const CopyLane& peer) const {
  const uint64_t theirs = host.load_acquire(&peer.board_[sequence % kBoard]);
  const uint64_t ours = host.load_relaxed(&board_[sequence % kBoard]);
  return theirs >> 1 != sequence + 1 || theirs == ours;
}

void CopyLane::share_words(Memory& memory) {
  for (uint32_t at = 0; at < kCopyDepth; ++at) memory.allow_many_writers(&handover_->done[at].done);
}

std::string CopyLane::describe(const void* address) const {
  const auto* p = static_cast<const std::byte*>(address);
  auto within = [&](const auto* array, uint64_t count) {
    return p >= reinterpret_cast<const std::byte*>(array) &&
           p < reinterpret_cast<const std::byte*>(array + count);
  };
  if (within(marks_, kCopyDepth)) return "a stream's mark";
  if (within(handover_->done, kCopyDepth)) return "done";
  if (within(board_, kBoard)) return "board";
  if (!within(offers_, uint64_t(kCopyDepth) * size_)) return "";
  const uint64_t sender =
      uint64_t(p - reinterpret_cast<const std::byte*>(offers_)) / sizeof(CopyOffer) % size_;
  return "offer to " + std::to_string(sender);
}

// ---- its operations -----------------------------------------------------------------------------------

namespace {

// Who sends to whom, as comm/transfers.cc has it.
struct Routes {
  const CallSpec& call;

  Collective kind() const { return call.plan->collective(); }
  bool is_message() const { return kind() == Collective::kSendRecv; }
  bool spreads() const { return kind() == Collective::kBroadcast || kind() == Collective::kScatter; }
  bool parts_input() const { return kind() == Collective::kAllToAll || kind() == Collective::kScatter; }
  bool parts_output() const { return !is_message() && !spreads(); }
  // Each rank passes on to the next one what it has got.
  bool is_chain() const { return kind() == Collective::kBroadcast && call.pieces > 0; }

  bool sends_to(uint32_t from, uint32_t to, uint32_t size) const {
    const uint32_t root = call.plan->root();
    if (kind() == Collective::kAllGather || kind() == Collective::kAllToAll) return true;
    if (is_message()) return from == 0 && to == 1;
    if (is_chain()) return from == to ? from == root : to != root && to == (from + 1) % size;
    return spreads() ? from == root : to == root;
  }
};

}  // namespace

CopyWork SimLane::place_copies(const std::vector<SimLane*>& peers) {
  const uint64_t index = placed_++;
  const uint64_t sequence = options_->first_sequence + index;
  const Buffers& b = buffers_[index % buffers_.size()];
  const Routes routes{spec_->call(index)};
  const uint64_t group = oracle(index).group_bytes();
  const uint32_t size = uint32_t(spec_->ranks.size());
  const bool on_stream = copies_.on_stream(index);
  CopyWork work{this,
                index,
                sequence,
                fault_,
                on_stream ? copies_.mark(sequence) : nullptr,
                on_stream ? &handover_->done[sequence % kCopyDepth].done : nullptr,
                {},
                {}};
  const auto from = [&](uint32_t peer) { return b.input + (routes.parts_input() ? peer * group : 0); };
  const auto to = [&](uint32_t peer) { return b.output + (routes.parts_output() ? peer * group : 0); };
  for (uint32_t step = 1; step < size; ++step) {
    const uint32_t sender = (rank_ + size - step) % size;
    if (routes.sends_to(sender, rank_, size))
      work.receives.push_back({copies_.offer(sequence, sender), nullptr, to(sender), group});
  }
  const bool passes_on = routes.is_chain() && !work.receives.empty();
  const uint32_t pieces = routes.is_chain() ? routes.call.pieces : 1;
  // Multiples of what races are seen in.
  const uint64_t piece = (group / pieces + 15) & ~uint64_t(15);
  for (uint32_t step = 1; step < size; ++step) {
    const uint32_t peer = (rank_ + step) % size;
    if (!routes.sends_to(rank_, peer, size)) continue;
    CopyOffer* const offer = peers[peer]->copies_.offer(sequence, rank_);
    const std::byte* const source = passes_on ? b.output : from(peer);
    const uint32_t count = pieces == 1 ? 1 : uint32_t((group + piece - 1) / piece);
    for (uint32_t k = 0; k < count; ++k)
      work.sends.push_back({offer, source + k * piece, nullptr,
                            count == 1 ? group : std::min(piece, group - k * piece), k * piece, k, count,
                            passes_on ? 0 : -1});
  }
  if (!routes.is_message() && routes.sends_to(rank_, rank_, size))
    work.sends.push_back({nullptr, from(rank_), to(rank_), group});
  return work;
}

}  // namespace starling::sim
