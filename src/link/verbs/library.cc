#include "link/verbs/library.h"

#include <dlfcn.h>

namespace starling::link::verbs {
namespace {

struct Opened {
  Library library{};
  std::string why;
};

Opened open_once() {
  Opened opened;
  void* handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    opened.why = std::string("libibverbs cannot be opened: ") + dlerror();
    return opened;
  }
  // The newest version of each symbol, which is what the header describes.
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) opened.why = std::string("libibverbs.so.1 here has no ") + name;
  };
  Library& l = opened.library;
  find(l.get_device_list, "ibv_get_device_list");
  find(l.free_device_list, "ibv_free_device_list");
  find(l.get_device_name, "ibv_get_device_name");
  find(l.open_device, "ibv_open_device");
  find(l.close_device, "ibv_close_device");
  find(l.query_port, "ibv_query_port");
  find(l.alloc_pd, "ibv_alloc_pd");
  find(l.dealloc_pd, "ibv_dealloc_pd");
  find(l.reg_mr, "ibv_reg_mr");
  l.reg_dmabuf_mr = reinterpret_cast<decltype(l.reg_dmabuf_mr)>(dlsym(handle, "ibv_reg_dmabuf_mr"));
  find(l.dereg_mr, "ibv_dereg_mr");
  find(l.create_comp_channel, "ibv_create_comp_channel");
  find(l.destroy_comp_channel, "ibv_destroy_comp_channel");
  find(l.create_cq, "ibv_create_cq");
  find(l.destroy_cq, "ibv_destroy_cq");
  find(l.get_cq_event, "ibv_get_cq_event");
  find(l.ack_cq_events, "ibv_ack_cq_events");
  find(l.create_qp, "ibv_create_qp");
  find(l.modify_qp, "ibv_modify_qp");
  find(l.destroy_qp, "ibv_destroy_qp");
  find(l.get_async_event, "ibv_get_async_event");
  find(l.ack_async_event, "ibv_ack_async_event");
  find(l.event_type_text, "ibv_event_type_str");
  find(l.status_text, "ibv_wc_status_str");
  return opened;
}

}  // namespace

const Library* open_library(std::string& why) {
  static const Opened opened = open_once();
  why = opened.why;
  return opened.why.empty() ? &opened.library : nullptr;
}

}  // namespace starling::link::verbs
