# cpack makes the Debian packages geminid (the daemon), geminid-tools, libgeminid0.1 and libgeminid-dev.
# tools/package builds, checks and tests them.
set(GEMINID_MAINTAINER "The Geminid Authors <geminid@localhost>" CACHE STRING
  "Whom the packages name: a name and an address")
set(abi ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)

# The files in every package: the copyright and the changelog.
set(daemon_package geminid)
set(tools_package geminid-tools)
set(client_package libgeminid${abi})
set(dev_package libgeminid-dev)
file(READ ${debian}/changelog changelog)
string(REGEX REPLACE "^geminid \\([^)]*\\)" "geminid (${PROJECT_VERSION})" changelog "${changelog}")
string(REPLACE "MAINTAINER" "${GEMINID_MAINTAINER}" changelog "${changelog}")
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog CONTENT "${changelog}" @ONLY)
add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog.gz
  COMMAND gzip -9nk -f changelog
  DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog
  WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/debian VERBATIM)
add_custom_target(geminid_debian ALL DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog.gz)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  foreach(component daemon tools client dev)
    install(FILES ${debian}/copyright ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog.gz
      DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${${component}_package} COMPONENT ${component})
    install(FILES ${debian}/lintian-overrides RENAME ${${component}_package}
      DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${component})
  endforeach()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME geminid)
set(CPACK_PACKAGE_VENDOR "The Geminid Authors")
set(CPACK_PACKAGE_CONTACT "${GEMINID_MAINTAINER}")
set(CPACK_PACKAGE_HOMEPAGE_URL "${PROJECT_HOMEPAGE_URL}")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL daemon tools client dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME ${daemon_package})
set(CPACK_DEBIAN_DAEMON_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DAEMON_PACKAGE_DEPENDS "adduser")
set(CPACK_DEBIAN_DAEMON_PACKAGE_RECOMMENDS ${tools_package})
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA
  ${debian}/postinst ${debian}/prerm ${debian}/postrm ${debian}/conffiles)
set(CPACK_COMPONENT_DAEMON_DESCRIPTION "one memory for GPU, host and disk: the service
A daemon that owns the memory of a node and moves chunks of tensors between
GPU, host and disk, for training models that do not fit.

This package has the daemon, its configuration and its systemd units.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME ${tools_package})
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS ${daemon_package})
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "one memory for GPU, host and disk: tools and trainer
A daemon that owns the memory of a node and moves chunks of tensors between
GPU, host and disk, for training models that do not fit.

This package has geminictl, the reference trainer geminid-train, the simulator
geminid-sim and geminid-gpu-verify.")

set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME ${client_package})
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_CLIENT_PACKAGE_RECOMMENDS ${daemon_package})
set(CPACK_DEBIAN_CLIENT_PACKAGE_CONTROL_EXTRA ${debian}/triggers)
set(CPACK_COMPONENT_CLIENT_DESCRIPTION "one memory for GPU, host and disk: client library
A daemon that owns the memory of a node and moves chunks of tensors between
GPU, host and disk, for training models that do not fit.

This package has the library that trainers link.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME ${dev_package})
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEV_DESCRIPTION "one memory for GPU, host and disk: development files
A daemon that owns the memory of a node and moves chunks of tensors between
GPU, host and disk, for training models that do not fit.

This package has the headers, and the files of CMake and pkg-config.")
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/tools/cmake/PackageTime.cmake)
include(CPack)
