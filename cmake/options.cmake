# What a builder can choose. `cmake -L build/...` lists these.
if(DEFINED SKBUILD)
  set(from_pip ON)
  set(from_cmake OFF)
else()
  set(from_pip OFF)
  set(from_cmake ON)
endif()

option(STARLING_WERROR "Warnings are errors" ${from_cmake})
option(STARLING_PYTHON "Build the Python module starling._core" ${from_pip})
option(STARLING_BUILD_TESTS "Build the C++ tests" ${from_cmake})
option(STARLING_BUILD_BENCH "Build the C++ benchmarks (what `starling bench` runs)" ${from_pip})
set(STARLING_CUDA AUTO CACHE STRING "Build the CUDA part: AUTO (if nvcc is there), ON, OFF")
set(STARLING_CUDA_ARCH 90 CACHE STRING "CUDA architectures to compile for")
option(STARLING_QUICK "Compile and link only to see whether it can be done: nothing is optimized" OFF)
set(STARLING_CORE "" CACHE FILEPATH "With STARLING_QUICK: a libstarling.so to link with, if it is there")
set(STARLING_VERBS AUTO CACHE STRING
  "Links over RDMA: AUTO (if infiniband/verbs.h is there), ON, OFF. The library itself is opened at run time")
set(STARLING_MUTANTS_FLAGS -O0 CACHE STRING
  "Of the copies of the core with planted bugs: -O0 compiles them in half the time, -O1 hunts them faster")
option(STARLING_UNITY
  "Compile the files of a folder as one: a whole build takes less time, one after a small change more" ${from_pip})
set(STARLING_SANITIZE "" CACHE STRING "Sanitizer: thread, or address,undefined")

# A portable default: every x86-64 server since 2013 (Haswell) and 2017 (Zen) runs v3. Empty: the compiler's own.
set(default_arch "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=x86-64-v3 STARLING_HAS_X86_64_V3)
  if(STARLING_HAS_X86_64_V3)
    set(default_arch x86-64-v3)
  endif()
endif()
set(STARLING_ARCH "${default_arch}" CACHE STRING "Argument of -march; empty for the compiler's default")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
