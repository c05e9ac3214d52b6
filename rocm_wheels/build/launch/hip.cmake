# Included at the project() call of every build (CMAKE_PROJECT_TOP_LEVEL_INCLUDES): FindHIP writes a script per kernel
# that calls HIP_HIPCC_EXECUTABLE directly, so CMAKE_HIP_COMPILER_LAUNCHER never sees a kernel. hip-config.cmake sets the
# variable as well, over any entry of the cache: it is set again after each of the two is found.
macro(rocm_wheels_find_hip method name)
  if("${name}" MATCHES "^(hip|HIP)$")
    find_package(${name} ${ARGN} BYPASS_PROVIDER)
    set(HIP_HIPCC_EXECUTABLE "${ROCM_WHEELS_HIPCC}")
  endif()
endmacro()
set(ROCM_WHEELS_HIPCC "${CMAKE_CURRENT_LIST_DIR}/hipcc" CACHE INTERNAL "hipcc through ccache")
cmake_language(SET_DEPENDENCY_PROVIDER rocm_wheels_find_hip SUPPORTED_METHODS FIND_PACKAGE)
