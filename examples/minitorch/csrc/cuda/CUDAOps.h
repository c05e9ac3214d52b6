// libmini_cuda: operations on arrays that lie on the device. Codes as in CUDAContext.h; -1 is an error of the BLAS.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

int mini_cuda_add(const float* a, const float* b, float* out, size_t count);
// *sum lies on the host.
int mini_cuda_sum(const float* a, size_t count, float* sum);
// out[m][n] = a[m][k] * b[k][n]
int mini_cuda_matmul(const float* a, const float* b, float* out, size_t m, size_t k, size_t n);

#ifdef __cplusplus
}
#endif
