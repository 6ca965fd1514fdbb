// A rank's proxy: one thread that carries what its blocks and hosts store for ranks of other hosts
// (peer_link.h), over TCP. Made when a communicator first has such ranks.
//
// The thread looks at sockets, shadows and channels; after some looks in vain it sleeps until a socket is
// ready, a timer ends, or its eventfd is rung. It never spins without bound, and waits for no host and no
// block. Who waits for messages helps: it looks itself, in the thread's place, and sleeps there, too: one
// helper at a time.
//
// Blocks of a GPU cannot ring. Where they are behind it (ProxyOptions::polls) hosts say when operations are
// under way, and the thread looks on its own: without a pause up to kEagerNs after the last news, then ever
// more seldom. With none under way it sleeps as above.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "link/carry/greetings.h"
#include "link/carry/peer_link.h"
#include "link/tcp/port_watch.h"
#include "link/tcp/topology_file.h"
#include "link/verbs/rails.h"
#include "machine/carrier.h"

namespace starling::link::carry {

enum class Rdma {
  kNever,
  kWherePossible,
  kAlways,  // without a device: an error
};

struct ProxyOptions {
  std::string interfaces;  // as usable_ports() takes them
  tcp::Family family = tcp::Family::kAny;
  std::string congestion;  // of all ports, as tcp::Port has it
  Policy policy = Policy::kPrimaryBackup;
  tcp::TimerLengths lengths;
  uint64_t shadow_bytes = 0;  // address space for each peer
  Rdma rdma = Rdma::kWherePossible;
  verbs::QueuePairSettings queue_pairs;
  bool straight = true;  // memory is registered where that spares copies
  bool gpu_direct = true;  // slots may lie on the device
  bool recorded = false;  // transfers, for watchers (monitor/publish.h)
  bool polls = false;  // blocks do not ring
  // PCI address: its nearest ports come first, where `interfaces` names none; "": those near the cores that
  // the thread may run on which makes the proxy.
  std::string device;
  ToldHost told;  // of this host, in the place of sysfs
  std::vector<uint32_t> cores;  // that its threads may run on; empty: any
};

class Way;

class Proxy final : public Carrier {
 public:
  // Listens at the ports. Throws Error.
  Proxy(cpu::Arena& arena, const ProxyOptions& options);
  // Waits, bounded, until what was said has reached the peers.
  ~Proxy() override;

  // Where peers find this rank: ports_text().
  const std::string& ports() const { return ports_text_; }

  // The way to that rank, made at the first call. `ports`: what its ports() says. Throws Error(mismatch).
  Way& attach(const RemoteRank& remote, const std::string& ports);

  // Something was stored that the thread should see. Any thread.
  void wake();

  bool polls() const { return options_.polls; }
  // An operation is under way whose blocks may store something, from before its first block runs until all
  // that they stored is there to be seen. Any thread.
  void begin_work();
  void end_work();

  // For threads that wait for messages, blocks and callers: they carry them themselves meanwhile.
  void enter() override;
  void look() override;
  void leave() override;
  bool is_bulky() const override { return bulky_.load(std::memory_order_relaxed); }
  bool prepare() override;
  void sleep(uint64_t longest_ns) override;
  void cancel() override;
  // Processes other than this one ring at this rank's door, and not at an eventfd of ours: from now on
  // helpers do not sleep here.
  void has_neighbours() { neighbours_.store(true, std::memory_order_relaxed); }

  // Hosts should compare signatures again: true once each time.
  bool take_mismatch() {
    // Acquire: pairs with the release in PeerLink::compare(): the shadow's board is there to be compared.
    return mismatch_.exchange(false, std::memory_order_acquire);
  }

 private:
  class Listener;
  class Alarm;
  friend class Way;

  void open_rails();
  RegistrationPtr enroll(const Region& region, std::unique_lock<std::mutex>& lock);
  void run();
  bool look_at_all();
  void listen();
  void silence();
  void rest();
  uint64_t unsaid();
  void sleep_as_thread();
  void doze();
  uint64_t next_deadline() const;
  template <class Step>
  bool guarded(PeerLink* link, Step&& step);
  bool introduce(const Hello& hello, std::unique_ptr<tcp::Connection>& connection, const tcp::Port& port);
  void port_changed(uint32_t interface_index, bool up);

  cpu::Arena& arena_;
  const ProxyOptions options_;
  std::string ports_text_;
  std::vector<tcp::Port> port_list_;
  tcp::Descriptor event_;
  tcp::Descriptor helper_event_;  // the same for the helper that sleeps here, at this rank's own door
  std::atomic<bool> mismatch_{false};
  std::atomic<bool> ending_{false};
  std::atomic<bool> neighbours_{false};
  std::atomic<bool> bulky_{false};  // a link was, at the last look
  std::atomic<uint64_t> begun_{0};  // operations, of begin_work()
  std::atomic<uint64_t> ended_{0};
  std::atomic<bool> dozes_{false};  // the thread, where it polls: begin_work() has to wake it
  uint64_t begun_seen_ = 0;  // the thread's, as the next one
  uint64_t news_ns_ = 0;

  std::mutex mutex_;  // guards all below; taken after a context's
  tcp::Reactor reactor_;
  std::unique_ptr<verbs::Rails> rails_;  // none: sockets only
  std::unique_ptr<tcp::BulkSender> bulk_;  // where the thread polls
  uint64_t slots_bytes_ = 0;  // registered, of all lanes
  uint64_t device_slots_bytes_ = 0;  // likewise
  std::unique_ptr<Alarm> alarm_;
  std::unique_ptr<Alarm> helper_alarm_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  uint32_t helpers_ = 0;  // between enter() and leave()
  uint64_t helped_ = 0;  // looks of helpers
  // The thread is hushed, and the shadows' doors do not ring for it: helpers see to all. Not so any more when
  // it has found that none of them looks.
  bool resting_ = false;
  bool helper_sleeps_ = false;  // or is about to
  uint64_t wakes_ns_ = 0;  // when its sleep ends by itself
  Greetings greetings_;
  std::map<uint64_t, std::unique_ptr<Way>> ways_;  // by identity
  std::unique_ptr<tcp::PortWatch> port_watch_;
  std::thread thread_;
};

// A PeerLink for hosts: each call takes the proxy's lock, and wakes it.
class Way {
 public:
  Way(Proxy& proxy, std::unique_ptr<PeerLink> link) : proxy_(proxy), link_(std::move(link)) {}

  const std::string& shadow_name() const { return link_->shadow_name(); }
  std::string failure();
  uint32_t open_lane(LaneShared* own, std::shared_ptr<Channels> channels, const OpenRecord& description);
  bool polls() const { return proxy_.polls(); }
  void pair(uint32_t lane, LaneShared* theirs);
  void unpublish(uint32_t lane);
  void forget(uint32_t lane);
  // Of what we receive, or send: is it worth registering? Null: it cannot be.
  bool uses_rdma(bool received);
  RegistrationPtr enroll(const Region& region);
  // May slots of a lane lie on the device: do devices of the network carry all that goes either way? Waits
  // until that is known, or the time has come; the answer, `false` then, stays.
  bool reaches_devices(std::chrono::steady_clock::time_point end);
  void say_where_slots_are(bool on_device);  // in the log, once
  void expect(uint32_t lane, uint32_t channel, const Landing& landing, RegistrationPtr memory = nullptr);
  void lend(uint32_t lane, uint32_t channel, Loan loan);
  void take_back(uint32_t lane);
  bool is_used_by_devices(uint32_t lane);
  void wake() { proxy_.wake(); }

 private:
  friend class Proxy;
  Proxy& proxy_;
  std::unique_ptr<PeerLink> link_;
  std::optional<bool> reaches_devices_;
  bool said_where_slots_are_ = false;
};

}  // namespace starling::link::carry
