# Read when cpack runs, with the version that the packages get then.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "${CPACK_DEBIAN_CLIENT_PACKAGE_NAME} (= ${CPACK_PACKAGE_VERSION}), libabsl-dev")
# Each package's description begins with a summary of its own.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
