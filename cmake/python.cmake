# The nanobind module starling._core, from src/python/*.cc, through scikit-build-core (`pip install .`).
file(GLOB_RECURSE starling_binding_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/python/*.cc")
if(NOT STARLING_PYTHON OR NOT starling_binding_sources)
  return()
endif()

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

nanobind_add_module(_core NB_STATIC ${starling_binding_sources})
target_link_libraries(_core PRIVATE starling starling_flags)
target_include_directories(_core PRIVATE include src)
set_target_properties(_core PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
install(TARGETS _core LIBRARY DESTINATION starling COMPONENT python)
