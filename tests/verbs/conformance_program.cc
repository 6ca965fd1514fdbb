// The conformance suite of links (link/conformance.h) over Soft-RoCE, in a guest that has two rails
// (init.sh).
//
//   conformance_program [NAME...]     one line for each case: CASE name passed, or CASE name failed: why
#include "link/socket_rig.h"
#include "link/verbs/rails.h"
#include "verbs/faults.h"

namespace starling::link::conformance {
namespace {

// Rank 0 has ports a0 and a1, rank 1 b0 and b1.
class VerbsRig final : public SocketRig {
 public:
  static constexpr uint32_t kMostBytes = 8192;

  explicit VerbsRig(const RigOptions& options) : SocketRig(patient(options), kMostBytes, lengths()) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::string names;
      for (uint32_t p = 0; p < options.paths; ++p)
        names += (p ? "," : "") + std::string(1, rank ? 'b' : 'a') + std::to_string(p);
      End& end = add_end(rank, tcp::usable_ports(names));
      const auto changed = [&end](uint32_t index, bool up) { end.port_changed(index, up); };
      std::string why;
      end.upgrades =
          verbs::open_rails(end.reactor, {{.timeout = guest::patient_timeout(14)}, kMostBytes}, changed, why);
      if (end.upgrades == nullptr) throw Failure{why};
      end.watch.emplace(end.reactor, changed);
    }
    const uint64_t before = guest::packets_sent(0);
    for (uint32_t rank = 0; rank < 2; ++rank) connect(rank, ends_[1 - rank]->ports);
    start();
    deliver(20);
    if (guest::packets_sent(0) < before + 20) throw Failure{"it does not go over RDMA"};
  }

  void fail(uint32_t path, Fault fault) override {
    switch (fault) {
      case kSilent: guest::lose(int(path), 'b', "100%"); [[fallthrough]];
      case kOneWay: return guest::lose(int(path), 'a', "100%");
      case kHalfOpen: guest::lose(int(path), 'b', "100%"); [[fallthrough]];
      case kPeerPort: return guest::port(int(path), 'b', false);
      case kOwnPort: return guest::port(int(path), 'a', false);
      case kCut: throw Failure{"queue pairs are not reset from outside"};
    }
  }
  void heal(uint32_t path) override { guest::heal(int(path)); }
  uint64_t bound_ns() const override { return guest::patiently(SocketRig::bound_ns()); }

 private:
  // An emulated processor that others use, too, must not be taken for a silent path.
  static tcp::TimerLengths lengths() {
    tcp::TimerLengths lengths;
    lengths.watchdog_ns = guest::patiently(300'000'000);
    lengths.probe_ns = guest::patiently(1'500'000'000);
    lengths.connect_ns = guest::patiently(5'000'000'000);
    lengths.answer_ns = guest::patiently(lengths.answer_ns);
    lengths.longest_reopen_ns = 200'000'000;
    return lengths;
  }
  // To connect takes longer, too.
  static RigOptions patient(RigOptions options) {
    options.give_up_ns = guest::patiently(std::max<uint64_t>(options.give_up_ns, 15'000'000'000));
    return options;
  }
};

const LinkKind kVerbs = {"verbs", kAllFaults & ~uint32_t(kCut), 8,
                         [](const RigOptions& options) { return std::make_unique<VerbsRig>(options); }};

bool run(const Case& entry) {
  const uint64_t begin = cpu::monotonic_ns();
  std::string why;
  try {
    entry.run(kVerbs);
  } catch (const Failure& failure) {
    why = failure.why;
  } catch (const guest::Failure& failure) {
    why = failure.why;
  } catch (const Error& error) {
    why = error.what();
  }
  for (const int rail : {0, 1}) guest::heal(rail);
  if (why.empty())
    std::printf("CASE %s passed (%.1f s)\n", entry.name, double(cpu::monotonic_ns() - begin) / 1e9);
  else
    std::printf("CASE %s failed: %s\n", entry.name, why.c_str());
  std::fflush(stdout);
  return why.empty();
}

}  // namespace
}  // namespace starling::link::conformance

int main(int argc, char** argv) {
  using namespace starling::link::conformance;
  bool good = true;
  for (const Case& entry : kCases) {
    const auto named = [&](const char* name) { return std::strcmp(name, entry.name) == 0; };
    if (argc == 1 ? applies(entry, kVerbs) : std::any_of(argv + 1, argv + argc, named)) good &= run(entry);
  }
  return good ? 0 : 1;
}
