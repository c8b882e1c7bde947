// What `kernels/batch.cu` needs of a GPU, for a processor: the words of the language that C++ lacks, and the primitives of `batch_machine.cuh`.
//
// The fake driver's machine (`crates/fake-cuda/machine`) has them from here, too, and brings hooks of its own: there other processes use the memory at
// the same time. So what a primitive does to a word that others look at is atomic, with the order that the device's has. The rest is said of this one.
//
// Threads are fibers of one thread of the host, and change places in primitives only (`machine.cpp`). So all that a run does follows from its
// seed, and memory is sequentially consistent: what is proved here is the protocol in all interleavings of primitives, not the orders that the primitives ask for. Those are
// compared with the PTX (`crates/cuda/src/ptx`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
// All that is shared lies in one piece, whose contents the machine exchanges when it goes on with another block. (Not in a section of that name: g++ forgets a section within a
// template.)
#define __shared__ static __thread
#define alignas(bytes) __attribute__((aligned(bytes)))

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct Index {
    u32 x, y, z;
};
extern Index threadIdx, blockIdx;

#ifndef TIDEGATE_MACHINE
namespace machine {
// How much is shared, at least.
extern const u64 least_shared;
// Where another thread may go on, if the run's dice say so.
void point();
// As `point`, for longer.
void linger();
// Where another thread goes on: this one cannot, or only looks.
void yield();
// Likewise, behind a look at a word: whoever looks may look again.
inline void may_look_again(u64, u64) { yield(); }
void block_barrier();
void warp_barrier();
// Until the grid before, of the same stream, is over.
void wait_for_previous();
// The grid behind may begin when all blocks have come here.
void let_next_come();
// A look at what a peer adds to, and what it has found.
void awaits(u64 word);
void found(u64 word, u64 value);
// The team of this thread waits for nobody any more, and adds 1 to a word when it has put its share; it has done so.
void promises(u64 word);
void keeps(u64 word, u64 value);
// A look at how a stream stands.
void looked();
// Ends the run with a message.
void fail(const char *what, u64 at);
// A fence; that something was written; whether nothing was since the fence.
void fence();
void wrote();
bool is_fenced();
// Tells the test of an add to a word.
void added(u64 word);
// Whether plain accesses may go there.
void check(u64 at, u64 bytes, bool writes);
}  // namespace machine
#endif

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
    // Whoever has got what was asked for may be slow.
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
