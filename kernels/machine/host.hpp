// The machine of a processor: the words of the device's language that C++ lacks, and the primitives. Emulations compile
// the sources with it (`-DTIDEGATE_EMULATED`), each over a machine of its own: the one that tests the batch kernel
// (`crates/gpu/tests/emulation`), the one of the fake driver (`crates/fake-cuda/machine`), and the one that runs Faces
// (`crates/bench/tests/emulation`). Before this file such a machine declares the functions of namespace `machine` that
// are called here (its hooks), and `threadIdx`, `blockIdx` and, if a source has these words, `blockDim` and `gridDim`.
//
// Other processes may use the memory at the same time. So each access to a word that others look at is atomic, with the
// order that it has on a device.

#include <cstddef>
#include <cstdint>
#include <cstring>

#define DEV inline
#define APART __attribute__((noinline))
#define BEGINS_EARLY 1
#ifndef WARP
#define WARP 32
#endif

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
// All shared variables are in one piece, whose contents the machine exchanges when it goes on with another block. (Not
// in a section of that name: g++ forgets a section within a template.)
#define __shared__ static __thread
#define alignas(bytes) __attribute__((aligned(bytes)))

template <typename To, typename From>
static inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline u32 __float_as_uint(float value) { return same_bits<u32>(value); }
static inline float __uint_as_float(u32 value) { return same_bits<float>(value); }
static inline i64 __double_as_longlong(double value) { return same_bits<i64>(value); }
static inline double __longlong_as_double(i64 value) { return same_bits<double>(value); }

// (Not every compiler of a host has a type for these.)
static inline float float_of_f16(u16 bits) {
    const u32 exponent = bits >> 10 & 31, mantissa = bits & 1023, sign = (u32)(bits & 0x8000) << 16;
    // Subnormal numbers are multiples of 2^-24.
    const u32 size = exponent == 0    ? __float_as_uint((float)mantissa / 16777216.0f)
                     : exponent == 31 ? 0x7f800000 | mantissa << 13
                                      : (exponent + 112) << 23 | mantissa << 13;
    return __uint_as_float(size | sign);
}
static inline u16 f16_of(float value) {
    const u32 bits = __float_as_uint(value), size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    if (size > 0x7f800000) return (u16)(sign | 0x7e00 | (size >> 13 & 1023));
    if (size >= 0x47800000) return (u16)(sign | 0x7c00);
    if (size < 0x38800000) {
        // In units of 2^-24, whose bits the processor rounds.
        return (u16)(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000));
    }
    return (u16)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
}
static inline u16 bf16_of(float value) {
    const u32 bits = __float_as_uint(value);
    // A NaN is quiet, so that it stays one.
    return (u16)(value != value ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline u32 add_f16x2(u32 a, u32 b) {
    const u32 low = f16_of(float_of_f16((u16)a) + float_of_f16((u16)b));
    return low | (u32)f16_of(float_of_f16((u16)(a >> 16)) + float_of_f16((u16)(b >> 16))) << 16;
}
static inline u32 add_bf16x2(u32 a, u32 b) {
    const u32 low = bf16_of(__uint_as_float(a << 16) + __uint_as_float(b << 16));
    return low | (u32)bf16_of(__uint_as_float(a & 0xffff0000) + __uint_as_float(b & 0xffff0000)) << 16;
}
template <typename T>
static inline T *atomic(u64 at) {
    if (at % sizeof(T)) machine::fail("an atomic access that is not aligned", at);
    return (T *)at;
}

static inline u64 load_acquire(u64 at) {
    machine::awaits(at);
    u64 value = __atomic_load_n(atomic<u64>(at), __ATOMIC_ACQUIRE);
    machine::found(at, value);
    machine::may_look_again(at, value);
    return value;
}
static inline u64 load_relaxed(u64 at) {
    machine::point();
    u64 value = __atomic_load_n(atomic<u64>(at), __ATOMIC_RELAXED);
    machine::point();
    return value;
}
static inline u32 load_relaxed32(const u32 *at) {
    machine::point();
    machine::looked();
    u32 value = __atomic_load_n(atomic<u32>((u64)at), __ATOMIC_RELAXED);
    machine::point();
    return value;
}
static inline void store_relaxed(u64 at, u64 value) {
    machine::point();
    __atomic_store_n(atomic<u64>(at), value, __ATOMIC_RELAXED);
    machine::point();
}
static inline void store_release32(u32 *at, u32 value) {
    machine::point();
    __atomic_store_n(atomic<u32>((u64)at), value, __ATOMIC_RELEASE);
    machine::point();
}
// Another thread may come between the two, whichever is first.
static inline void load_both(u64 at, u64 &first, u64 &second) {
    second = __atomic_load_n(atomic<u64>(at + 8), __ATOMIC_RELAXED);
    machine::point();
    first = __atomic_load_n(atomic<u64>(at), __ATOMIC_RELAXED);
    machine::point();
}
static inline void store_both(u64 at, u64 first, u64 second) {
    machine::point();
    machine::wrote();
    __atomic_store_n(atomic<u64>(at + 8), second, __ATOMIC_RELAXED);
    machine::point();
    __atomic_store_n(atomic<u64>(at), first, __ATOMIC_RELAXED);
    machine::point();
}
static inline void add_release(u64 at, u64 value) {
    machine::point();
    __atomic_fetch_add(atomic<u64>(at), value, __ATOMIC_RELEASE);
    machine::keeps(at, value);
    machine::added(at);
    machine::point();
}
static inline void add_unordered(u64 at, u64 value) {
    machine::point();
    __atomic_fetch_add(atomic<u64>(at), value, __ATOMIC_RELAXED);
    machine::promises(at);
    machine::added(at);
    machine::point();
}
static inline void fence() { machine::fence(); }
// With the fence before it, a release.
static inline void add_relaxed(u64 at, u64 value) {
    machine::point();
    if (!machine::is_fenced()) machine::fail("an add that releases nothing", at);
    __atomic_fetch_add(atomic<u64>(at), value, __ATOMIC_RELAXED);
    machine::added(at);
    machine::point();
}
static inline void or_release(u64 at, u64 value) {
    machine::point();
    __atomic_fetch_or(atomic<u64>(at), value, __ATOMIC_RELEASE);
    machine::added(at);
    machine::point();
}
static inline u64 add_fetch(u64 at, u64 value) {
    machine::point();
    u64 old = __atomic_fetch_add(atomic<u64>(at), value, __ATOMIC_ACQ_REL);
    machine::point();
    return old;
}
static inline u64 or_fetch(u64 at, u64 value) {
    machine::point();
    u64 old = __atomic_fetch_or(atomic<u64>(at), value, __ATOMIC_ACQ_REL);
    machine::point();
    return old;
}
static inline void store_release(u64 at, u64 value) {
    machine::point();
    __atomic_store_n(atomic<u64>(at), value, __ATOMIC_RELEASE);
    machine::added(at);
    machine::point();
}
static inline void store_register(u64 at, u64 value) {
    machine::point();
    if (!machine::is_fenced()) machine::fail("a store to a register that releases nothing", at);
    __atomic_store_n(atomic<u64>(at), value, __ATOMIC_RELAXED);
    machine::added(at);
    machine::point();
}
static inline u32 or_fetch32(u32 *at, u32 value) {
    machine::point();
    u32 old = __atomic_fetch_or(atomic<u32>((u64)at), value, __ATOMIC_ACQ_REL);
    // The thread that has it may be slow.
    machine::linger();
    return old;
}
static inline u32 count_to(u64 at, u32 last) {
    machine::point();
    u32 old = *atomic<u32>(at);
    *atomic<u32>(at) = old >= last ? 0 : old + 1;
    machine::point();
    return old;
}
template <typename T>
static inline T load_data(u64 at) {
    T value;
    memcpy(&value, (const void *)at, sizeof value);
    return value;
}
static inline u32 arrive(u64 at, u32 last) { return count_to(at, last); }
static inline u64 of_thread(u64 at) { return at; }
static inline u32 count_down(u32 *at) {
    machine::point();
    u32 old = (*at)--;
    machine::point();
    return old;
}
template <typename T>
static inline T swapped(u64 at, T compare, T value) {
    machine::point();
    machine::check(at, sizeof(T), true);
    T old = compare;
    __atomic_compare_exchange_n(atomic<T>(at), &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    machine::point();
    return old;
}
static inline u32 swap32(u64 at, u32 compare, u32 value) { return swapped<u32>(at, compare, value); }
static inline u64 swap64(u64 at, u64 compare, u64 value) { return swapped<u64>(at, compare, value); }
template <typename T>
static inline void reduced(u64 at, T value) {
    machine::point();
    machine::check(at, sizeof(T), true);
    T old, sum, *to = atomic<T>(at);
    __atomic_load(to, &old, __ATOMIC_RELAXED);
    do sum = old + value;
    while (!__atomic_compare_exchange(to, &old, &sum, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
static inline void red_f64(u64 at, double value) { reduced(at, value); }
static inline void red_u64(u64 at, u64 value) { reduced(at, value); }
static inline void red_u32(u64 at, u32 value) { reduced(at, value); }
static inline void pause(u32) { machine::yield(); }
static inline void wait_for_previous() { machine::wait_for_previous(); }
static inline void let_next_come() { machine::let_next_come(); }
static inline void block_barrier() { machine::block_barrier(); }
static inline void warp_barrier() { machine::warp_barrier(); }

template <typename T>
static inline void fetch(T &value, u64 at) {
    machine::point();
    machine::check(at, sizeof(T), false);
    memcpy(&value, (const void *)at, sizeof(T));
}
template <typename T>
static inline void put(u64 at, T value) {
    machine::point();
    machine::wrote();
    machine::check(at, sizeof(T), true);
    memcpy((void *)at, &value, sizeof(T));
}

static inline void __syncthreads() { machine::block_barrier(); }
static inline int __popc(u32 bits) { return __builtin_popcount(bits); }
// Sums and products are never fused: the sources are compiled without that.
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline u64 atomicAdd(u64 *at, u64 value) {
    return __atomic_fetch_add(atomic<u64>((u64)at), value, __ATOMIC_RELAXED);
}
static inline u64 global_timer() { return machine::nanoseconds(); }
static inline void assume_global(const void *) {}
