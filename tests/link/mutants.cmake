# Planted bugs of failover: copies of src/link's headers with one edit each (sim/mutants.cmake, for the core).
set(link_mutants_dir "${CMAKE_CURRENT_BINARY_DIR}/link/mutants")
file(GLOB mutated_link_headers CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/link/*.h")
add_custom_command(OUTPUT "${link_mutants_dir}/link_mutants.cc"
  COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}" "${Python3_EXECUTABLE}"
    "${CMAKE_CURRENT_SOURCE_DIR}/link/make_mutants.py" "${CMAKE_SOURCE_DIR}" "${link_mutants_dir}"
  DEPENDS ${mutated_link_headers} "${CMAKE_SOURCE_DIR}/src/link/core.cc"
    "${CMAKE_CURRENT_SOURCE_DIR}/link/make_mutants.py" "${CMAKE_CURRENT_SOURCE_DIR}/link/catalogue.py"
    "${CMAKE_CURRENT_SOURCE_DIR}/planted.py"
  COMMENT "Planting bugs in failover")
add_library(starling_link_mutants STATIC EXCLUDE_FROM_ALL "${link_mutants_dir}/link_mutants.cc")
target_link_libraries(starling_link_mutants PRIVATE starling_test_base)
target_include_directories(starling_link_mutants PRIVATE "${link_mutants_dir}")
target_compile_options(starling_link_mutants PRIVATE -O1 -w)
target_link_libraries(link.mutations_test PRIVATE starling_link_mutants)
target_link_libraries(link.mutations_program PRIVATE starling_link_mutants)

# Planted bugs of named messages: named_test.cc with edited sources, which hide the library's own.
set(named_mutants_dir "${CMAKE_CURRENT_BINARY_DIR}/link/named_mutants")
set(hidden_sources carry/peer_link.cc carry/arrivals.cc carry/straight.cc tcp/connection.cc tcp/receiving_flow.cc
  tcp/sending_flow.cc)
list(TRANSFORM hidden_sources PREPEND "${CMAKE_SOURCE_DIR}/src/link/")
if(NOT STARLING_SANITIZE)  # an object file is hidden as a whole
  set_source_files_properties(${hidden_sources} TARGET_DIRECTORY starling_objects
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endif()
set(named_mutants_from "${CMAKE_CURRENT_SOURCE_DIR}/link/named_catalogue.py"
  "${CMAKE_CURRENT_SOURCE_DIR}/link/make_named_mutants.py" "${CMAKE_CURRENT_SOURCE_DIR}/switched.py" ${hidden_sources})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${named_mutants_from})
execute_process(COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}" "${Python3_EXECUTABLE}"
  "${CMAKE_CURRENT_SOURCE_DIR}/link/make_named_mutants.py" "${CMAKE_SOURCE_DIR}" "${named_mutants_dir}"
  COMMAND_ERROR_IS_FATAL ANY)
add_library(starling_named_test OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_SOURCE_DIR}/link/named_test.cc"
  "${CMAKE_CURRENT_SOURCE_DIR}/link/named_planted.cc")
target_link_libraries(starling_named_test PRIVATE starling_test_base GTest::gtest)
target_compile_options(starling_named_test PRIVATE -O1)
file(GLOB named_copies "${named_mutants_dir}/copy_*")
foreach(copy IN LISTS named_copies)
  get_filename_component(name "${copy}" NAME)
  file(GLOB edited "${copy}/*.cc")
  add_executable(link.named_${name} EXCLUDE_FROM_ALL ${edited} $<TARGET_OBJECTS:starling_named_test>)
  set_target_properties(link.named_${name} PROPERTIES OUTPUT_NAME ${name}
    RUNTIME_OUTPUT_DIRECTORY "${test_bin_dir}/named_mutants")
  target_link_libraries(link.named_${name} PRIVATE starling_test_support GTest::gtest GTest::gtest_main)
  target_compile_options(link.named_${name} PRIVATE -O1 -w)
  add_dependencies(link.named_mutations_test link.named_${name})
endforeach()
add_dependencies(link.named_mutations_test link.named_test)
target_include_directories(link.named_mutations_test PRIVATE "${named_mutants_dir}")
