# Included at the project() call of every build (CMAKE_PROJECT_TOP_LEVEL_INCLUDES): FindHIP writes a script per kernel
# that calls HIP_HIPCC_EXECUTABLE directly, so CMAKE_HIP_COMPILER_LAUNCHER never sees a kernel.
set(HIP_HIPCC_EXECUTABLE "${CMAKE_CURRENT_LIST_DIR}/hipcc" CACHE FILEPATH "hipcc through ccache")
