#include "CUDAOps.h"

#include "CUDAContext.h"

#include <cuda_runtime.h>

constexpr int kThreads = 256;

static __global__ void sum_kernel(const float* a, size_t count, float* sum) {
  __shared__ float part[kThreads];
  float mine = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
    mine += a[i];
  part[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) atomicAdd(sum, part[0]);
}

int mini_cuda_sum(const float* a, size_t count, float* sum) {
  *sum = 0;
  float* device = nullptr;
  int error = mini_cuda_to_device(sum, &device, 1);
  if (error == cudaSuccess) {
    sum_kernel<<<dim3(64), dim3(kThreads)>>>(a, count, device);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) error = mini_cuda_to_host(device, sum, 1);
  mini_cuda_free(device);
  return error;
}
