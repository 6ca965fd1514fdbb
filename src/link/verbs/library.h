// libibverbs, opened at run time: one build runs where it is and where it is not.
//
// Not linked, and not in a shared object of its own: what of verbs is not an inline function of its header is
// these few symbols, and a missing library is a sentence, not a loader's error. The fast path (posting,
// polling) is inline calls through the device's own table in either case.
#pragma once
#include <infiniband/verbs.h>

#include <string>

namespace starling::link::verbs {

struct Library {
  decltype(&ibv_get_device_list) get_device_list;
  decltype(&ibv_free_device_list) free_device_list;
  decltype(&ibv_get_device_name) get_device_name;
  decltype(&ibv_open_device) open_device;
  decltype(&ibv_close_device) close_device;
  int (*query_port)(ibv_context*, uint8_t, _compat_ibv_port_attr*);
  decltype(&ibv_alloc_pd) alloc_pd;
  decltype(&ibv_dealloc_pd) dealloc_pd;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, int);
  // Null: the library is older than it.
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
  decltype(&ibv_dereg_mr) dereg_mr;
  decltype(&ibv_create_comp_channel) create_comp_channel;
  decltype(&ibv_destroy_comp_channel) destroy_comp_channel;
  decltype(&ibv_create_cq) create_cq;
  decltype(&ibv_destroy_cq) destroy_cq;
  decltype(&ibv_get_cq_event) get_cq_event;
  decltype(&ibv_ack_cq_events) ack_cq_events;
  decltype(&ibv_create_qp) create_qp;
  decltype(&ibv_modify_qp) modify_qp;
  decltype(&ibv_destroy_qp) destroy_qp;
  decltype(&ibv_get_async_event) get_async_event;
  decltype(&ibv_ack_async_event) ack_async_event;
  decltype(&ibv_event_type_str) event_type_text;
  decltype(&ibv_wc_status_str) status_text;
};

// Null: `why` says what is missing. Once opened it stays.
const Library* open_library(std::string& why);

}  // namespace starling::link::verbs
