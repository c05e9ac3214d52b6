// libmini_c10_cuda: the device and its memory. Codes are those of cudaError_t; 0 is success.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// The number of devices in *count; the code says why there are none.
int mini_cuda_device_count(int* count);
const char* mini_cuda_error_string(int code);
int mini_cuda_to_device(const float* host, float** device, size_t count);
int mini_cuda_to_host(const float* device, float* host, size_t count);
int mini_cuda_fill(float* device, float value, size_t count);
void mini_cuda_free(float* device);
// Whether the profiler's marker library is installed; it is optional and opened by name.
int mini_cuda_has_profiler(void);

#ifdef __cplusplus
}
#endif
