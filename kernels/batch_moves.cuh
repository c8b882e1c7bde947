// A part of batch.cu: moves of data.
//
// A team's threads share the units of a move. For a side of any shape, the address of each unit is computed. Arithmetic
// goes element by element. (Most copies with nothing to wait for in between have lists: see batch_units.cuh.)

// ---- Shapes ----

// The index in the region or slot of element `i` of a shape.
DEV i64 element(const Shape *shape, u8 kind, u32 i) {
    if (kind == SHAPE_INDEXED) {
        u32 index;
        fetch(index, shape->table + 4ull * i);
        return index;
    }
    i64 at = 0;
    u32 rank = shape->rank;
    for (u32 d = 0; d + 1 < rank; d++) {
        u32 next = i / shape->count[d];
        at += (i64)(i - next * shape->count[d]) * shape->stride[d];
        i = next;
    }
    return at + (i64)i * shape->stride[rank - 1];
}

// One side of a move, prepared so that addresses can be computed.
struct Side {
    u64 base;
    const Shape *shape;
    u32 size, sub;
    u8 kind, unit;
    DEV u64 at(u64 i) const {
        if (kind == SHAPE_LINEAR) return base + (i << unit);
        u32 which = (u32)i, part = 0;
        if (sub != 1) {
            which = (u32)(i / sub);
            part = (u32)(i - (u64)which * sub);
        }
        return base + element(shape, kind, which) * (i64)size + ((u64)part << unit);
    }
};

DEV void sides(const MoveStep *move, bool odd, Side &src, Side &dst) {
    const Shape *shapes = (const Shape *)(move + 1);
    src.base = move->src + (odd ? move->src_flip : 0);
    dst.base = move->dst + (odd ? move->dst_flip : 0);
    src.kind = move->src_shape;
    dst.kind = move->dst_shape;
    src.shape = shapes;
    dst.shape = shapes + (move->src_shape != SHAPE_LINEAR);
    src.size = dst.size = move->size;
    src.sub = dst.sub = move->sub;
    src.unit = dst.unit = move->unit;
}

// ---- Copies ----

#define DEPTH 4

// Copies units `first, first + stride, ...`, with DEPTH of them in flight at a time.
template <typename Unit, typename From, typename To>
DEV void copy(From from, To to, u64 first, u64 stride, u64 count) {
    u64 i = first;
#pragma unroll 1
    for (; i + (DEPTH - 1) * stride < count; i += DEPTH * stride) {
        Unit values[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; k++) fetch(values[k], from(i + k * stride));
#pragma unroll
        for (int k = 0; k < DEPTH; k++) put(to(i + k * stride), values[k]);
    }
#pragma unroll 1
    for (; i < count; i += stride) {
        Unit value;
        fetch(value, from(i));
        put(to(i), value);
    }
}

// Copies the first elements of a move. A kernel of this stream has written how many they are, and the host how many at
// most. Both sides have the same distance to the next whole unit. The bytes before the first whole unit and after the
// last one go one by one.
APART void copy_counted(const MoveStep *move, bool odd, u64 first, u64 stride) {
    u64 count;
    fetch(count, move->compare + (odd ? move->result : 0));
    if (count > move->count) count = move->count;
    u64 src = move->src + (odd ? move->src_flip : 0), dst = move->dst + (odd ? move->dst_flip : 0);
    u64 bytes = count * move->size, head = (0 - dst) & ((1ull << move->unit) - 1);
    if (head > bytes) head = bytes;
    u64 units = (bytes - head) >> move->unit, body = units << move->unit;
    auto from = [=](u64 i) { return src + head + (i << move->unit); };
    auto to = [=](u64 i) { return dst + head + (i << move->unit); };
    switch (move->unit) {
        case 4: copy<V16>(from, to, first, stride, units); break;
        case 3: copy<u64>(from, to, first, stride, units); break;
        case 2: copy<u32>(from, to, first, stride, units); break;
        case 1: copy<u16>(from, to, first, stride, units); break;
        default: copy<u8>(from, to, first, stride, units); break;
    }
    for (u64 i = first; i < bytes - body; i += stride) {
        u64 at = i < head ? i : i + body;
        u8 byte;
        fetch(byte, src + at);
        put(dst + at, byte);
    }
}

// Like `copy`, between sides of any shape.
template <typename Unit>
DEV void copy_sides(const Side &src, const Side &dst, u64 first, u64 stride, u64 count) {
    if (src.kind == SHAPE_LINEAR && dst.kind == SHAPE_LINEAR) {
        u64 from = src.base, to = dst.base;
        copy<Unit>([=](u64 i) { return from + i * sizeof(Unit); }, [=](u64 i) { return to + i * sizeof(Unit); }, first, stride, count);
    } else {
        for (u64 i = first; i < count; i += stride) {
            Unit value;
            fetch(value, src.at(i));
            put(dst.at(i), value);
        }
    }
}

// ---- Arithmetic ----

// For floats, a NaN loses.
template <typename T>
DEV T lesser(T a, T b) { return (b != b || a < b) ? a : b; }
template <typename T>
DEV T greater(T a, T b) { return (b != b || a > b) ? a : b; }

template <typename T>
DEV T applied(u32 op, T a, T b) {
    switch (op) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        case OP_MIN: return lesser(a, b);
        case OP_MAX: return greater(a, b);
        // The new value comes first.
        case OP_MIN_BEFORE: return lesser(b, a);
        case OP_MAX_BEFORE: return greater(b, a);
        case OP_REPLACE: return b;
        default: return a;
    }
}
// Integers wrap. The low bits of sums and products are the same for signed and unsigned numbers. So these are computed
// unsigned, because a signed overflow is undefined in C++. (A product of u16 could overflow, too, because C++
// multiplies them as `int`.)
template <typename T>
DEV T applied_bits(u32 op, T a, T b) {
    switch (op) {
        case OP_SUM: return (T)((u64)a + (u64)b);
        case OP_PROD: return (T)((u64)a * (u64)b);
        case OP_AND: return a & b;
        case OP_OR: return a | b;
        case OP_XOR: return a ^ b;
        default: return applied<T>(op, a, b);
    }
}

template <>
DEV float applied_bits<float>(u32 op, float a, float b) { return applied<float>(op, a, b); }
template <>
DEV double applied_bits<double>(u32 op, double a, double b) { return applied<double>(op, a, b); }
template <>
DEV F16 applied_bits<F16>(u32 op, F16 a, F16 b) { return applied<F16>(op, a, b); }
template <>
DEV Bf16 applied_bits<Bf16>(u32 op, Bf16 a, Bf16 b) { return applied<Bf16>(op, a, b); }

template <typename T>
DEV T of_bits(u64 bits) { return (T)bits; }
template <>
DEV float of_bits<float>(u64 bits) { return __uint_as_float((u32)bits); }
template <>
DEV double of_bits<double>(u64 bits) { return __longlong_as_double((i64)bits); }
template <>
DEV F16 of_bits<F16>(u64 bits) { return {(u16)bits}; }
template <>
DEV Bf16 of_bits<Bf16>(u64 bits) { return {(u16)bits}; }

template <typename T>
DEV u64 bits_of(T value) { return sizeof(T) == 8 ? (u64)value : (u64)value & ((1ull << 8 * (sizeof(T) % 8)) - 1); }
DEV u64 bits_of(float value) { return __float_as_uint(value); }
DEV u64 bits_of(double value) { return (u64)__double_as_longlong(value); }
DEV u64 bits_of(F16 value) { return value.bits; }
DEV u64 bits_of(Bf16 value) { return value.bits; }

template <typename T>
DEV u64 combined(u32 op, u64 a, u64 b) { return bits_of(applied_bits<T>(op, of_bits<T>(a), of_bits<T>(b))); }

// The bits of `op(a, b)`.
DEV u64 combined(u32 scalar, u32 op, u64 a, u64 b) {
    switch (scalar) {
        case S_I8: return combined<signed char>(op, a, b);
        case S_I16: return combined<short>(op, a, b);
        case S_I32: return combined<int>(op, a, b);
        case S_I64: return combined<i64>(op, a, b);
        case S_U8: return combined<u8>(op, a, b);
        case S_U16: return combined<u16>(op, a, b);
        case S_U32: return combined<u32>(op, a, b);
        case S_U64: return combined<u64>(op, a, b);
        case S_F32: return combined<float>(op, a, b);
        case S_F64: return combined<double>(op, a, b);
        case S_F16: return combined<F16>(op, a, b);
        default: return combined<Bf16>(op, a, b);
    }
}

DEV u64 fetch_bits(u64 at, u32 bytes) {
    u8 b; u16 h; u32 w; u64 d;
    switch (bytes) {
        case 1: fetch(b, at); return b;
        case 2: fetch(h, at); return h;
        case 4: fetch(w, at); return w;
        default: fetch(d, at); return d;
    }
}
DEV void put_bits(u64 at, u32 bytes, u64 value) {
    switch (bytes) {
        case 1: put(at, (u8)value); break;
        case 2: put(at, (u16)value); break;
        case 4: put(at, (u32)value); break;
        default: put(at, value); break;
    }
}

// Replaces an element by the result of `next`. This is atomic, unless the element is small and this thread's `alone`.
// Returns the old value. A small element is swapped with the 32-bit word around it: all of that word is either updated
// in this way, or not used.
template <typename Next>
DEV u64 update(u64 at, u32 bytes, bool alone, Next next) {
    if (bytes == 8) {
        u64 old = load_relaxed(at), seen;
        while ((seen = swap64(at, old, next(old))) != old) old = seen;
        return old;
    }
    u64 word = at & ~3ull;
    u32 shift = (u32)(at & 3) * 8;
    u32 mask = bytes == 4 ? 0xffffffffu : ((1u << (8 * bytes)) - 1) << shift;
    u32 old = alone ? (u32)fetch_bits(at, bytes) << shift : load_relaxed32((const u32 *)word), seen;
    for (;;) {
        u32 element = (old & mask) >> shift, changed = (u32)next(element);
        if (alone) {
            put_bits(at, bytes, changed);
            return element;
        }
        u32 value = (old & ~mask) | ((changed << shift) & mask);
        if ((seen = swap32(word, old, value)) == old) return element;
        old = seen;
    }
}

// Arithmetic, element by element. It is atomic, because the next move of the lane may work on the same element in
// another block. The exception is a small element that is this thread's alone, because others may put the bytes beside
// it meanwhile.
APART void compute(const MoveStep *move, bool odd, u64 first, u64 stride) {
    Side src, dst;
    sides(move, odd, src, dst);
    u32 bytes = 1u << move->unit, op = move->op, scalar = move->scalar;
    bool alone = move->step.flags & MOVE_ALONE;
    for (u64 i = first; i < move->count; i += stride) {
        u64 at = dst.at(i);
        u64 value = fetch_bits(src.at(i), bytes);
        if (move->action == ACTION_ACCUMULATE && op == OP_SUM && bytes >= 4 && scalar != S_F32) {
            if (scalar == S_F64) red_f64(at, __longlong_as_double((i64)value));
            else if (bytes == 8) red_u64(at, value);
            else red_u32(at, (u32)value);
            continue;
        }
        u64 old;
        if (move->action == ACTION_SWAP) {
            u64 compare = fetch_bits(move->compare + (i << move->unit), bytes);
            old = update(at, bytes, false, [=](u64 was) { return was == compare ? value : was; });
        } else {
            old = update(at, bytes, alone, [=](u64 was) { return combined(scalar, op, was, value); });
        }
        if (move->action != ACTION_ACCUMULATE) put_bits(move->result + (i << move->unit), bytes, old);
    }
}

// Whether the number of the epoch that a word counts is odd.
DEV bool is_odd(u64 parity) {
    return parity && (((load_relaxed(parity) >> QUANTUM_BITS) - 1) & 1);
}

// ---- A move ----

DEV bool is_odd(const MoveStep *move, u64 epoch) {
    if (move->step.flags & MOVE_LAST_PARITY) return epoch & 1;
    return is_odd(move->parity);
}

// Carries out units `first, first + stride, ...` of a move.
APART void carry(const MoveStep *move, u64 epoch, u64 first, u64 stride) {
    bool odd = is_odd(move, epoch);
    if (move->action == ACTION_COUNTED) {
        copy_counted(move, odd, first, stride);
        return;
    }
    if (move->action != ACTION_COPY) {
        compute(move, odd, first, stride);
        return;
    }
    Side src, dst;
    sides(move, odd, src, dst);
    switch (move->unit) {
        case 4: copy_sides<V16>(src, dst, first, stride, move->count); break;
        case 3: copy_sides<u64>(src, dst, first, stride, move->count); break;
        case 2: copy_sides<u32>(src, dst, first, stride, move->count); break;
        case 1: copy_sides<u16>(src, dst, first, stride, move->count); break;
        default: copy_sides<u8>(src, dst, first, stride, move->count); break;
    }
}
