# Every CUDA file must compile, whoever builds: target starling_device_cuda_check. The CPU build does not need it.
# With STARLING_CUDA=ON, tests/gpu/**/*_test.cu also become test programs.
set(STARLING_HAS_CUDA OFF)
file(GLOB_RECURSE starling_cuda_sources CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/src/*.cu" "${CMAKE_SOURCE_DIR}/tests/*.cu")

# The headers that host and device share compile for the device even before a kernel uses them.
file(GLOB shared_headers CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}/src"
  "${CMAKE_SOURCE_DIR}/src/wire/*.h" "${CMAKE_SOURCE_DIR}/src/device/*.h")
set(includes "")
foreach(header IN ITEMS base/portable.h base/assert.h base/hash.h LISTS shared_headers)
  string(APPEND includes "#include \"${header}\"\n")
endforeach()
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/shared_headers.cu" CONTENT "${includes}")
list(APPEND starling_cuda_sources "${CMAKE_BINARY_DIR}/shared_headers.cu")
if(STARLING_CUDA STREQUAL "OFF" OR STARLING_SANITIZE)
  return()
endif()
if(STARLING_CUDA STREQUAL "AUTO" AND NOT STARLING_BUILD_TESTS)
  return()
endif()

find_program(STARLING_NVCC nvcc HINTS "$ENV{CUDACXX}" /usr/local/bin /usr/local/cuda/bin)
if(NOT STARLING_NVCC)
  if(STARLING_CUDA STREQUAL "ON")
    message(FATAL_ERROR "STARLING_CUDA=ON, but no nvcc was found; put it on PATH or set CUDACXX")
  endif()
  message(STATUS "No nvcc: the CUDA files are not compiled")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER "${STARLING_NVCC}")
endif()
set(CMAKE_CUDA_ARCHITECTURES ${STARLING_CUDA_ARCH})
if(STARLING_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "nvcc does not work: the CUDA files are not compiled")
    return()
  endif()
endif()
enable_language(CUDA)
set(STARLING_HAS_CUDA ON)
# CMake before 3.25.2 does not know that nvcc speaks C++20; this is what a newer one sets.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--expt-relaxed-constexpr>")

add_library(starling_device_cuda_check OBJECT EXCLUDE_FROM_ALL ${starling_cuda_sources})
target_include_directories(starling_device_cuda_check PRIVATE include src)
target_compile_options(starling_device_cuda_check PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall>)
