# The CUDA compiler, if it is wanted and there; sets GEMINID_HAS_CUDA.
#
# Nothing links libcuda: the driver is found when a program runs, so that one binary starts on
# machines without it.
set(GEMINID_CUDA "AUTO" CACHE STRING "CUDA kernels: AUTO (if a CUDA compiler is found), ON or OFF")
set_property(CACHE GEMINID_CUDA PROPERTY STRINGS AUTO ON OFF)
set(GEMINID_HAS_CUDA OFF)

# Machine code for Ampere and Hopper, and PTX that newer devices compile when a program starts.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()

if(GEMINID_CUDA STREQUAL "AUTO" OR GEMINID_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(GEMINID_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
    if(GEMINID_NVCC)
      set(CMAKE_CUDA_COMPILER ${GEMINID_NVCC})
    endif()
  endif()
  include(CheckLanguage)
  # The check must not inherit C++20, which this CMake does not know for CUDA.
  set(geminid_cxx_standard ${CMAKE_CXX_STANDARD})
  unset(CMAKE_CXX_STANDARD)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # CMake 3.25 ends at C++17 for nvcc, which has C++20 since 12.0.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    set(GEMINID_HAS_CUDA ON)
  elseif(NOT GEMINID_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "GEMINID_CUDA is ON, but no CUDA compiler was found. Put nvcc on the PATH, "
                        "set CUDACXX to it, or use GEMINID_CUDA=AUTO to build without CUDA.")
  endif()
  set(CMAKE_CXX_STANDARD ${geminid_cxx_standard})
endif()
message(STATUS "CUDA: ${GEMINID_HAS_CUDA}")

# geminid_cuda_library(NAME SOURCES... LIBS...): a static library of *_cuda.cu files. Arithmetic as
# on the host: every operation rounded by IEEE-754, no fused multiply-add, subnormals kept.
function(geminid_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-ftz=false;-prec-div=true;-prec-sqrt=true;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Werror>)
  target_link_libraries(${name} PUBLIC ${ARG_LIBS})
endfunction()
