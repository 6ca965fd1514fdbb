#include "comm/device.h"

#include <dlfcn.h>

#include <charconv>
#include <string>

#include "base/env.h"
#include "base/error.h"
#include "machine/cpu/place.h"

namespace starling {
namespace {

using MakeCudaPlace = Place* (*)(int device, cpu::Arena* arena);
constexpr const char* kCudaLibrary = "libstarling_cuda.so";

// The CUDA part is a library of its own beside this one, so that the core needs neither CUDA nor a GPU. It
// stays loaded.
MakeCudaPlace load_cuda_part() {
  Dl_info own{};
  std::string beside;
  if (dladdr(reinterpret_cast<void*>(&load_cuda_part), &own) != 0 && own.dli_fname != nullptr) {
    beside = own.dli_fname;
    beside = beside.substr(0, beside.rfind('/') + 1) + kCudaLibrary;
  }
  std::string why;
  for (const std::string& name : {beside, std::string(kCudaLibrary)}) {
    if (name.empty()) continue;
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (why.empty()) why = dlerror();
      continue;
    }
    if (void* symbol = dlsym(library, "starling_make_cuda_place"))
      return reinterpret_cast<MakeCudaPlace>(symbol);
    why = name + " has no starling_make_cuda_place";
  }
  throw Error(Code::unsupported, "the library's CUDA part cannot be loaded: " + why,
              "build Starling where nvcc is found (STARLING_CUDA=ON), or use device cpu");
}

int device_number(const std::string& name) {
  if (name == "cuda") return 0;
  int number = -1;
  const char* end = name.data() + name.size();
  if (name.starts_with("cuda:")) {
    const auto [stop, error] = std::from_chars(name.data() + 5, end, number);
    if (error != std::errc{} || stop != end) number = -1;
  }
  if (number < 0)
    throw Error(Code::invalid_argument, "device '" + name + "' does not exist",
                "use cpu, or cuda:0 and so on");
  return number;
}

}  // namespace

std::unique_ptr<Place> make_place(const char* device, cpu::Arena& arena, const cpu::WaitPolicy& waiting) {
  const std::string name = device ? device : "cpu";
  if (name == "cpu")
    return std::make_unique<cpu::CpuPlace>(arena, waiting, settings().gpudirect == "anywhere");
  const int number = device_number(name);
  static const MakeCudaPlace make = load_cuda_part();
  return std::unique_ptr<Place>(make(number, &arena));
}

}  // namespace starling
