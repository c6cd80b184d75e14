# geminid_library(NAME SOURCES... LIBS... [PRIVATE_LIBS...] [PRECOMPILED name]): a static library
# whose headers are included by their path from the root of the repository, the public ones as
# "geminid/x.h".
function(geminid_library name)
  cmake_parse_arguments(ARG "" "PRECOMPILED" "SOURCES;LIBS;PRIVATE_LIBS" ${ARGN})
  if(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED base)
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PUBLIC ${ARG_LIBS} PRIVATE ${ARG_PRIVATE_LIBS})
  geminid_use_precompiled(${name} ${ARG_PRECOMPILED})
endfunction()

# geminid_header_library(NAME LIBS...): the same for headers alone.
function(geminid_header_library name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_library(${name} INTERFACE)
  target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} INTERFACE ${ARG_LIBS})
endfunction()

# Tests spend their time in the libraries, which are optimised as ever. With -O1 the compiler warns
# falsely of uninitialised variables.
set(GEMINID_TEST_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O1;-Wno-maybe-uninitialized>")

set(GEMINID_TEST_SUITES ${CMAKE_CURRENT_LIST_DIR}/TestSuites.cmake)

# geminid_test(NAME SOURCES... LIBS... [LABELS...] [TIMEOUT seconds] [SERIAL] [PRECOMPILED name]): one
# GoogleTest program, one ctest entry per suite: PROGRAM.SUITE. The time limit is a suite's.
function(geminid_test name)
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT;PRECOMPILED" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED test)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${GEMINID_TEST_OPTIONS})
  geminid_use_precompiled(${name} ${ARG_PRECOMPILED})
  set(properties "TIMEOUT ${ARG_TIMEOUT} WORKING_DIRECTORY \"${CMAKE_CURRENT_BINARY_DIR}\"")
  if(ARG_LABELS)
    string(APPEND properties " LABELS \"${ARG_LABELS}\"")
  endif()
  if(ARG_SERIAL)
    string(APPEND properties " RUN_SERIAL ON")
  endif()
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake CONTENT
       "include(\"${GEMINID_TEST_SUITES}\")\ngeminid_add_suites(\"$<TARGET_FILE:${name}>\" ${properties})\n")
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
