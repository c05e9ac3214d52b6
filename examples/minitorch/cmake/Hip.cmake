# add_hip_library(name sources…): a shared library of sources below csrc/hip, each compiled by hipcc with an offload
# bundle of its own. The commands stand in build.ninja, with the architectures and the compiler launcher.

if(NOT EXISTS ${PROJECT_SOURCE_DIR}/csrc/hip)
  message(FATAL_ERROR "csrc/hip is missing: run `python tools/amd_build/build_amd.py` first")
endif()

file(READ ${HIP_INCLUDE_DIR}/hip/hip_version.h hip_header)
set(hip_version "")
foreach(part MAJOR MINOR PATCH)
  string(REGEX MATCH "#define HIP_VERSION_${part} +([0-9]+)" _ "${hip_header}")
  list(APPEND hip_version ${CMAKE_MATCH_1})
endforeach()
string(REPLACE ";" "." hip_version "${hip_version}")
set(MINITORCH_HIP_VERSION ${hip_version} CACHE INTERNAL "Version of HIP, for version.py")
set(MINITORCH_ROCM_ARCH "$ENV{PYTORCH_ROCM_ARCH}" CACHE INTERNAL "Architectures, for version.py")

set(hip_flags -x hip -std=c++17 -O2 -fPIC -fno-gpu-rdc -fuse-cuid=none -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.
    -D__HIP_PLATFORM_AMD__ -I${PROJECT_SOURCE_DIR}/include)
foreach(arch ${MINITORCH_ROCM_ARCH})
  list(APPEND hip_flags --offload-arch=${arch})
endforeach()

function(add_hip_library name)
  set(objects "")
  foreach(source ${ARGN})
    set(object ${PROJECT_BINARY_DIR}/hip/${name}/${source}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/hip/${name}
      COMMAND ${CMAKE_HIP_COMPILER_LAUNCHER} ${HIPCC} ${hip_flags} -MD -MF ${object}.d -MT hip/${name}/${source}.o
              -c ${PROJECT_SOURCE_DIR}/csrc/hip/${source} -o ${object}
      DEPENDS ${PROJECT_SOURCE_DIR}/csrc/hip/${source}
      DEPFILE ${object}.d
      COMMENT "Building HIP object ${name}/${source}.o"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  add_library(${name} SHARED ${objects})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()
