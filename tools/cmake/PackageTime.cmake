# Read when cpack runs. The version of the packages is known only then.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "${CPACK_DEBIAN_CLIENT_PACKAGE_NAME} (= ${CPACK_PACKAGE_VERSION}), libabsl-dev")
# The description of each package begins with its own summary.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
