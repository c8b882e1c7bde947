// The machine of AMD GPUs: clang's atomics with scopes, and the words of the device's language, so that no header of a
// toolkit is needed. The command that compiles a source includes `machine.cuh` before it.
//
// # Remarks
//
// The order of an access is not in its instruction, but in the instructions around it. `SAYS` writes a remark into the
// assembly, beside the access. A check of the assembly (`xtask/src/isa`) follows all paths, and finds these remarks:
//
//   SCOPE           the next access is made at that scope: `system`, or `device`
//   releases SCOPE  the next access is made at that scope, and all earlier stores of this thread are visible there
//   acquired SCOPE  the last access at that scope has been awaited, and nothing that is read from here on is older
//   fenced SCOPE    both, at this place
//   follows SCOPE   the next access is made at that scope, and a fence comes before it on every path
//
// # Weaknesses of the compiler
//
// Clang (up to 22, at least) leaves out some waits of a release. It does not await the write-back of the cache where
// it knows of no access of this thread. On gfx11 it forgets a store of the round before in a loop. And on gfx9 a
// barrier of the block does not await the stores of the other waves, so one thread's release would not cover them.
// `drain` awaits all of these. On gfx10 and gfx11 a release is nothing but waits. So there `drain` replaces the compiler's
// fence, which would wait a second time.

// Threads of a wave, which go on together.
#if defined(__GFX9__)
#define WARP 64
#else
#define WARP 32
#endif

// A launch begins when the one before is over.
#define BEGINS_EARLY 0

// ---- The language ----

#define DEV __device__ __forceinline__
// For functions that are too large to be inlined everywhere: the call costs less than the registers would.
#define APART __device__ __noinline__

// A user's source has the words of its toolkit, and nothing here changes them.
#if !defined(TIDEGATE_OWN_MACHINE)
#define alignas(bytes) __attribute__((aligned(bytes)))
// `libhiprtc` includes a header of its own before a source, which has the words of the language.
#if defined(__HIPCC_RTC__)
#undef __launch_bounds__
#else
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#endif
#undef __grid_constant__
#define __grid_constant__
// With the number of blocks of a compute unit, which has four units for waves.
#define __launch_bounds__(...) TIDEGATE_BOUNDS(__VA_ARGS__, TIDEGATE_BLOCKS, TIDEGATE_THREADS)(__VA_ARGS__)
#define TIDEGATE_BOUNDS(first, second, chosen, ...) chosen
#define TIDEGATE_THREADS(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define TIDEGATE_BLOCKS(threads, blocks) \
    __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(threads * blocks / WARP / 4)))

#if !defined(__HIPCC_RTC__)
namespace machine {
// The launch's sizes are behind the arguments: three numbers of blocks, and three of threads of a block.
DEV u32 blocks(int k) { return ((__attribute__((address_space(4))) const u32 *)__builtin_amdgcn_implicitarg_ptr())[k]; }
DEV u32 threads(int k) { return ((__attribute__((address_space(4))) const u16 *)__builtin_amdgcn_implicitarg_ptr())[6 + k]; }

struct ThreadIndex {
    struct { DEV operator u32() const { return __builtin_amdgcn_workitem_id_x(); } } x;
    struct { DEV operator u32() const { return __builtin_amdgcn_workitem_id_y(); } } y;
    struct { DEV operator u32() const { return __builtin_amdgcn_workitem_id_z(); } } z;
};
struct BlockIndex {
    struct { DEV operator u32() const { return __builtin_amdgcn_workgroup_id_x(); } } x;
    struct { DEV operator u32() const { return __builtin_amdgcn_workgroup_id_y(); } } y;
    struct { DEV operator u32() const { return __builtin_amdgcn_workgroup_id_z(); } } z;
};
struct BlockSize {
    struct { DEV operator u32() const { return threads(0); } } x;
    struct { DEV operator u32() const { return threads(1); } } y;
    struct { DEV operator u32() const { return threads(2); } } z;
};
struct GridSize {
    struct { DEV operator u32() const { return blocks(0); } } x;
    struct { DEV operator u32() const { return blocks(1); } } y;
    struct { DEV operator u32() const { return blocks(2); } } z;
};

template <typename To, typename From>
DEV To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
}  // namespace machine

#define threadIdx (machine::ThreadIndex())
#define blockIdx (machine::BlockIndex())
#define blockDim (machine::BlockSize())
#define gridDim (machine::GridSize())

DEV u32 __float_as_uint(float value) { return machine::same_bits<u32>(value); }
DEV float __uint_as_float(u32 value) { return machine::same_bits<float>(value); }
DEV i64 __double_as_longlong(double value) { return machine::same_bits<i64>(value); }
DEV double __longlong_as_double(i64 value) { return machine::same_bits<double>(value); }
DEV int __popc(u32 bits) { return __builtin_popcount(bits); }
// Sums and products are never fused: the sources are compiled without that.
DEV double __dadd_rn(double a, double b) { return a + b; }
DEV double __dmul_rn(double a, double b) { return a * b; }
#endif
#endif

// ---- Order ----

#define SAYS(remark) asm volatile("; tidegate: " remark ::: "memory")
#define AT_SYSTEM __HIP_MEMORY_SCOPE_SYSTEM
#define AT_DEVICE __HIP_MEMORY_SCOPE_AGENT

namespace machine {
#if defined(__GFX10__) || defined(__GFX11__)
// Nothing moves across these.
#define FENCE_BEFORE_DRAIN(scope) asm volatile("" ::: "memory")
#define FENCE_BEHIND_BARRIER() asm volatile("buffer_gl0_inv" ::: "memory")
#else
#define FENCE_BEFORE_DRAIN(scope) __builtin_amdgcn_fence(__ATOMIC_RELEASE, scope)
#define FENCE_BEHIND_BARRIER() __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup")
#endif

// The address of a word of global memory.
template <typename T>
DEV __attribute__((address_space(1))) T *global(u64 at) { return (__attribute__((address_space(1))) T *)at; }

DEV void drain() {
#if defined(__GFX9__)
    __builtin_amdgcn_s_waitcnt(0);
#elif defined(__GFX10__) || defined(__GFX11__)
    __builtin_amdgcn_s_waitcnt(0);
    // Here stores have a counter of their own.
    asm volatile("s_waitcnt_vscnt null, 0x0" ::: "memory");
#else
    // Here each kind of access has one.
    asm volatile("s_wait_loadcnt 0x0\n\ts_wait_storecnt 0x0\n\ts_wait_dscnt 0x0" ::: "memory");
#endif
}
DEV void release() {
    FENCE_BEFORE_DRAIN("");
    drain();
}
DEV void release_device() {
    FENCE_BEFORE_DRAIN("agent");
    drain();
}
template <typename T>
DEV T load(u64 at) {
    SAYS("system");
    return __hip_atomic_load(global<T>(at), __ATOMIC_RELAXED, AT_SYSTEM);
}
template <typename T>
DEV void store(u64 at, T value) {
    SAYS("system");
    __hip_atomic_store(global<T>(at), value, __ATOMIC_RELAXED, AT_SYSTEM);
}
template <typename T>
DEV void store_release(u64 at, T value) {
    release();
    SAYS("releases system");
    __hip_atomic_store(global<T>(at), value, __ATOMIC_RELAXED, AT_SYSTEM);
}
template <typename T>
DEV T swap(u64 at, T compare, T value) {
    SAYS("system");
    const int order = __ATOMIC_RELAXED;
    __hip_atomic_compare_exchange_strong(global<T>(at), &compare, value, order, order, AT_SYSTEM);
    return compare;
}
template <typename T>
DEV void add(u64 at, T value) {
    SAYS("system");
    __hip_atomic_fetch_add(global<T>(at), value, __ATOMIC_RELAXED, AT_SYSTEM);
}
}  // namespace machine

DEV u64 load_acquire(u64 at) {
    SAYS("system");
    u64 value = __hip_atomic_load(machine::global<u64>(at), __ATOMIC_ACQUIRE, AT_SYSTEM);
    SAYS("acquired system");
    return value;
}
DEV u64 load_relaxed(u64 at) { return machine::load<u64>(at); }
DEV u32 load_relaxed32(const u32 *at) { return machine::load<u32>((u64)at); }
DEV void store_relaxed(u64 at, u64 value) { machine::store(at, value); }
DEV void store_release32(u32 *at, u32 value) { machine::store_release((u64)at, value); }
DEV void load_both(u64 at, u64 &first, u64 &second) {
    first = machine::load<u64>(at);
    second = machine::load<u64>(at + 8);
}
DEV void store_both(u64 at, u64 first, u64 second) {
    machine::store(at, first);
    machine::store(at + 8, second);
}
DEV void add_release(u64 at, u64 value) {
    machine::release();
    SAYS("releases system");
    __hip_atomic_fetch_add(machine::global<u64>(at), value, __ATOMIC_RELAXED, AT_SYSTEM);
}
DEV void fence() {
    machine::release();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
    SAYS("fenced system");
}
DEV void add_relaxed(u64 at, u64 value) {
    SAYS("follows system");
    __hip_atomic_fetch_add(machine::global<u64>(at), value, __ATOMIC_RELAXED, AT_SYSTEM);
}
DEV void add_unordered(u64 at, u64 value) { machine::add(at, value); }
DEV void or_release(u64 at, u64 value) {
    machine::release();
    SAYS("releases system");
    __hip_atomic_fetch_or(machine::global<u64>(at), value, __ATOMIC_RELAXED, AT_SYSTEM);
}
DEV u64 add_fetch(u64 at, u64 value) {
    machine::release_device();
    SAYS("releases device");
    u64 old = __hip_atomic_fetch_add(machine::global<u64>(at), value, __ATOMIC_ACQUIRE, AT_DEVICE);
    SAYS("acquired device");
    return old;
}
DEV u64 or_fetch(u64 at, u64 value) {
    machine::release_device();
    SAYS("releases device");
    u64 old = __hip_atomic_fetch_or(machine::global<u64>(at), value, __ATOMIC_ACQUIRE, AT_DEVICE);
    SAYS("acquired device");
    return old;
}
DEV void store_release(u64 at, u64 value) { machine::store_release(at, value); }
DEV void store_register(u64 at, u64 value) {
    SAYS("follows system");
    __hip_atomic_store(machine::global<u64>(at), value, __ATOMIC_RELAXED, AT_SYSTEM);
}
DEV u32 or_fetch32(u32 *at, u32 value) {
    machine::release();
    SAYS("releases system");
    u32 old = __hip_atomic_fetch_or(machine::global<u32>((u64)at), value, __ATOMIC_ACQUIRE, AT_SYSTEM);
    SAYS("acquired system");
    return old;
}
DEV u32 count_to(u64 at, u32 last) {
    SAYS("device");
    return __builtin_amdgcn_atomic_inc32(machine::global<u32>(at), last, __ATOMIC_RELAXED, "agent");
}
// (Of 64 bits, the compiler would count for the whole wave, and do so between the remarks.)
DEV u32 arrive(u64 at, u32 last) {
    machine::release_device();
    SAYS("releases device");
    u32 old = __builtin_amdgcn_atomic_inc32(machine::global<u32>(at), last, __ATOMIC_ACQUIRE, "agent");
    SAYS("acquired device");
    return old;
}
DEV u32 count_down(u32 *at) {
    auto shared = (__attribute__((address_space(3))) u32 *)at;
    return __hip_atomic_fetch_add(shared, -1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
// If all threads added to one word, the compiler would add once for all of them, in another block of the assembly.
DEV u64 of_thread(u64 at) {
    asm volatile("" : "+v"(at));
    return at;
}
DEV u32 swap32(u64 at, u32 compare, u32 value) { return machine::swap(at, compare, value); }
DEV u64 swap64(u64 at, u64 compare, u64 value) { return machine::swap(at, compare, value); }
// Not all memory that peers share has the hardware's atomic additions of floats.
DEV void red_f64(u64 at, double value) {
    u64 old = load_relaxed(at), seen;
    for (;; old = seen) {
        double sum = __longlong_as_double((i64)old) + value;
        seen = swap64(at, old, (u64)__double_as_longlong(sum));
        if (seen == old) return;
    }
}
DEV void red_u64(u64 at, u64 value) { machine::add(at, value); }
DEV void red_u32(u64 at, u32 value) { machine::add(at, value); }
#if !defined(__HIPCC_RTC__) && !defined(TIDEGATE_OWN_MACHINE)
// This has no remark, since the compiler may add up the values of a wave before, in another block of the assembly.
DEV u64 atomicAdd(u64 *at, u64 value) { return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, AT_DEVICE); }
#endif

#if !defined(TIDEGATE_OWN_MACHINE)
DEV float float_of_f16(u16 bits) { return (float)__builtin_bit_cast(_Float16, bits); }
DEV u16 f16_of(float value) { return __builtin_bit_cast(u16, (_Float16)value); }
DEV u16 bf16_of(float value) {
    const u32 bits = __float_as_uint(value);
    // A NaN is quiet, so that it stays one.
    return (u16)(value != value ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
typedef _Float16 F16x2 __attribute__((ext_vector_type(2)));
DEV u32 add_f16x2(u32 a, u32 b) { return __builtin_bit_cast(u32, __builtin_bit_cast(F16x2, a) + __builtin_bit_cast(F16x2, b)); }
DEV u32 add_bf16x2(u32 a, u32 b) {
    const u32 low = bf16_of(__uint_as_float(a << 16) + __uint_as_float(b << 16));
    return low | (u32)bf16_of(__uint_as_float(a & 0xffff0000) + __uint_as_float(b & 0xffff0000)) << 16;
}
#endif

// A unit of `s_sleep` is 64 clocks.
DEV void pause(u32 nanoseconds) {
    if (nanoseconds > 500) __builtin_amdgcn_s_sleep(30);
    else __builtin_amdgcn_s_sleep(2);
}
// The clock has 100 MHz.
#if __has_builtin(__builtin_readsteadycounter)
DEV u64 global_timer() { return __builtin_readsteadycounter() * 10; }
#else
DEV u64 global_timer() { return __builtin_amdgcn_s_memrealtime() * 10; }
#endif
DEV void let_next_come() {}
DEV void wait_for_previous() {}
DEV void assume_global(const void *) {}

DEV void block_barrier() {
    FENCE_BEFORE_DRAIN("workgroup");
    // Otherwise the compiler may begin a load between the waits and the barrier, such as one of a parameter.
    __builtin_amdgcn_sched_barrier(0);
    machine::drain();
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_sched_barrier(0);
    FENCE_BEHIND_BARRIER();
}
DEV void warp_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
// (The word of the language would not await the stores of other waves.)
#if !defined(TIDEGATE_OWN_MACHINE)
#define __syncthreads block_barrier
#endif

// ---- Moves ----

// Loads data of any type, from any memory. (By a pointer to another type, the compiler could move the load before the
// store of the data.)
template <typename T>
DEV T load_data(u64 at) {
    T value;
    __builtin_memcpy(&value, __builtin_assume_aligned((const void *)at, alignof(T)), sizeof(T));
    return value;
}
template <typename T>
DEV void fetch(T &value, u64 at) { value = *machine::global<T>(at); }
template <typename T>
DEV void put(u64 at, T value) { *machine::global<T>(at) = value; }
// As one access.
typedef u32 V4 __attribute__((ext_vector_type(4)));
DEV void fetch(V16 &value, u64 at) {
    V4 all = *machine::global<V4>(at);
    value = {all.x, all.y, all.z, all.w};
}
DEV void put(u64 at, V16 value) { *machine::global<V4>(at) = V4{value.x, value.y, value.z, value.w}; }
