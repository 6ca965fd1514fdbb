#include "link/verbs/queue_pair.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace starling::link::verbs {
namespace {

constexpr uint8_t kRnrForEver =
    7;  // a receiver that is slow is not a path that is broken: the watchdog judges
constexpr uint8_t kRnrTimer = 12;   // 0.64 ms

}  // namespace

QueuePair::QueuePair(const Device& device, ibv_cq* queue) : library_(device.library()) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = queue;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = kSends;
  attributes.cap.max_recv_wr = kReceives;
  attributes.cap.max_send_sge = 2;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = kInlineBytes;
  qp_ = library_.create_qp(device.domain(), &attributes);
  if (qp_ == nullptr)
    throw system_error("cannot make a queue pair on " + device.name(), "set STARLING_LINK=tcp");
}

QueuePair::~QueuePair() { destroy(); }

void QueuePair::destroy() {
  if (qp_ != nullptr) library_.destroy_qp(qp_);
  qp_ = nullptr;
}

bool QueuePair::connect(const Local& ours, const QueuePairs& theirs, uint32_t index,
                        const QueuePairSettings& settings) {
  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = ours.port;
  init.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  if (library_.modify_qp(qp_, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) !=
      0)
    return false;

  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = ibv_mtu(std::min<uint32_t>(ours.mtu, theirs.mtu));
  receive.dest_qp_num = theirs.numbers[index];
  receive.rq_psn = theirs.first_packet;
  receive.min_rnr_timer = kRnrTimer;
  receive.ah_attr.is_global = 1;
  std::memcpy(receive.ah_attr.grh.dgid.raw, theirs.gid, sizeof theirs.gid);
  receive.ah_attr.grh.sgid_index = ours.gid_index;
  receive.ah_attr.grh.hop_limit = 64;
  receive.ah_attr.grh.traffic_class = settings.traffic_class;
  receive.ah_attr.sl = settings.service_level;
  receive.ah_attr.dlid = theirs.lid;
  receive.ah_attr.port_num = ours.port;
  if (library_.modify_qp(qp_, &receive,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    return false;

  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = settings.timeout;
  send.retry_cnt = settings.retries;
  send.rnr_retry = kRnrForEver;
  send.sq_psn = ours.first_packet;
  return library_.modify_qp(qp_, &send,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

void QueuePair::stop() {
  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  library_.modify_qp(qp_, &error, IBV_QP_STATE);
}

}  // namespace starling::link::verbs
