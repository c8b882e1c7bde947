// ptx: compute_80
//
// The kernels of the random schedules (`tests/schedules`). They treat elements as its `value.rs` does, and do what its
// `device.rs` does on the host, bit for bit.
//
// # Model
//
// `Form` is the form of an element type as 64 bits: `bits` and `of` convert between the two, and `value` makes a value
// of any bits. Kernels are named for their type: `change_u64`, `fold_pixel`.
//
// A kernel that treats each element separately takes any grid. A kernel that adds up or appends depends on the order,
// so its first thread does everything.
//
// Data of peers is read with ordinary loads, by a later kernel than the one that waited for it.
//
// # Failure
//
// No errors are reported. Indices stay within the lengths. A full log goes on counting, so that the host notices.

#include "tidegate.cuh"

using tidegate::Slot;
using tidegate::current;

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef double f64;
typedef unsigned long long u64;

struct pixel {
    u32 a;
    u16 b;
    u8 c[2];
};
struct triple {
    u16 of[3];
};
static_assert(sizeof(pixel) == 8 && sizeof(triple) == 6, "no padding");

#define INLINE static __device__ __forceinline__

template <class T> struct Form;
template <> struct Form<u64> {
    INLINE u64 value(u64 bits) { return bits; }
    INLINE u64 of(u64 bits) { return bits; }
    INLINE u64 bits(u64 x) { return x; }
};
template <> struct Form<u32> {
    INLINE u64 value(u64 bits) { return bits & 0xffffffffu; }
    INLINE u32 of(u64 bits) { return (u32)bits; }
    INLINE u64 bits(u32 x) { return x; }
};
template <> struct Form<u8> {
    INLINE u64 value(u64 bits) { return bits & 0xffu; }
    INLINE u8 of(u64 bits) { return (u8)bits; }
    INLINE u64 bits(u8 x) { return x; }
};
template <> struct Form<i32> {
    INLINE u64 value(u64 bits) { return bits & 0xffffffffu; }
    INLINE i32 of(u64 bits) { return (i32)(u32)bits; }
    INLINE u64 bits(i32 x) { return (u32)x; }
};
// Small whole numbers, so that sums are exact in any order.
template <> struct Form<f64> {
    INLINE u64 value(u64 bits) { return (u64)__double_as_longlong((f64)(u32)(bits & 0xfffu)); }
    INLINE f64 of(u64 bits) { return __longlong_as_double((long long)bits); }
    INLINE u64 bits(f64 x) { return (u64)__double_as_longlong(x); }
};
template <> struct Form<pixel> {
    INLINE u64 value(u64 bits) { return bits; }
    INLINE pixel of(u64 bits) { return pixel{(u32)bits, (u16)(bits >> 32), {(u8)(bits >> 48), (u8)(bits >> 56)}}; }
    INLINE u64 bits(pixel x) { return (u64)x.a | (u64)x.b << 32 | (u64)x.c[0] << 48 | (u64)x.c[1] << 56; }
};
template <> struct Form<triple> {
    INLINE u64 value(u64 bits) { return bits & 0xffffffffffffu; }
    INLINE triple of(u64 bits) { return triple{{(u16)bits, (u16)(bits >> 16), (u16)(bits >> 32)}}; }
    INLINE u64 bits(triple x) { return (u64)x.of[0] | (u64)x.of[1] << 16 | (u64)x.of[2] << 32; }
};

INLINE u64 mix(u64 a, u64 b) {
    u64 x = a * 0x9e3779b97f4a7c15u + b + 0x12345677u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

template <class T> INLINE T changed(T old, u64 index, u64 salt) {
    return Form<T>::of(Form<T>::value(mix(mix(Form<T>::bits(old), salt), index)));
}

template <class T> INLINE u64 checksum(u64 sum, const T *x, u64 len) {
    // The loads do not depend on each other, so several are in flight at once.
#pragma unroll 4
    for (u64 i = 0; i < len; i++) sum = mix(sum, Form<T>::bits(x[i]));
    return sum;
}

INLINE void append(u64 *log, u64 len, u64 value) {
    u64 at = log[0] += 1;
    if (at < len) log[at] = value;
}

#define EACH(i, len) u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x, step_##i = (u64)gridDim.x * blockDim.x; i < (len); i += step_##i
#define FIRST_THREAD (blockIdx.x == 0 && threadIdx.x == 0)

template <class T> INLINE void change(T *x, u64 len, u64 salt) {
    for (EACH(i, len)) x[i] = changed(x[i], i, salt);
}

// Changes the elements whose index is a multiple of `step`, or the others. It touches no other elements, because
// another stream may be writing them.
template <class T> INLINE void change_part(T *x, u64 len, u64 step, u64 chosen, u64 salt) {
    for (EACH(i, len))
        if ((i % step == 0) == (chosen != 0)) x[i] = changed(x[i], i, salt);
}

template <class T> INLINE void fold(const Slot *slots, u64 count, u64 which, T *x, u64 len) {
    if (which >= count || slots[which].len == 0) return;
    const T *seen = current<T>(slots[which]);
    u64 period = slots[which].len;
    for (EACH(i, len)) x[i] = changed(x[i], i, Form<T>::bits(seen[i % period]));
}

template <class T> INLINE void log_fetched(const T *fetched, u64 len, u64 *log, u64 room) {
    if (!FIRST_THREAD || !room) return;
    for (u64 i = 0; i < len; i++) append(log, room, Form<T>::bits(fetched[i]));
}

template <class T> INLINE void sum_slots(const Slot *slots, u64 count, u64 *sums, u64 len) {
    if (!FIRST_THREAD) return;
    for (u64 i = 0; i < count && i < len; i++) sums[i] = checksum(sums[i], current<T>(slots[i]), slots[i].len);
}

template <class T> INLINE void sum(const T *x, u64 len, u64 *sums, u64 room) {
    if (FIRST_THREAD && room) sums[0] = checksum(sums[0], x, len);
}

// Sums the elements before the locks `first..end`, logs the holders of the locks, and frees the locks.
template <class T> INLINE void harvest(T *x, u64 len, u64 first, u64 end, u64 *sums, u64 room, u64 *log, u64 entries) {
    if (!FIRST_THREAD || first > len || !room || !entries) return;
    sums[0] = checksum(sums[0], x, first);
    for (u64 i = first; i < end && i < len; i++) {
        append(log, entries, Form<T>::bits(x[i]));
        x[i] = Form<T>::of(0);
    }
}

template <class T> INLINE void copy(const T *from, u64 len, T *to, u64 room) {
    for (EACH(i, len < room ? len : room)) to[i] = from[i];
}

template <class T> INLINE void copy_slot(const Slot *slots, u64 count, u64 which, T *to, u64 room) {
    if (which < count) copy(current<T>(slots[which]), slots[which].len, to, room);
}

#define KERNEL extern "C" __global__ void
#define KERNELS(T)                                                                                                    \
    KERNEL change_##T(T *x, u64 len, u64 salt) { change(x, len, salt); }                                              \
    KERNEL change_part_##T(T *x, u64 len, u64 step, u64 chosen, u64 salt) { change_part(x, len, step, chosen, salt); } \
    KERNEL fold_##T(const Slot *slots, u64 count, u64 which, T *x, u64 len) { fold(slots, count, which, x, len); }    \
    KERNEL log_##T(const T *fetched, u64 len, u64 *log, u64 room) { log_fetched(fetched, len, log, room); }           \
    KERNEL sum_slots_##T(const Slot *slots, u64 count, u64 *sums, u64 len) { sum_slots<T>(slots, count, sums, len); } \
    KERNEL sum_##T(const T *x, u64 len, u64 *sums, u64 room) { sum(x, len, sums, room); }                             \
    KERNEL harvest_##T(T *x, u64 len, u64 first, u64 end, u64 *sums, u64 room, u64 *log, u64 entries) {               \
        harvest(x, len, first, end, sums, room, log, entries);                                                        \
    }                                                                                                                 \
    KERNEL copy_##T(const T *from, u64 len, T *to, u64 room) { copy(from, len, to, room); }                           \
    KERNEL copy_slot_##T(const Slot *slots, u64 count, u64 which, T *to, u64 room) { copy_slot(slots, count, which, to, room); }

KERNELS(u64)
KERNELS(u32)
KERNELS(u8)
KERNELS(i32)
KERNELS(f64)
KERNELS(pixel)
KERNELS(triple)
