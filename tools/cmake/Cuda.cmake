# Finds the CUDA compiler if it is wanted and installed; sets GEMINID_HAS_CUDA. Only the kernels need it:
# plain C++ launches them, and programs load the driver at run time. So nothing links
# libcuda or the CUDA runtime, and one binary starts with and without a GPU.
set(GEMINID_CUDA "AUTO" CACHE STRING
    "CUDA kernels: AUTO (if nvcc is found), NATIVE (if this machine has a GPU, too), ON or OFF")
set_property(CACHE GEMINID_CUDA PROPERTY STRINGS AUTO NATIVE ON OFF)
# Turing, Ampere (data centre, desktop), Ada, Hopper, Blackwell. Newer devices compile the PTX of the
# last one when a program first uses them. The presets with tests build for one architecture: machine
# code for all six takes five times as long to compile.
set(GEMINID_CUDA_ARCHITECTURES "75;80;86;89;90;100" CACHE STRING
    "Compute capabilities that kernels are compiled for, ascending, the last one's PTX too; or native")
set(GEMINID_HAS_CUDA OFF)
if(GEMINID_CUDA_ARCHITECTURES STREQUAL "native" OR GEMINID_CUDA STREQUAL "NATIVE")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE ignored)
  string(REGEX MATCHALL "[0-9]+[.][0-9]" gpus_here "${said}")
  string(REPLACE "." "" gpus_here "${gpus_here}")
  list(SORT gpus_here COMPARE NATURAL)
  list(REMOVE_DUPLICATES gpus_here)
endif()
# "native": the architectures of this machine's GPUs. Without a GPU the oldest: any GPU can compile its PTX.
if(GEMINID_CUDA_ARCHITECTURES STREQUAL "native")
  set(GEMINID_CUDA_ARCHITECTURES 75)
  if(gpus_here)
    set(GEMINID_CUDA_ARCHITECTURES ${gpus_here})
  endif()
endif()

set(geminid_wants_cuda ${GEMINID_CUDA})
if(GEMINID_CUDA STREQUAL "NATIVE")
  set(geminid_wants_cuda AUTO)
  if(NOT gpus_here)
    set(geminid_wants_cuda OFF)
  endif()
endif()
if(geminid_wants_cuda STREQUAL "AUTO" OR geminid_wants_cuda)
  find_program(GEMINID_NVCC nvcc
    HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin
    DOC "The CUDA compiler, 12.8 or newer")
  if(GEMINID_NVCC)
    set(GEMINID_HAS_CUDA ON)
  elseif(NOT geminid_wants_cuda STREQUAL "AUTO")
    message(FATAL_ERROR "GEMINID_CUDA is ON, but nvcc was not found. Put it on the PATH, set "
                        "GEMINID_NVCC to it, or use GEMINID_CUDA=AUTO to build without kernels.")
  endif()
endif()
if(GEMINID_HAS_CUDA)
  list(JOIN GEMINID_CUDA_ARCHITECTURES ", " geminid_architectures)
  message(STATUS "CUDA kernels: on, for sm_${geminid_architectures}")
else()
  message(STATUS "CUDA kernels: off; programs will say that they have none")
endif()

set(GEMINID_KERNEL_COMPILER ${CMAKE_CURRENT_LIST_DIR}/compile-kernels)

# Sets RESULT to nvcc's flags for the architectures.
function(geminid_nvcc_architectures result)
  set(flags "")
  foreach(architecture ${GEMINID_CUDA_ARCHITECTURES})
    list(APPEND flags -gencode "arch=compute_${architecture},code=sm_${architecture}")
    set(newest ${architecture})
  endforeach()
  list(APPEND flags -gencode "arch=compute_${newest},code=compute_${newest}")
  set(${result} ${flags} PARENT_SCOPE)
endfunction()

# geminid_compile_cuda_as_cxx(SOURCES... [DEFINITIONS...]): lets the C++ compiler compile *_cuda.cu files
# of this folder without the kernels' machine code. kernels/runtime/cuda/kernel.cuh says more.
function(geminid_compile_cuda_as_cxx)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEFINITIONS" ${ARGN})
  foreach(source ${ARG_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    set_source_files_properties(${source} PROPERTIES
      LANGUAGE CXX
      COMPILE_OPTIONS "-Wno-unknown-pragmas"
      COMPILE_DEFINITIONS "GEMINID_KERNEL_IMAGE=\"${name}\";${ARG_DEFINITIONS}")
  endforeach()
endfunction()

# geminid_kernel_images(RESULT SOURCES...): compiles every file to a fat binary, writes a report of its
# kernels' registers beside it, and sets RESULT to a source file that embeds all fat binaries.
# Arithmetic equals the host's: every operation is rounded by IEEE-754, multiply-adds are fused only where
# the source says so, and subnormals are kept.
function(geminid_kernel_images result)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/images)
  file(MAKE_DIRECTORY ${folder})
  set(images "")
  set(reports "")
  set(blobs "")
  set(declarations "")
  set(rows "")
  geminid_nvcc_architectures(architectures)
  if(GEMINID_HAS_CUDA)
    foreach(source ${ARG_SOURCES})
      get_filename_component(name ${source} NAME_WE)
      set(image ${folder}/${name}.fatbin)
      add_custom_command(OUTPUT ${image} ${folder}/${name}.ptxas
        COMMAND ${GEMINID_KERNEL_COMPILER} ${folder}/${name} ${GEMINID_NVCC} -fatbin ${source}
                -std=c++20 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
                --expt-relaxed-constexpr -Werror all-warnings
                -I ${PROJECT_SOURCE_DIR} "-DGEMINID_KERNEL_IMAGE=\"${name}\"" ${architectures}
        DEPENDS ${source} ${GEMINID_KERNEL_COMPILER}
        DEPFILE ${folder}/${name}.d
        COMMENT "Kernels of ${name}" VERBATIM)
      list(APPEND images ${image})
      list(APPEND reports ${folder}/${name}.ptxas)
      string(APPEND blobs "asm(\".pushsection .rodata\\n.balign 64\\ngeminid_image_${name}:\\n"
             ".incbin \\\"${image}\\\"\\n.popsection\\n\");\n")
      string(APPEND declarations "extern \"C\" const unsigned char geminid_image_${name}[];\n")
      string(APPEND rows "    {\"${name}\", geminid_image_${name}},\n")
    endforeach()
  endif()
  # Outputs of a deleted source would count as outputs of these.
  file(GLOB stale ${folder}/*.fatbin ${folder}/*.ptxas)
  if(stale)
    list(REMOVE_ITEM stale ${images} ${reports} "")
  endif()
  if(stale)
    file(REMOVE ${stale})
  endif()
  set(count 0)
  list(LENGTH images count)
  file(CONFIGURE OUTPUT ${folder}/images.cc @ONLY CONTENT "// Generated by tools/cmake/Cuda.cmake.
#include <array>

#include \"kernels/runtime/cuda/images.h\"

@declarations@@blobs@
namespace geminid::kernels::cuda {

std::span<const KernelImage> KernelImages() {
  static constexpr std::array<KernelImage, @count@> kImages = {{
@rows@  }};
  return kImages;
}

}  // namespace geminid::kernels::cuda
")
  set_source_files_properties(${folder}/images.cc PROPERTIES OBJECT_DEPENDS "${images}")
  set(${result} ${folder}/images.cc PARENT_SCOPE)
endfunction()
