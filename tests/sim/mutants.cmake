# Planted bugs: copies of src/device with edits, compiled beside the shipped code. They only have to fail.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(mutants_dir "${CMAKE_CURRENT_BINARY_DIR}/sim/mutants")
set(mutants_units 4)
set(mutants_sources "${mutants_dir}/mutants.cc")
math(EXPR last_unit "${mutants_units} - 1")
foreach(unit RANGE ${last_unit})
  list(APPEND mutants_sources "${mutants_dir}/mutants_${unit}.cc")
endforeach()
file(GLOB mutated_headers CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/device/*.h")
add_custom_command(OUTPUT ${mutants_sources}
  COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}" "${Python3_EXECUTABLE}"
    "${CMAKE_CURRENT_SOURCE_DIR}/sim/make_mutants.py" "${CMAKE_SOURCE_DIR}" "${mutants_dir}" ${mutants_units}
  DEPENDS ${mutated_headers} "${CMAKE_SOURCE_DIR}/src/machine/sim/core.cc"
    "${CMAKE_CURRENT_SOURCE_DIR}/sim/make_mutants.py" "${CMAKE_CURRENT_SOURCE_DIR}/switched.py"
    "${CMAKE_CURRENT_SOURCE_DIR}/sim/catalogue.py"
    "${CMAKE_CURRENT_SOURCE_DIR}/planted.py"
  COMMENT "Planting bugs")
add_library(starling_mutants STATIC EXCLUDE_FROM_ALL ${mutants_sources})
target_link_libraries(starling_mutants PRIVATE starling_test_base)
target_include_directories(starling_mutants PRIVATE "${mutants_dir}")
target_compile_options(starling_mutants PRIVATE ${STARLING_MUTANTS_FLAGS} -w)
target_link_libraries(sim.mutations_test PRIVATE starling_mutants)
target_link_libraries(sim.mutations_program PRIVATE starling_mutants)
target_link_libraries(sim.explore_test PRIVATE starling_mutants)
