# The CUDA backend: kernels as embedded fatbins, and host code as another module.
#
# CMake's CUDA language is not used and no CUDA library is linked: nvcc compiles each kernels/cuda/FAMILY.cu to a fatbin,
# a generated C file embeds it as cuda_fatbin_FAMILY, and <kernels/cuda/fatbins.h> lists the families. The libraries are
# opened at run time (kernels/cuda/api.c). tests/cuda/check-fatbins reads the output of ptxas, FAMILY.ptxas, and the PTX,
# FAMILY.ptx, both in the folder of the fatbin. A build that only runs on the test doubles has no code for GPUs
# (AMPC_CUDA_CODE), because nvcc would be a quarter of its time; target cuda_fatbins compiles the kernels all the same.
set(AMPC_CUDA_ARCHITECTURES "90" CACHE STRING "Devices with code of their own (90;100); PTX of the last for newer ones")
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
foreach(library cuDNN NVTX)
    string(TOUPPER ${library} prefix)
    if(NOT ${prefix}_INCLUDE_DIR)
        if(AMPC_CUDA STREQUAL ON)
            message(FATAL_ERROR "AMPC_CUDA=ON, but the headers of ${library} were not found")
        endif()
        message(STATUS "CUDA: off, the headers of ${library} were not found")
        return()
    endif()
endforeach()
set(AMPC_CUDA_FOUND TRUE)
set(cuda_include_dirs ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR} ${NVTX_INCLUDE_DIR})

set(cuda_codes)
foreach(arch ${AMPC_CUDA_ARCHITECTURES})
    list(APPEND cuda_codes -gencode arch=compute_${arch},code=sm_${arch})
    set(newest ${arch})
endforeach()
list(APPEND cuda_codes -gencode arch=compute_${newest},code=compute_${newest})
set(cuda_flags -O3 -std=c++17 -lineinfo -I${PROJECT_SOURCE_DIR} -I${CUDNN_INCLUDE_DIR} --expt-relaxed-constexpr
    -Werror all-warnings -Xcompiler -Wno-pedantic -Xptxas -v,-warn-spills,-warn-lmem-usage,-Werror)

# Kernels whose ops can also be part of a fused kernel must compute bitwise the same there (kernels/fused.h).
set(cuda_flags_pointwise -fmad=false)
set(cuda_flags_dropout -fmad=false)
set(cuda_flags_random -fmad=false)

set(cuda_folder ${generated}/kernels/cuda)
file(MAKE_DIRECTORY ${cuda_folder})
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
set(header "/* Generated from kernels/cuda/. */\n#pragma once\n#define CUDA_FAMILY_MAP(X)")
set(source "/* Generated from kernels/cuda/. */\n")
set(cuda_fatbins)
foreach(kernels ${cuda_kernels})
    get_filename_component(family ${kernels} NAME_WE)
    set(fatbin ${cuda_folder}/${family}.fatbin)
    set(image ".byte 0")
    if(AMPC_CUDA_CODE)
        set(image ".incbin \\\"${fatbin}\\\"")
    endif()
    add_custom_command(
        OUTPUT ${fatbin}
        COMMAND sh -c "\"$@\" 2> ${cuda_folder}/${family}.ptxas || { cat ${cuda_folder}/${family}.ptxas >&2; exit 1; }" nvcc
                ${CUDAToolkit_NVCC_EXECUTABLE} -fatbin ${cuda_codes} ${cuda_flags} ${cuda_flags_${family}}
                -keep -keep-dir ${cuda_folder} -MD -MF ${fatbin}.d -MT ${fatbin} ${kernels} -o ${fatbin}
        DEPENDS ${kernels} DEPFILE ${fatbin}.d
        COMMENT "CUDA kernels ${family}" VERBATIM)
    list(APPEND cuda_fatbins ${fatbin})
    string(APPEND header " \\\n    X(${family})")
    string(APPEND source "__asm__(\".section .rodata\\n\"
        \".balign 16\\n.globl cuda_fatbin_${family}\\n.hidden cuda_fatbin_${family}\\n\"
        \"cuda_fatbin_${family}: ${image}\\n.text\\n\");\n")
endforeach()
string(APPEND source "extern const char cuda_fatbins_embedded[];\nconst char cuda_fatbins_embedded[] = \"yes\";\n")
file(CONFIGURE OUTPUT ${cuda_folder}/fatbins.h CONTENT "${header}\n" @ONLY)
file(CONFIGURE OUTPUT ${cuda_folder}/fatbins.c CONTENT "${source}" @ONLY)
if(AMPC_CUDA_CODE)
    set_source_files_properties(${cuda_folder}/fatbins.c PROPERTIES OBJECT_DEPENDS "${cuda_fatbins}")
endif()
add_custom_target(cuda_fatbins DEPENDS ${cuda_fatbins})

# Embed the text of the headers that kernels compiled at run time include.
set(header_names kernels/cuda/fused.cuh kernels/cuda/fused.h kernels/cuda/device.cuh kernels/cuda/element.cuh
    kernels/cuda/fold.cuh kernels/cuda/dropout.cuh kernels/cuda/math.cuh kernels/fault.h
    ir/ops/formulas_each.h ir/ops/formulas_body.h ir/ops/formulas.def ir/ops/gelu_body.h ir/ops/real.h ir/base/philox.h)
set(source "/* Generated from the headers that it names. */\n#include \"kernels/cuda/generate.h\"\n")
set(table)
set(number 0)
foreach(name ${header_names})
    string(APPEND source "extern const char cuda_header_${number}[];\n__asm__(\".section .rodata\\n\"
        \".globl cuda_header_${number}\\n.hidden cuda_header_${number}\\n\"
        \"cuda_header_${number}: .incbin \\\"${PROJECT_SOURCE_DIR}/${name}\\\"\\n.byte 0\\n.text\\n\");\n")
    string(APPEND table "    {\"${name}\", cuda_header_${number}},\n")
    math(EXPR number "${number} + 1")
endforeach()
string(APPEND source "const cuda_header cuda_headers[] = {\n${table}    /* there is no such header in NVRTC */\n"
    "    {\"stdint.h\", \"\"},\n};\nconst int cuda_header_count = (int)(sizeof cuda_headers / sizeof *cuda_headers);\n")
file(CONFIGURE OUTPUT ${cuda_folder}/headers.c CONTENT "${source}" @ONLY)
list(TRANSFORM header_names PREPEND ${PROJECT_SOURCE_DIR}/)
set_source_files_properties(${cuda_folder}/headers.c PROPERTIES OBJECT_DEPENDS "${header_names}")

# Embed a substitute libcuda.so.1, which cuDNN loads when planning for a device from its description alone.
set(cuda_driver ${cuda_folder}/driver/libcuda.so.1)
add_library(cuda_driver SHARED ${PROJECT_SOURCE_DIR}/kernels/cuda/driver/libcuda.c)
set_target_properties(cuda_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${cuda_folder}/driver
    C_VISIBILITY_PRESET default)
target_compile_options(cuda_driver PRIVATE -Wall -Wextra -Wpedantic $<$<BOOL:${AMPC_WERROR}>:-Werror>)
file(CONFIGURE OUTPUT ${cuda_folder}/driver_image.c @ONLY CONTENT "/* Generated: the bytes of libcuda.so.1. */
__asm__(\".section .rodata\\n.globl cuda_driver_image, cuda_driver_image_end\\n\"
        \".hidden cuda_driver_image, cuda_driver_image_end\\n\"
        \"cuda_driver_image: .incbin \\\"${cuda_driver}\\\"\\ncuda_driver_image_end: .byte 0\\n.text\\n\");
extern const char cuda_driver_embedded[];
const char cuda_driver_embedded[] = \"yes\";
")
set_source_files_properties(${cuda_folder}/driver_image.c PROPERTIES OBJECT_DEPENDS ${cuda_driver})

file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.c)
add_library(module_kernels_cuda OBJECT ${cuda_sources} ${cuda_folder}/fatbins.c ${cuda_folder}/headers.c
    ${cuda_folder}/driver_image.c)
add_dependencies(module_kernels_cuda cuda_driver)
target_link_libraries(module_kernels_cuda PRIVATE ampc_flags)
target_include_directories(module_kernels_cuda SYSTEM PRIVATE ${cuda_include_dirs})
list(APPEND objects $<TARGET_OBJECTS:module_kernels_cuda>)
message(STATUS "CUDA: toolkit ${CUDAToolkit_VERSION}, code for ${AMPC_CUDA_ARCHITECTURES}")
