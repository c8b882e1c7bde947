// Stands for HIP's header of this name: the words of the language that it defines, as far as `tidegate.cuh` could define
// them a second time. For a check that users' sources compile (`cargo xtask kernels`).
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

struct Coordinate {
    __device__ operator unsigned() const { return __builtin_amdgcn_workitem_id_x(); }
};
struct Coordinates {
    Coordinate x, y, z;
};
static const __device__ Coordinates threadIdx, blockIdx, blockDim, gridDim;

__device__ inline unsigned long long atomicAdd(unsigned long long *at, unsigned long long value) {
    return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
__device__ inline void __syncthreads() { __builtin_amdgcn_s_barrier(); }
__device__ inline unsigned __popc(unsigned bits) { return __builtin_popcount(bits); }
__device__ inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
__device__ inline float __uint_as_float(unsigned value) { return __builtin_bit_cast(float, value); }
__device__ inline long long __double_as_longlong(double value) { return __builtin_bit_cast(long long, value); }
__device__ inline double __longlong_as_double(long long value) { return __builtin_bit_cast(double, value); }
__device__ inline double __dadd_rn(double a, double b) { return a + b; }
__device__ inline double __dmul_rn(double a, double b) { return a * b; }
