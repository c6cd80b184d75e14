# Precompiles headers of other projects, never our own, once per layer: parsing them took most of the build
# time. A source file still includes all headers that it uses. The preset asan precompiles
# nothing, and so finds missing includes.
set(geminid_standard_headers
  <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstring>
  <deque> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream>
  <string> <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector>)
set(geminid_absl_headers
  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/str_split.h>
  <absl/time/time.h>)
set(geminid_grpc_headers <google/protobuf/message.h> <grpcpp/grpcpp.h>)
include(CheckIncludeFileCXX)
check_include_file_cxx(immintrin.h GEMINID_HAS_IMMINTRIN_H)
set(geminid_intrinsics_header "")
if(GEMINID_HAS_IMMINTRIN_H)
  set(geminid_intrinsics_header <immintrin.h>)
endif()
set(geminid_test_headers <gmock/gmock.h> <gtest/gtest.h>)

# geminid_precompile(NAME HEADERS... LIBS... [OPTIONS...] [PROGRAMS]): makes headers for targets with
# PRECOMPILED NAME. Headers of programs differ from those of libraries by -fPIE.
function(geminid_precompile name)
  cmake_parse_arguments(ARG "PROGRAMS" "" "HEADERS;LIBS;OPTIONS" ${ARGN})
  if(NOT GEMINID_PRECOMPILED_HEADERS)
    return()
  endif()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled/${name}.cc CONTENT "")
  add_library(geminid_precompiled_${name} OBJECT ${PROJECT_BINARY_DIR}/precompiled/${name}.cc)
  if(ARG_PROGRAMS)
    set_target_properties(geminid_precompiled_${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    list(APPEND ARG_OPTIONS -fPIE)
  endif()
  target_compile_options(geminid_precompiled_${name} PRIVATE ${ARG_OPTIONS})
  target_link_libraries(geminid_precompiled_${name} PRIVATE ${ARG_LIBS})
  target_precompile_headers(geminid_precompiled_${name} PRIVATE ${ARG_HEADERS})
endfunction()

# geminid_use_precompiled(TARGET NAME): NAME as above, or NONE.
function(geminid_use_precompiled target name)
  if(GEMINID_PRECOMPILED_HEADERS AND NOT name STREQUAL "NONE")
    target_precompile_headers(${target} REUSE_FROM geminid_precompiled_${name})
  endif()
endfunction()

geminid_precompile(base HEADERS ${geminid_standard_headers} ${geminid_absl_headers}
  LIBS absl::status absl::statusor absl::strings absl::str_format absl::time)
# Highway includes the intrinsics. Its own headers cannot be precompiled.
geminid_precompile(kernels HEADERS ${geminid_standard_headers} ${geminid_intrinsics_header}
  OPTIONS ${GEMINID_KERNEL_OPTIONS})
geminid_precompile(grpc
  HEADERS ${geminid_standard_headers} ${geminid_absl_headers} ${geminid_grpc_headers}
  LIBS absl::status absl::statusor absl::strings absl::str_format absl::time gRPC::grpc++)
if(GEMINID_HAS_TESTS)
  geminid_precompile(program_grpc PROGRAMS
    HEADERS ${geminid_standard_headers} ${geminid_absl_headers} ${geminid_grpc_headers}
    LIBS absl::status absl::statusor absl::strings absl::str_format absl::time gRPC::grpc++)
  geminid_precompile(test PROGRAMS OPTIONS ${GEMINID_TEST_OPTIONS}
    HEADERS ${geminid_standard_headers} ${geminid_absl_headers} ${geminid_test_headers}
    LIBS absl::status absl::statusor absl::strings absl::str_format absl::time GTest::gmock)
  geminid_precompile(process_test PROGRAMS OPTIONS ${GEMINID_PROCESS_TEST_OPTIONS}
    HEADERS ${geminid_standard_headers} ${geminid_absl_headers} ${geminid_test_headers}
    LIBS absl::status absl::statusor absl::strings absl::str_format absl::time GTest::gmock)
  geminid_precompile(test_grpc PROGRAMS OPTIONS ${GEMINID_TEST_OPTIONS}
    HEADERS ${geminid_standard_headers} ${geminid_absl_headers} ${geminid_grpc_headers}
            ${geminid_test_headers}
    LIBS absl::status absl::statusor absl::strings absl::str_format absl::time gRPC::grpc++
         GTest::gmock)
endif()
