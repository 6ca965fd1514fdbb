// One reliable queue pair from its making to its fence.
#pragma once
#include <cstdint>

#include "link/verbs/device.h"
#include "link/verbs/settings.h"
#include "wire/link.h"
#include "wire/queue_pairs.h"

namespace starling::link::verbs {

// How many work requests of each kind a queue pair has at most.
inline constexpr uint32_t kReceives = 256;
inline constexpr uint32_t kSends = 256;
inline constexpr uint32_t kInlineBytes = sizeof(LinkMessage);

class QueuePair {
 public:
  // Throws Error(system).
  QueuePair(const Device& device, ibv_cq* queue);
  QueuePair(const QueuePair&) = delete;
  ~QueuePair();

  uint32_t number() const { return qp_->qp_num; }
  ibv_qp* get() const { return qp_; }

  struct Local {
    uint8_t port;
    uint8_t gid_index;
    uint32_t first_packet;
    ibv_mtu mtu;
  };
  // False: the device refuses.
  bool connect(const Local& ours, const QueuePairs& theirs, uint32_t index,
               const QueuePairSettings& settings);
  // Nothing is sent, received or acknowledged from now on; what was posted completes with an error.
  void stop();
  // After it, nothing lands by it. At most once; the destructor does it too.
  void destroy();

  uint32_t receives_posted = 0;  // and not completed
  uint32_t sends_posted = 0;

 private:
  const Library& library_;
  ibv_qp* qp_;
};

}  // namespace starling::link::verbs
