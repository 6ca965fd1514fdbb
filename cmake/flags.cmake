# The flags of our own targets (never of others' code): link starling_flags.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE}")
endif()

# Sanitizers see every target, GoogleTest's headers included.
if(STARLING_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")
  add_compile_options(-fsanitize=${STARLING_SANITIZE} -fno-sanitize-recover=all)
  if(STARLING_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize=enum)  # the C API's enums come from callers: out of range is refused, not undefined
  endif()
  add_link_options(-fsanitize=${STARLING_SANITIZE})
  add_compile_definitions(STARLING_SANITIZED=1)
  # Instrumented code gives GCC's flow warnings false alarms; the plain build is the judge of warnings.
  set(STARLING_WERROR OFF)
  if(STARLING_SANITIZE MATCHES thread)
    # gcc warns that TSan does not model fences; where one orders data, the code says so in TSan's terms.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
elseif(STARLING_QUICK)
  set(CMAKE_CXX_FLAGS_RELEASE "-O0")
else()
  set(CMAKE_CXX_FLAGS_RELEASE "-O3")
endif()

add_library(starling_flags INTERFACE)
target_compile_options(starling_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -fno-omit-frame-pointer -fno-semantic-interposition>
  # No fused multiply-add: a rank that adds its own scaled input must round as the ranks that receive it scaled do,
  # or they get different bits.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>
  # Assertions and errors name files from the root of the repository, whoever built it.
  $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${STARLING_WERROR}>>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105651: false alarms inside std::string.
  target_compile_options(starling_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(STARLING_ARCH)
  target_compile_options(starling_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${STARLING_ARCH}>)
endif()
