// Goal: what a proxy does for messages that copy engines move (device/copy_host.h) orders all that it has to:
// inputs before copies, copies before what streams do behind them, and of a broken lane copies before their
// buffers are given back; in any interleaving, with stores and data that others see late. Method: the shipped
// header in the simulator. Two ranks send each other messages; streams fill, wait, look and overwrite; an
// engine copies; races and wrong bytes are failures. sanitize: no (sanitizers do not follow fibers)
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>

#include "device/copy_host.h"
#include "device/withdrawal.h"
#include "machine/sim/machine.h"

namespace starling::sim {
namespace {

constexpr uint64_t kBytes = 64;

class Copies {
 public:
  std::string run(uint64_t seed, bool breaks, uint32_t messages) {
    Options options;
    options.mean_slice = 1 + seed % 5;
    options.late_store_chance = kAlways / 2;
    options.late_store_ns = 500;
    options.late_data_chance = kAlways;
    options.progress_bound_ns = 1'000'000'000;
    w_.scheduler.reset(options, seed, &Memory::commit_due, &w_.memory);
    w_.memory.reset(w_.scheduler, options);
    w_.memory.describe = [](const void*) { return "a word"; };
    w_.shadow.reset(w_.scheduler, w_.memory, options);
    breaks_ = breaks;
    ranks_.clear();
    messages_.clear();
    bodies_.clear();
    for (uint32_t r = 0; r < 2; ++r) ranks_.push_back({word(), word(), word(), word(), {}});
    for (uint32_t k = 0; k < messages; ++k) messages_.push_back(make_message(k));
    for (uint32_t r = 0; r < 2; ++r) {
      add(r, [this, r] { proxy(r); });
      add(r, [this, r] { engine(r); });
      w_.memory.allow_many_writers(ranks_[r].fault);
    }
    for (uint32_t k = 0; k < messages; ++k) {
      add(k % 2, [this, k] { sending_stream(messages_[k], k); });
      add(1 - k % 2, [this, k] { receiving_stream(messages_[k], k); });
    }
    if (breaks) add(0, [this] { break_lanes(); });
    for (uint32_t b = 0; b < bodies_.size(); ++b)
      w_.memory.set_unit(w_.scheduler.add(bodies_[b].rank, &enter, &bodies_[b]), b);
    w_.memory.begin();
    w_.scheduler.run();
    if (!w_.scheduler.failure().empty()) return w_.scheduler.failure();
    for (uint32_t f = 0; f < w_.scheduler.fiber_count(); ++f)
      if (w_.scheduler.fiber(f).state != FiberState::kEnded) return "somebody waits for ever";
    return "";
  }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
  };
  struct RankState {
    uint64_t* fault;
    uint64_t* given;  // tickets; the driver's call orders what the proxy knew
    uint64_t* ended;
    uint64_t* out;  // that this rank has withdrawn
    std::deque<Copy> copies;
  };
  // Message k goes from rank k % 2 to the other one, as operation k of a lane of its own.
  struct Message {
    CopyOffer* offer;
    uint64_t *send_mark, *receive_mark, *send_done, *receive_done, *receive_ended;
    std::byte *input, *output;
  };
  struct Body {
    uint32_t rank;
    std::function<void()> run;
  };
  // What device::CopyHost asks of an engine.
  struct Engine {
    Copies& copies;
    RankState& rank;
    SimMachine& m;
    uint64_t given = 0;
    uint64_t copy(const device::CopySend& send) {
      rank.copies.push_back({reinterpret_cast<std::byte*>(m.load_relaxed(&send.offer->address)), send.from});
      m.store_release(rank.given, ++given);
      return given;
    }
    uint64_t last(device::CopyQueue) const { return given; }
    uint64_t completed(device::CopyQueue) { return m.load_acquire(rank.ended); }
  };

  static void enter(void* body) { static_cast<Body*>(body)->run(); }
  void add(uint32_t rank, std::function<void()> run) { bodies_.push_back({rank, std::move(run)}); }
  uint64_t* word() { return w_.memory.region().make<uint64_t>(); }
  Message make_message(uint32_t) {
    return {w_.memory.region().make<CopyOffer>(),
            word(),
            word(),
            word(),
            word(),
            word(),
            w_.shadow.buffers().allocate(kBytes),
            w_.shadow.slots().allocate(kBytes)};
  }

  void fill(SimMachine& m, std::byte* at, uint32_t value) {
    std::byte bytes[kBytes];
    std::memset(bytes, int(value), kBytes);
    m.write(at, bytes, kBytes);
  }
  bool broken(SimMachine& m, uint32_t rank) { return m.load_acquire(ranks_[rank].fault) != 0; }
  // False: the lane broke before.
  bool await(SimMachine& m, uint64_t* word, uint64_t value, uint32_t rank) {
    while (m.load_acquire(word) != value) {
      if (breaks_ && broken(m, rank)) return false;
      w_.scheduler.sleep();
    }
    return true;
  }

  void sending_stream(Message& message, uint32_t k) {
    SimMachine m(w_, nullptr, 0, 0);
    fill(m, message.input, k + 1);
    m.store_release(message.send_mark, k + 1);
    // Of a broken lane the input may be read until the rank's own copies have ended: it has the next word.
    if (await(m, message.send_done, k + 1, k % 2)) fill(m, message.input, 99);
  }

  void receiving_stream(Message& message, uint32_t k) {
    SimMachine m(w_, nullptr, 0, 0);
    fill(m, message.output, 88);
    m.store_release(message.receive_mark, k + 1);
    if (await(m, message.receive_done, k + 1, 1 - k % 2)) {
      m.load_few(message.output, 16);
      if (message.output[0] != std::byte(k + 1)) w_.scheduler.fail("wrong bytes");
      return;
    }
    // The owner has its buffer back when its proxy is through, and the sender has withdrawn.
    while (m.load_acquire(message.receive_ended) == 0) w_.scheduler.sleep();
    while (!device::has_withdrawn(m, ranks_[k % 2].out)) w_.scheduler.sleep();
    fill(m, message.output, 77);
  }

  void proxy(uint32_t rank) {
    SimMachine m(w_, nullptr, 0, 0);
    RankState& own = ranks_[rank];
    Engine engine{*this, own, m};
    device::CopyHost<SimMachine, Engine> host(m, engine);
    std::vector<std::pair<device::CopyJob, uint64_t*>> jobs;
    for (uint32_t k = 0; k < messages_.size(); ++k) {
      Message& at = messages_[k];
      if (k % 2 == rank)
        jobs.push_back({{nullptr,
                         k,
                         own.fault,
                         at.send_mark,
                         at.send_done,
                         {{at.offer, nullptr, at.input, nullptr, kBytes}},
                         {}},
                        nullptr});
      else
        jobs.push_back({{nullptr,
                         k,
                         own.fault,
                         at.receive_mark,
                         at.receive_done,
                         {},
                         {{at.offer, at.output, kBytes, 0}}},
                        at.receive_ended});
    }
    using Step = device::CopyHost<SimMachine, Engine>::Step;
    while (!jobs.empty()) {
      bool any = false;
      std::erase_if(jobs, [&](auto& job) {
        const Step step = host.step(job.first);
        any |= step != Step::kNothing;
        if (step == Step::kFinished && job.second != nullptr) m.store_release(job.second, 1);
        return step == Step::kFinished;
      });
      if (!any) w_.scheduler.sleep();
    }
    device::withdraw(m, 0, own.out);
    m.store_release(own.given, ~uint64_t(0));  // the engine ends
  }

  void engine(uint32_t rank) {
    SimMachine m(w_, nullptr, 0, 0);
    RankState& own = ranks_[rank];
    for (uint64_t ticket = 0;;) {
      const uint64_t given = m.load_acquire(own.given);
      if (given == ~uint64_t(0) && own.copies.empty()) return;
      if (own.copies.empty() || (given != ~uint64_t(0) && given <= ticket)) {
        w_.scheduler.sleep();
        continue;
      }
      const Copy copy = own.copies.front();
      own.copies.pop_front();
      for (uint64_t at = 0; at < kBytes; at += 16) {
        const Pack pack = m.load_few(copy.from + at, 16);
        m.store_few(copy.to + at, pack, 16);
        w_.scheduler.yield();
      }
      m.store_release(own.ended, ++ticket);
    }
  }

  void break_lanes() {
    SimMachine m(w_, nullptr, 0, 0);
    w_.scheduler.note_deadline(w_.scheduler.random().skewed(3000));
    w_.scheduler.sleep();
    for (RankState& rank : ranks_) m.store_release(rank.fault, 1);
  }

  World w_;
  bool breaks_ = false;
  std::vector<RankState> ranks_;
  std::vector<Message> messages_;
  std::vector<Body> bodies_;
};

TEST(SimCopies, MessagesAreRightInAnyOrder) {
  Copies copies;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string failure = copies.run(seed, false, 1 + seed % 6);
    ASSERT_EQ(failure, "") << "seed " << seed;
  }
}

TEST(SimCopies, ABrokenLaneGivesBackWhatNobodyTouches) {
  Copies copies;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const std::string failure = copies.run(seed, true, 1 + seed % 6);
    ASSERT_EQ(failure, "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace starling::sim
