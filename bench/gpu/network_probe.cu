// Does this GPU's memory take messages of other hosts by itself (docs/design/0015-verbs.md, GPUDirect)? As
// the library asks, allocates and exports it; no network card is needed for that.
//
//   network_probe     a line for each length of slots; wrong answers end it with 1, a GPU without it with 3
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "machine/cpu/arena.h"
#include "machine/place.h"
#include "probe.h"

namespace {

using starling::NetworkSlots;
using starling::Place;

std::string link_of(int descriptor) {
  char text[64] = "";
  const ssize_t bytes =
      readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), text, sizeof text - 1);
  return bytes > 0 ? std::string(text, size_t(bytes)) : "";
}

bool fail(const char* what) {
  std::printf("wrong: %s\n", what);
  return false;
}

bool try_slots(Place& place, uint64_t bytes) {
  const auto begin = std::chrono::steady_clock::now();
  NetworkSlots slots = place.allocate_for_network(bytes);
  const auto us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  if (slots.memory == nullptr) return fail("the driver does not export it");
  if (uint64_t(slots.named) % 4096 != 0) return fail("it does not begin with a page");
  const std::string is = link_of(slots.dma_buf);
  if (is.find("dmabuf") == std::string::npos) return fail(("it is no dma-buf but " + is).c_str());
  CUDA(cudaMemset(slots.memory, 5, bytes));  // all of it is there
  CUDA(cudaDeviceSynchronize());
  const int descriptor = slots.dma_buf;
  place.seal(slots, bytes);
  if (!link_of(descriptor).empty()) return fail("the descriptor stays open");
  std::printf("%10llu bytes: exported in %.0f us\n", static_cast<unsigned long long>(bytes), us);
  std::byte* const before = slots.memory;
  place.release_for_network(slots, bytes);
  slots = place.allocate_for_network(bytes);
  const bool again = slots.memory == before;
  place.seal(slots, bytes);
  place.release_for_network(slots, bytes);
  return again || fail("what was given back is not used again");
}

int probe() {
  void* library = dlopen("libstarling_cuda.so", RTLD_NOW);
  auto* const make = library == nullptr ? nullptr
                                        : reinterpret_cast<Place* (*)(int, starling::cpu::Arena*)>(
                                              dlsym(library, "starling_make_cuda_place"));
  if (make == nullptr) {
    std::printf("libstarling_cuda.so cannot be loaded: %s\n", dlerror());
    return 2;
  }
  starling::cpu::Arena arena({64 << 20});
  const std::unique_ptr<Place> place(make(0, &arena));
  if (!place->has_network_slots()) {
    std::printf("%s: network devices do not reach it, or what they write is not in order for its kernels\n",
                place->name().c_str());
    return 3;
  }
  for (const uint64_t bytes : {64 << 10, 1 << 20, 16 << 20})
    if (!try_slots(*place, bytes)) return 1;
  std::printf("%s: network devices reach it\n", place->name().c_str());
  return 0;
}

}  // namespace

int main() {
  try {
    return probe();
  } catch (const starling::Error& error) {
    std::printf("%s\n", error.what());
    return 2;
  }
}
