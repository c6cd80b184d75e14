# Sets language, warnings, sanitizers, and the linker and compiler cache if the machine has them. The settings
# hold only for this project's folders, also if another project includes it.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)  # public classes are marked GEMINID_EXPORT
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
  endif()
endif()
# All programs are in one folder, so that they find each other without an installation.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor>")
if(GEMINID_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety)
endif()
# For all targets, because targets with different options cannot share a precompiled header.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-pthread>)
# Bit-identical results need one meaning for every floating-point expression.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

# Vectorised loops are compiled once for each instruction set. "native" leaves out sets that this CPU lacks.
if(GEMINID_KERNEL_TARGETS STREQUAL "native")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -x c++ -dM -E /dev/null
                  OUTPUT_VARIABLE native_macros ERROR_QUIET RESULT_VARIABLE ignored)
  if(native_macros MATCHES "__x86_64__" AND NOT native_macros MATCHES "__AVX512VL__")
    add_compile_definitions("HWY_BROKEN_TARGETS=(HWY_AVX3|HWY_AVX3_DL)")
  endif()
endif()

find_program(GEMINID_CCACHE ccache)
if(PROJECT_IS_TOP_LEVEL AND GEMINID_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this sloppiness ccache does not cache sources that use a precompiled header.
  set(geminid_sloppiness pch_defines,time_macros,include_file_mtime,include_file_ctime)
  # Paths below the sources are made relative, so that checkouts share what they compile.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=${geminid_sloppiness}
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${GEMINID_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
find_program(GEMINID_MOLD mold)
if(PROJECT_IS_TOP_LEVEL AND GEMINID_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(GEMINID_SANITIZER STREQUAL "address")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=undefined;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=address,undefined)
elseif(GEMINID_SANITIZER STREQUAL "thread")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread;-fno-omit-frame-pointer>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The sanitizer does not model fences. Our fences order stores for a crash, not for another thread.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
  add_link_options(-fsanitize=thread)
elseif(GEMINID_SANITIZER)
  message(FATAL_ERROR "GEMINID_SANITIZER is '${GEMINID_SANITIZER}'; use address or thread")
endif()
