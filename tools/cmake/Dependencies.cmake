# Every dependency is a Debian 12 package; tools/install-packages installs them.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)      # module mode: Debian ships no ProtobufConfig.cmake
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(Gloo CONFIG REQUIRED)   # the target is plain `gloo`
find_package(OpenSSL REQUIRED)
find_package(hwy CONFIG QUIET)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(NUMA REQUIRED IMPORTED_TARGET numa)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)

# oneDNN: its package file looks for OpenCL headers that Debian does not ship beside it.
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(geminid_dnnl INTERFACE)
target_include_directories(geminid_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(geminid_dnnl INTERFACE ${DNNL_LIBRARY})

if(GEMINID_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  # A solver of linear programs that checks the planner's bound; it comes without a package file.
  find_path(GLPK_INCLUDE_DIR glpk.h REQUIRED)
  find_library(GLPK_LIBRARY glpk REQUIRED)
  include(GoogleTest)
endif()
if(GEMINID_BUILD_BENCHMARKS)
  find_package(benchmark CONFIG REQUIRED)
endif()
