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
