// A part of batch.cu: the units of short lanes whose places are listed, or whose number a kernel has counted.
//
// `run_listed` in batch.cu calls the same functions of each kind: `begin` reads what no kernel writes, `fetch_units`
// fetches the first units, and `put_all` puts these and moves the rest.

// The units of a lane with lists of places. Each thread has DEPTH units in flight, and the places of the next DEPTH, so
// that the lists themselves cost no time.
template <typename Unit>
struct Scattered {
    u64 src, from, to, at, stride, count;
    u32 places[DEPTH], targets[DEPTH];
    Unit units[DEPTH];

    DEV Scattered(const Lane &lane, u32 first, u32 stride) : src(lane.src), from(lane.from), to(lane.to), at(first), stride(stride), count(lane.count) {}

    // Nobody writes a list any more: it is in the program, or is the table of an indexed layout.
    DEV void look_up(u64 list, u32 (&places)[DEPTH], u64 first) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            u64 i = first + k * stride;
            places[k] = (u32)i;
            if (list && i < count) fetch(places[k], list + 4 * i);
        }
    }

    DEV void begin() {
        look_up(from, places, at);
        look_up(to, targets, at);
    }

    DEV void fetch_units() {
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            if (at + k * stride < count) fetch(units[k], src + (u64)places[k] * sizeof(Unit));
    }

    // Puts the fetched units, and all later ones.
    DEV void put_all(u64 dst) {
#pragma unroll 1
        while (at < count) {
            u64 next = at + DEPTH * stride;
            look_up(from, places, next);
#pragma unroll
            for (int k = 0; k < DEPTH; k++)
                if (at + k * stride < count) put(dst + (u64)targets[k] * sizeof(Unit), units[k]);
            look_up(to, targets, next);
            at = next;
            fetch_units();
        }
    }
};

// Reads the list entries for 16 bytes of units, and the units.
DEV void look_up(u32 (&places)[1], u64 list, u32 i) { fetch(places[0], list + 4ull * i); }
DEV void look_up(u32 (&places)[2], u64 list, u32 i) {
    u64 both;
    fetch(both, list + 8ull * i);
    places[0] = (u32)both;
    places[1] = (u32)(both >> 32);
}
DEV void look_up(u32 (&places)[4], u64 list, u32 i) {
    V16 all;
    fetch(all, list + 16ull * i);
    places[0] = all.x;
    places[1] = all.y;
    places[2] = all.z;
    places[3] = all.w;
}
DEV V16 together(const V16 (&units)[1]) { return units[0]; }
DEV V16 together(const u64 (&units)[2]) { return {(u32)units[0], (u32)(units[0] >> 32), (u32)units[1], (u32)(units[1] >> 32)}; }
DEV V16 together(const u32 (&units)[4]) { return {units[0], units[1], units[2], units[3]}; }

// The units of a lane that gathers: their sources are listed, and their destinations are contiguous. So each thread
// puts 16 bytes at a time, which are several units, and reads their entries at a time, too.
template <typename Unit>
struct Gathered {
    static const u32 each = sizeof(V16) / sizeof(Unit), depth = each == 1 ? DEPTH : DEPTH / 2;
    u64 src, list;
    u32 at, stride, count, rest, last;  // in units of 16 bytes; `last` is a unit that is in none, if it is less than `rest`
    u32 places[depth][each], place;
    Unit units[depth][each], unit;

    DEV Gathered(const Lane &lane, u32 first, u32 stride) : src(lane.src), list(lane.from), at(first), stride(stride), count((u32)lane.count / each), rest((u32)lane.count), last(count * each + first) {}

    DEV void look_up_from(u32 first) {
#pragma unroll
        for (u32 k = 0; k < depth; k++)
            if (first + k * stride < count) look_up(places[k], list, first + k * stride);
    }

    DEV void begin() {
        look_up_from(at);
        if (last < rest) fetch(place, list + 4ull * last);
    }

    DEV void fetch_from(u32 first) {
#pragma unroll
        for (u32 k = 0; k < depth; k++)
            if (first + k * stride < count)
#pragma unroll
                for (u32 j = 0; j < each; j++) fetch(units[k][j], src + (u64)places[k][j] * sizeof(Unit));
    }

    DEV void fetch_units() {
        fetch_from(at);
        if (last < rest) fetch(unit, src + (u64)place * sizeof(Unit));
    }

    // As above.
    DEV void put_all(u64 dst) {
        if (last < rest) put(dst + (u64)last * sizeof(Unit), unit);
#pragma unroll 1
        while (at < count) {
            u32 next = at + depth * stride;
            look_up_from(next);
#pragma unroll
            for (u32 k = 0; k < depth; k++)
                if (at + k * stride < count) put(dst + (u64)(at + k * stride) * sizeof(V16), together(units[k]));
            at = next;
            fetch_from(at);
        }
    }
};

// Puts the first bytes of a unit, but not all.
DEV void put_some(u64 to, V16 unit, u32 bytes) {
    if (bytes >= 4) put(to, unit.x);
    if (bytes >= 8) put(to + 4, unit.y);
    if (bytes >= 12) put(to + 8, unit.z);
    u32 last = bytes < 4 ? unit.x : bytes < 8 ? unit.y : bytes < 12 ? unit.z : unit.w;
    for (u32 i = bytes & ~3u; i < bytes; i++, last >>= 8) put(to + i, (u8)last);
}
DEV void put_some(u64 to, u64 unit, u32 bytes) {
    put_some(to, V16{(u32)unit, (u32)(unit >> 32), 0, 0}, bytes);
}

// The units of a lane whose number of elements a kernel of this stream has written. Everything up to the most may be
// fetched. So the number and the first units are in flight at the same time.
template <typename Unit>
struct Counted {
    u64 src, number, most, size, at, stride, counted;
    Unit units[DEPTH];

    DEV Counted(const Lane &lane, u32 first, u32 stride) : src(lane.src), number(lane.from), most(lane.count), size(lane.to), at(first), stride(stride) {}

    DEV void begin() {}

    // Fetches the units that are whole, and not beyond `end`.
    DEV void fetch_from(u64 first, u64 end) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
            if (first + k * stride < end) fetch(units[k], src + (first + k * stride) * sizeof(Unit));
    }

    DEV void fetch_units() {
        fetch(counted, number);
        fetch_from(at, most * size / sizeof(Unit));
    }

    // As above. Some bytes of the last unit may belong to elements that are not counted. Or the unit is not whole in
    // the source, and these bytes have not been fetched.
    DEV void put_all(u64 dst) {
        u64 bytes = (counted < most ? counted : most) * size;
        u64 whole = bytes / sizeof(Unit), room = most * size / sizeof(Unit);
        u32 rest = (u32)(bytes % sizeof(Unit)), first = (u32)at;
        u64 end = whole < room && rest ? whole + 1 : whole;
#pragma unroll 1
        while (at < end) {
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
                u64 i = at + k * stride;
                if (i < whole) put(dst + i * sizeof(Unit), units[k]);
                else if (i < end) put_some(dst + i * sizeof(Unit), units[k], rest);
            }
            at += DEPTH * stride;
            fetch_from(at, end);
        }
        if (whole == room && first < rest) {
            u8 byte;
            u64 i = whole * sizeof(Unit) + first;
            fetch(byte, src + i);
            put(dst + i, byte);
        }
    }
};
