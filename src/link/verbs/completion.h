// Whether another path could help against a work request that failed.
#pragma once
#include <infiniband/verbs.h>

#include "link/link.h"

namespace starling::link::verbs {

inline Completion classify(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS: return Completion::kOk;
    // What was asked for is wrong: memory that is not registered, a length, a key, rights.
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR: return Completion::kFatal;
    // The path is to blame: retries exceeded, flushed, a peer that is gone. IBV_WC_LOC_QP_OP_ERR, too: what
    // Soft-RoCE completes with first when its own port has gone down.
    default: return Completion::kRetryable;
  }
}

}  // namespace starling::link::verbs
