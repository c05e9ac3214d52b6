#include "CUDAContext.h"

#include <dlfcn.h>

int mini_cuda_has_profiler(void) {
  static void* library = dlopen("libnvToolsExt.so", RTLD_LAZY | RTLD_LOCAL);
  return library != nullptr;
}
