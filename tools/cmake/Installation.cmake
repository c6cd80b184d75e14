# Rules of `cmake --install`. Components: daemon, tools, client (the library at run time), dev (headers,
# CMake package, pkg-config). The component verification is installed only by name. It has the programs
# that check a GPU, its driver and this project's speed against the expectations of the others.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS geminid_library EXPORT geminid
  RUNTIME COMPONENT client
  LIBRARY COMPONENT client NAMELINK_COMPONENT dev
  ARCHIVE COMPONENT dev
  FILE_SET HEADERS COMPONENT dev)
# The headers of geminid_c are installed with those of the library above.
install(TARGETS geminid_c EXPORT geminid LIBRARY COMPONENT client NAMELINK_COMPONENT dev)
if(GEMINID_HAS_DAEMON)
  install(TARGETS geminid geminid-agent geminid-holder RUNTIME COMPONENT daemon)
endif()
if(GEMINID_HAS_TOOLS)
  install(TARGETS geminictl geminid-train geminid-sim geminid-gpu-verify RUNTIME COMPONENT tools)
endif()
# Debian ships the licence's text, and packages refer to it.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT client)
endif()
if(GEMINID_HAS_TESTS AND GEMINID_HAS_BENCHMARKS AND GEMINID_HAS_CUDA)
  get_property(benchmarks GLOBAL PROPERTY GEMINID_BENCHMARK_PROGRAMS)
  set(verification geminid-driver-conformance geminid-kernel-check geminid_device_test ${benchmarks})
  install(TARGETS ${verification} RUNTIME COMPONENT verification EXCLUDE_FROM_ALL)
  set(gpu_verify ${PROJECT_SOURCE_DIR}/tools/gpu-verify)
  install(PROGRAMS ${gpu_verify}/run-on-device ${gpu_verify}/train-on-device ${gpu_verify}/measure-on-device
                   ${gpu_verify}/torch-on-device ${gpu_verify}/answers.py ${gpu_verify}/first_cause.py
                   ${PROJECT_SOURCE_DIR}/tools/bench/beside-pytorch
    DESTINATION gpu-verify COMPONENT verification EXCLUDE_FROM_ALL)
  install(FILES ${gpu_verify}/gpu_memory.py ${gpu_verify}/killed.py ${gpu_verify}/torch_items.py
                ${PROJECT_SOURCE_DIR}/docs/gpu-predictions.json
    DESTINATION gpu-verify COMPONENT verification EXCLUDE_FROM_ALL)
  # For torch-on-device: the package (its library and daemon are those beside it), and the steps of its tests.
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/geminid DESTINATION gpu-verify/torch
    COMPONENT verification EXCLUDE_FROM_ALL PATTERN __pycache__ EXCLUDE)
  install(FILES ${PROJECT_SOURCE_DIR}/tests/python/models.py ${PROJECT_SOURCE_DIR}/tests/python/steps.py
                ${PROJECT_SOURCE_DIR}/tests/python/twins.py ${PROJECT_SOURCE_DIR}/tests/python/differences.py
    DESTINATION gpu-verify/torch COMPONENT verification EXCLUDE_FROM_ALL)
  # The text that the models of verification train on.
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION gpu-verify/text
    COMPONENT verification EXCLUDE_FROM_ALL FILES_MATCHING PATTERN *.md PATTERN pictures EXCLUDE)
endif()
include(Service)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/geminid)
set(templates ${PROJECT_SOURCE_DIR}/tools/cmake/package)
install(EXPORT geminid NAMESPACE geminid:: FILE geminidTargets.cmake
  DESTINATION ${package_folder} COMPONENT dev)
configure_package_config_file(${templates}/geminidConfig.cmake.in geminidConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
# Before 1.0.0 a minor version may change any interface.
write_basic_package_version_file(geminidConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/geminidConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/geminidConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT dev)

# Folders in the .pc file are relative to the file, so that the prefix can be moved.
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_from_pkgconfig
  ${CMAKE_INSTALL_PREFIX}/${pkgconfig_folder} ${CMAKE_INSTALL_PREFIX})
if(BUILD_SHARED_LIBS)
  set(pkgconfig_private "")
  set(pkgconfig_libs_private "")
else()
  set(pkgconfig_private "grpc++ protobuf libhwy")
  if(URING_FOUND)
    string(APPEND pkgconfig_private " liburing")
  endif()
  set(pkgconfig_libs_private "-ldnnl")  # oneDNN has no .pc file
endif()
configure_file(${templates}/geminid.pc.in geminid.pc @ONLY)
configure_file(${templates}/geminid_c.pc.in geminid_c.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/geminid.pc ${CMAKE_CURRENT_BINARY_DIR}/geminid_c.pc DESTINATION ${pkgconfig_folder} COMPONENT dev)

# Everything that tools/tarball packs, and the programs that test it.
if(TARGET geminid-driver-conformance AND TARGET geminid_manuals)
  add_custom_target(geminid_portable)
  add_dependencies(geminid_portable geminid_library geminid-holder geminid_manuals ${verification}
    geminid-with-double)
endif()

if(PROJECT_IS_TOP_LEVEL AND GEMINID_HAS_DAEMON AND GEMINID_HAS_TOOLS AND Python3_FOUND)
  include(Packages)
endif()
