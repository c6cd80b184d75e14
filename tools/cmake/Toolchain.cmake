# Warnings, sanitizers, and the linker and compiler cache where the machine has them.
add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Werror>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety)
endif()
# Bit-identical numbers need one meaning for every floating-point expression.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

find_program(GEMINID_CCACHE ccache)
if(GEMINID_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${GEMINID_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${GEMINID_CCACHE})
endif()
find_program(GEMINID_MOLD mold)
if(GEMINID_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(GEMINID_SANITIZER STREQUAL "address")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=undefined;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=address,undefined)
elseif(GEMINID_SANITIZER STREQUAL "thread")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread;-fno-omit-frame-pointer>")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The sanitizer does not model fences; the ones we have order stores against a crash, not a race.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
  add_link_options(-fsanitize=thread)
elseif(GEMINID_SANITIZER)
  message(FATAL_ERROR "GEMINID_SANITIZER is '${GEMINID_SANITIZER}'; use address or thread")
endif()
