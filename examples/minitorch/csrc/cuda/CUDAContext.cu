#include "CUDAContext.h"

#include <cuda_runtime.h>

static __global__ void fill_kernel(float* out, float value, size_t count) {
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < count) out[i] = value;
}

int mini_cuda_device_count(int* count) {
  *count = 0;
  return cudaGetDeviceCount(count);
}

const char* mini_cuda_error_string(int code) {
  return cudaGetErrorString(static_cast<cudaError_t>(code));
}

int mini_cuda_to_device(const float* host, float** device, size_t count) {
  cudaError_t error = cudaMalloc(reinterpret_cast<void**>(device), count * sizeof(float));
  if (error == cudaSuccess) error = cudaMemcpy(*device, host, count * sizeof(float), cudaMemcpyHostToDevice);
  return error;
}

int mini_cuda_to_host(const float* device, float* host, size_t count) {
  return cudaMemcpy(host, device, count * sizeof(float), cudaMemcpyDeviceToHost);
}

int mini_cuda_fill(float* device, float value, size_t count) {
  if (count == 0) return cudaSuccess;
  fill_kernel<<<dim3((count + 255) / 256), dim3(256)>>>(device, value, count);
  return cudaGetLastError();
}

void mini_cuda_free(float* device) {
  (void)cudaFree(device);
}
