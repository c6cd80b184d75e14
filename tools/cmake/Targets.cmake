# Reading headers takes most of the time to compile a source. Grouped sources read them once. A change to one
# source compiles its whole group.
set(GEMINID_GROUP_LIBRARIES 0 CACHE STRING
    "How many sources of a library are compiled together at most; 0: each alone")
set(GEMINID_GROUP_TESTS 0 CACHE STRING
    "How many sources of a test program are compiled together at most; 0: each alone")
set(GEMINID_GROUP_SOURCES ${CMAKE_CURRENT_LIST_DIR}/group-sources)

# geminid_group(RESULT NAME SIZE SOURCES...): sets RESULT to the files to compile instead of these sources. The
# groups are decided again whenever CMake runs. Generated sources, and sources with options of their own, stay
# alone.
function(geminid_group result name size)
  set(grouped "")
  set(alone "")
  foreach(source ${ARGN})
    get_filename_component(path ${source} ABSOLUTE)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(path MATCHES "[.]cc$" AND EXISTS ${path} AND NOT definitions
       AND NOT path MATCHES "^${PROJECT_BINARY_DIR}/")
      list(APPEND grouped ${path})
    else()
      list(APPEND alone ${source})
    endif()
  endforeach()
  list(LENGTH grouped count)
  if(NOT size OR count LESS 2)
    set(${result} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  # The decision and its input are stored until a source is newer.
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${name}_groups)
  set(asked "${size};${grouped}")
  set(known "")
  if(EXISTS ${folder}/asked)
    file(READ ${folder}/asked known)
  endif()
  foreach(source ${GEMINID_GROUP_SOURCES} ${grouped})
    if(${source} IS_NEWER_THAN ${folder}/asked)
      set(known "")
    endif()
  endforeach()
  if(known STREQUAL asked)
    file(READ ${folder}/decided grouped)
  else()
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    execute_process(COMMAND ${Python3_EXECUTABLE} -B ${GEMINID_GROUP_SOURCES} ${folder} ${size}
                            ${PROJECT_SOURCE_DIR} ${grouped}
                    OUTPUT_VARIABLE grouped COMMAND_ERROR_IS_FATAL ANY)
    file(WRITE ${folder}/decided "${grouped}")
    file(WRITE ${folder}/asked "${asked}")
  endif()
  # GCC treats an included file as a header. It warns there if a class with external linkage uses an anonymous
  # namespace. Each of these files is included only once, so the warning does not apply.
  set(files ${grouped})
  list(FILTER files INCLUDE REGEX "/group_[0-9]+[.]cc$")
  foreach(file ${files})
    set_source_files_properties(${file} PROPERTIES
      COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${GEMINID_GROUP_SOURCES})
  set(${result} ${grouped} ${alone} PARENT_SCOPE)
endfunction()

# geminid_library(NAME SOURCES... LIBS... [PRIVATE_LIBS...] [PRECOMPILED name]): a static library
# whose headers are included by their path from the root of the repository, the public ones as
# "geminid/x.h".
function(geminid_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED" "SOURCES;LIBS;PRIVATE_LIBS" ${ARGN})
  if(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED base)
  endif()
  set(sources ${ARG_SOURCES})
  # Highway compiles a source several times, controlled by macros.
  if(NOT ARG_PRECOMPILED STREQUAL "kernels")
    geminid_group(sources ${name} ${GEMINID_GROUP_LIBRARIES} ${ARG_SOURCES})
  endif()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PUBLIC ${ARG_LIBS} PRIVATE ${ARG_PRIVATE_LIBS})
  geminid_use_precompiled(${name} ${ARG_PRECOMPILED})
endfunction()

# geminid_header_library(NAME LIBS...): the same for a library of headers only.
function(geminid_header_library name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_library(${name} INTERFACE)
  target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} INTERFACE ${ARG_LIBS})
endfunction()

# Tests spend their time in the libraries, which are fully optimised, or in programs that they start. With
# -O1 the compiler gives false warnings about uninitialised variables.
set(GEMINID_TEST_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O1;-Wno-maybe-uninitialized>")
set(GEMINID_PROCESS_TEST_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O0>")

set(GEMINID_TEST_SUITES ${CMAKE_CURRENT_LIST_DIR}/TestSuites.cmake)

# geminid_test(NAME SOURCES... LIBS... [LABELS...] [TIMEOUT seconds] [COST seconds] [PROCESSORS n]
# [SERIAL] [NUMERIC] [ONE_PROCESSOR] [PROCESSES] [PRECOMPILED name]): one GoogleTest program, one ctest entry per suite: PROGRAM.SUITE.
# TIMEOUT and COST are per suite. TIMEOUT ends a hanging suite. It is far above the time on a slow or busy
# machine: ten times the time on two idle CPUs.
# Without recorded times ctest starts the suites with the highest COST, so that no long suite runs alone
# at the end. A suite of less than 15 seconds needs no COST. With more than one of PROCESSORS, ctest runs
# fewer other entries beside a suite that checks time limits.
# NUMERIC is for suites whose numbers depend on the instruction sets: each has a second entry that runs
# at the lowest level, PROGRAM.SUITE@sse2, and a failure names its level.
# ONE_PROCESSOR is for programs whose ranks and daemon mostly wait for each other. tools/test keeps each on one
# processor, which takes a quarter off their processor time. It is not for tests that look for races.
# PROCESSES is for programs that start others, or compute little: they are not optimised, which halves
# their compile time. Other programs must be optimised, because the linker could choose their slow copies of
# templates.
function(geminid_test name)
  cmake_parse_arguments(ARG "SERIAL;NUMERIC;ONE_PROCESSOR;PROCESSES" "COST;PROCESSORS;TIMEOUT;PRECOMPILED" "SOURCES;LIBS;LABELS"
                        ${ARGN})
  set(options ${GEMINID_TEST_OPTIONS})
  if(ARG_PROCESSES)
    set(options ${GEMINID_PROCESS_TEST_OPTIONS})
    set(ARG_PRECOMPILED process_test)
  elseif(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED test)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  geminid_group(sources ${name} ${GEMINID_GROUP_TESTS} ${ARG_SOURCES})
  add_executable(${name} ${sources})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${options})
  geminid_use_precompiled(${name} ${ARG_PRECOMPILED})
  set(levels "")
  if(ARG_NUMERIC)
    target_link_libraries(${name} PRIVATE geminid_level_of_failures)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set(levels "ALSO_AT sse2 ")
    endif()
  endif()
  set(properties "TIMEOUT ${ARG_TIMEOUT} WORKING_DIRECTORY \"${CMAKE_CURRENT_BINARY_DIR}\"")
  if(ARG_LABELS)
    string(APPEND properties " LABELS \"${ARG_LABELS}\"")
  endif()
  foreach(property COST PROCESSORS)
    if(ARG_${property})
      string(APPEND properties " ${property} ${ARG_${property}}")
    endif()
  endforeach()
  if(ARG_SERIAL)
    string(APPEND properties " RUN_SERIAL ON")
  endif()
  if(ARG_ONE_PROCESSOR)
    target_link_libraries(${name} PRIVATE geminid_one_processor)
    string(APPEND properties " RESOURCE_GROUPS processors:1")
  endif()
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake CONTENT
       "include(\"${GEMINID_TEST_SUITES}\")\ngeminid_add_suites(\"$<TARGET_FILE:${name}>\" ${levels}${properties})\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES
               ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
endfunction()

# geminid_benchmark(NAME SOURCES... LIBS...): one Google Benchmark program.
function(geminid_benchmark name)
  if(NOT GEMINID_HAS_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} benchmark::benchmark)
  set_property(GLOBAL APPEND PROPERTY GEMINID_BENCHMARK_PROGRAMS ${name})
endfunction()
