// libmini_c10: what needs no GPU. All arrays are dense, row-major float32.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

const char* mini_version(void);
void mini_add(const float* a, const float* b, float* out, size_t count);
// out[m][n] = a[m][k] * b[k][n]
void mini_matmul(const float* a, const float* b, float* out, size_t m, size_t k, size_t n);
// Uniform in [0, 1), the same on every machine for the same seed.
void mini_rand(uint64_t seed, float* out, size_t count);

#ifdef __cplusplus
}
#endif
