# Options for the parts to build. AUTO: the part is on if its packages are found. ON: missing packages stop
# the configuration. As part of another project only the library, and the daemon that it starts, are on by
# default.
if(PROJECT_IS_TOP_LEVEL)
  set(geminid_default AUTO)
else()
  set(geminid_default OFF)
endif()
set(GEMINID_BUILD_DAEMON AUTO CACHE STRING "The daemon: AUTO, ON or OFF")
set(GEMINID_BUILD_TOOLS ${geminid_default} CACHE STRING "The command-line tools: AUTO, ON or OFF")
set(GEMINID_BUILD_TESTS ${geminid_default} CACHE STRING "The tests: AUTO, ON or OFF")
set(GEMINID_BUILD_BENCHMARKS ${geminid_default} CACHE STRING "The benchmarks: AUTO, ON or OFF")
foreach(part DAEMON TOOLS TESTS BENCHMARKS)
  set_property(CACHE GEMINID_BUILD_${part} PROPERTY STRINGS AUTO ON OFF)
endforeach()
option(GEMINID_INSTALL "Make installation rules" ${PROJECT_IS_TOP_LEVEL})
option(GEMINID_WERROR "Treat the compiler's warnings as errors" OFF)
option(GEMINID_PRECOMPILED_HEADERS "Precompile the headers of libraries" ON)
set(GEMINID_KERNEL_OPTIONS "" CACHE STRING "Options of the compiler for kernels, beyond those for all sources")
set(GEMINID_KERNEL_TARGETS "all" CACHE STRING
    "Instruction sets that kernels are compiled for: all, or native (those of this machine)")
set_property(CACHE GEMINID_KERNEL_TARGETS PROPERTY STRINGS all native)
set(GEMINID_SANITIZER "" CACHE STRING "Empty, address (with undefined behaviour) or thread")

# libgeminid is shared unless the standard BUILD_SHARED_LIBS says otherwise.
if(NOT DEFINED BUILD_SHARED_LIBS)
  set(BUILD_SHARED_LIBS ON)
endif()

# geminid_part(PART [MISSING...]): sets GEMINID_HAS_<PART>. MISSING: the dependencies that were not found.
function(geminid_part part)
  string(JOIN ", " missing ${ARGN})
  set(has ON)
  if(NOT GEMINID_BUILD_${part})
    set(has OFF)
    message(STATUS "${part}: off")
  elseif(missing STREQUAL "")
    message(STATUS "${part}: on")
  elseif(GEMINID_BUILD_${part} STREQUAL "AUTO")
    set(has OFF)
    message(STATUS "${part}: off, for want of ${missing}")
  else()
    message(FATAL_ERROR "GEMINID_BUILD_${part} is ON, but it needs ${missing}. Install that "
                        "(tools/install-packages does), or set GEMINID_BUILD_${part}=OFF.")
  endif()
  set(GEMINID_HAS_${part} ${has} PARENT_SCOPE)
endfunction()
