# The library's CUDA part, libstarling_cuda.so: built where nvcc is, found at run time beside libstarling.so
# (src/comm/device.cc). The core builds and runs without it.
# Target starling_cuda_check compiles and links all that needs nvcc, and compiles the headers that host and device
# share; it needs no GPU. Tests that need one are Python's (tests/gpu).
file(GLOB_RECURSE starling_cuda_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/*.cu")

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
# CMake before 3.25.2 does not know that nvcc speaks C++20; this is what a newer one sets.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--expt-relaxed-constexpr>")

add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler=-Wall>")
if(STARLING_QUICK)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcicc=-O0 -Xptxas=-O0>")
endif()

add_library(starling_device_cuda_check OBJECT EXCLUDE_FROM_ALL ${starling_cuda_sources})
set_target_properties(starling_device_cuda_check PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
target_include_directories(starling_device_cuda_check PRIVATE include src)

# A core that is built already spares the check its own.
set(core starling)
if(STARLING_QUICK AND EXISTS "${STARLING_CORE}")
  set(core starling_core)
  add_library(starling_core SHARED IMPORTED)
  set_target_properties(starling_core PROPERTIES IMPORTED_LOCATION "${STARLING_CORE}"
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_SOURCE_DIR}/include")
endif()

# nvcc for the kernels, the C++ compiler for the rest. Separate compilation: a row of the table of types and
# reductions is one file (src/machine/cuda/combine.cuh).
find_package(CUDAToolkit REQUIRED)
file(GLOB starling_cuda_part CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/src/machine/cuda/*.cu" "${CMAKE_SOURCE_DIR}/src/machine/cuda/*.cc")
add_library(starling_cuda SHARED ${starling_cuda_part})
target_link_libraries(starling_cuda PRIVATE ${core} starling_flags CUDA::cudart_static)
target_include_directories(starling_cuda PRIVATE include src)
# Of a block of kDaemonThreads: separately compiled functions must fit the kernel's share of registers.
target_compile_options(starling_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-maxrregcount=128>)
target_link_options(starling_cuda PRIVATE LINKER:-z,defs "LINKER:--version-script=${CMAKE_SOURCE_DIR}/cmake/exports_cuda.map")
set_target_properties(starling_cuda PROPERTIES CUDA_SEPARABLE_COMPILATION ON CUDA_RESOLVE_DEVICE_SYMBOLS ON
  CUDA_RUNTIME_LIBRARY Static BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN"
  LINK_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/exports_cuda.map")

add_custom_target(starling_cuda_check DEPENDS starling_device_cuda_check starling_cuda)

# bench/gpu: programs that measure on GPUs, over the C API; and the kernels that run beside collectives, for Python.
if(STARLING_BUILD_BENCH)
  add_library(gpu.beside MODULE bench/gpu/beside.cu)
  target_link_libraries(gpu.beside PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS} Threads::Threads)
  set_target_properties(gpu.beside PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bench")
  add_dependencies(starling_cuda_check gpu.beside)
  if(from_pip)
    install(TARGETS gpu.beside LIBRARY DESTINATION starling/bin)
  endif()
  file(GLOB gpu_benches CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/bench/gpu/*_bench.cu"
    "${CMAKE_SOURCE_DIR}/bench/gpu/*_probe.cu")
  foreach(source IN LISTS gpu_benches)
    get_filename_component(name "${source}" NAME_WE)
    add_executable(gpu.${name} "${source}")
    add_dependencies(starling_cuda_check gpu.${name})
    target_link_libraries(gpu.${name} PRIVATE ${core} CUDA::cudart_static ${CMAKE_DL_LIBS} Threads::Threads)
    target_include_directories(gpu.${name} PRIVATE src)  # overhead_bench measures the daemon's own structures
    set_target_properties(gpu.${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bench"
      BUILD_RPATH "$ORIGIN/.." INSTALL_RPATH "$ORIGIN/../lib")
    if(from_pip)
      install(TARGETS gpu.${name} RUNTIME DESTINATION starling/bin)
    endif()
  endforeach()
  set_target_properties(gpu.standby_probe PROPERTIES CUDA_SEPARABLE_COMPILATION ON)  # it launches from kernels
endif()
