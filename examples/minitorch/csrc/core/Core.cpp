#include <minitorch/c10.h>

#include <vector>

#include "splitmix64.h"

const char* mini_version(void) { return MINITORCH_VERSION; }

void mini_add(const float* a, const float* b, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

void mini_matmul(const float* a, const float* b, float* out, size_t m, size_t k, size_t n) {
  std::vector<float> column(k);
  for (size_t j = 0; j < n; ++j) {
    for (size_t p = 0; p < k; ++p) column[p] = b[p * n + j];
    for (size_t i = 0; i < m; ++i) {
      float sum = 0;
      for (size_t p = 0; p < k; ++p) sum += a[i * k + p] * column[p];
      out[i * n + j] = sum;
    }
  }
}

void mini_rand(uint64_t seed, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(splitmix64(&seed) >> 40) / 16777216.0f;
}
