// ptx: compute_80 compute_90
//
// The batch kernel: one launch carries out a whole batch, whatever the number of peers.
//
// # Model
//
// A batch is a set of independent lanes; a lane is a list of steps: wait for a word, move data, add to a word. The host lowers it to a *program* in device
// memory (`crates/cuda/src/lower`), the same for every launch: what a wait compares with (its operand) lies beside the word, and the wait advances it. So a launch can
// be recorded once and replayed.
//
// A lane is carried out by a *team*:
//
//   a warp              lanes that move little, or nothing; a block carries out up to WARPS of them. (Not a thread: the threads of a warp would poll one after the other.)
//   `count` blocks      lanes that move much; each block does its share of every move, and adds its share of every add
//
// All blocks of a batch can be resident at a time (the host sees to it), so that no team waits for one that has not begun.
//
// # Memory order
//
// The accesses of a team are ordered by its barrier (bar.sync, bar.warp.sync) before the one thread's `red.release.sys` that adds; release is cumulative, so whoever
// acquires the word sees what all threads of the team wrote. A wait is one thread's `ld.acquire.sys`, followed by the barrier. Where a lane has several blocks, each releases its own
// accesses and adds its part of the quantum: the word has come far enough only when all parts have been added, and no block waits for another.
// What a peer wrote is never read through the non-coherent path.
//
// # Failure
//
// A word with POISON set ends a wait whose count has not come. The first team that fails records what it waited for and sets `stop`; the others see that while they wait. Teams of a failed stream
// move nothing and poison what they should have added to. `stop` can also be set by the host.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// An emulation may make teams smaller.
#ifndef TIDEGATE_EMULATED
#define THREADS 512
#define WARP 32
#endif
#define WARPS (THREADS / WARP)
static_assert(WARP >= 16, "the bytes that follow the units have a thread each");
#define POISON (1ull << 62)
#define QUANTUM_BITS 20

// ---- What the host and the kernel agree on (mirrored in `crates/cuda/src/lower/layout.rs`, which tests the sizes) ----

enum { TEAM_WARPS = 0, TEAM_BLOCKS = 1 };
enum { STEP_END = 0, STEP_WAIT = 1, STEP_MOVE = 2, STEP_ADD = 3 };
enum { LANE_STEPS = 1, LANE_WAITS = 2, LANE_COPIES = 4, LANE_ADDS = 8 };
enum { ADD_HAS_WAITER = 1 };
enum { MOVE_EARLY = 1, MOVE_LAST_PARITY = 2, MOVE_BULK = 4 };
enum { SHAPE_LINEAR = 0, SHAPE_STRIDED = 1, SHAPE_INDEXED = 2 };
enum { ACTION_COPY = 0, ACTION_ACCUMULATE = 1, ACTION_FETCH = 2, ACTION_SWAP = 3 };
enum { OP_SUM, OP_PROD, OP_MIN, OP_MAX, OP_AND, OP_OR, OP_XOR, OP_REPLACE, OP_KEEP };
enum { S_I8, S_I16, S_I32, S_I64, S_U8, S_U16, S_U32, S_U64, S_F32, S_F64 };
enum { FAULT_WAIT = 1, FAULT_ABORTED = 2 };

// What one block is to do: the head of its record. All records of a program have one length, so that a block finds its own without looking anywhere. Behind the head stand its lanes.
struct Record {
    u8 team;
    u8 lanes;
    u16 unused;
    u16 index;  // blocks: which of them this is
    u16 count;  // blocks: how many carry out the lane
    u64 unused2;
};

// A lane in short. Nearly every lane is (part of): a wait, a linear copy, an add; then all of it stands here, and the steps are only read when something goes wrong. Of
// others, LANE_STEPS says that the steps are to be carried out.
struct alignas(16) Lane {
    u32 kind;
    u32 steps;  // where they are, in units of 16 bytes from the beginning of the program
    u64 word, operand, quantum;
    u64 arrivals;  // counts the blocks that have read the operand; 0 if one team carries out the lane
    u64 src, dst;
    u64 flip;   // what is added to `dst` in epochs of odd number
    u64 count;  // units (LANE_STEPS: bytes of the steps)
    u64 out, value;
    u64 tail;   // so many bytes follow the units, fewer than 16
};

struct Step {
    u16 kind;
    u16 length;  // in units of 16 bytes, this head included
    u32 flags;
};

struct WaitStep {
    Step step;
    u64 word, operand, quantum;
    u64 arrivals;  // counts the blocks that have read the operand; 0 if one team carries out the lane
    u32 window, peer, awaited;
    u32 slot;  // where to report that it takes long
};

struct AddStep {
    Step step;
    u64 word, value, unused;
};

struct MoveStep {
    Step step;
    u64 count;  // units
    u64 src, dst;
    u64 src_flip, dst_flip;
    u64 parity;  // a word, unless MOVE_LAST_PARITY
    u64 result, compare;
    u32 size;  // bytes of an element
    u32 sub;   // units of an element
    u8 action, op, scalar, unit;  // unit: bytes that are moved at a time, as a power of two
    u8 src_shape, dst_shape;
    u16 unused;
    // Then a `Shape` for each side that is not linear: first the source's.
};

struct Shape {
    u64 table;
    u32 rank;
    u32 count[5];
    int stride[5];
    u32 unused;
};

struct Fault {
    u32 kind, window, peer, awaited;
    u64 epoch;
};

// A stream's state in device memory.
struct State {
    u32 stop;  // bit 0: a team has failed; bit 1: `fault` says why; bits 8-15: the host has ended it
    u32 unused;
    Fault fault;
};

struct Blocked {
    u32 active, window, peer, awaited;
    u64 epoch, unused;
};

#define MAX_BLOCKED 64

// The part of it that the host reads at any time, in pinned memory.
struct Mirror {
    u32 failed;
    u32 gate;  // the last gate that the stream has come to, by number
    Fault fault;
    Blocked blocked[MAX_BLOCKED];
};

struct Launch {
    const u8 *program;
    State *state;
    Mirror *mirror;
    State *follow[2];  // streams whose failure is this one's
    u32 stride;        // bytes of a record
    u32 flags;
};

enum { LAUNCH_NEXT = 1 };

// ---- The machine ----

struct alignas(16) V16 {
    u32 x, y, z, w;
};

#define DEV __device__ __forceinline__
// What is too large to stand wherever it is used: a call costs less than the registers.
#define APART __device__ __noinline__

#ifndef TIDEGATE_EMULATED
DEV u64 load_acquire(u64 at) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
DEV u64 load_relaxed(u64 at) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
DEV u32 load_relaxed32(const u32 *at) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
DEV void store_relaxed(u64 at, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV void store_release32(u32 *at, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
DEV void add_release(u64 at, u64 value) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// What `add_release` is, in two.
DEV void fence() {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
DEV void add_relaxed(u64 at, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV void or_release(u64 at, u64 value) {
    asm volatile("red.release.sys.global.or.b64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV u32 or_fetch32(u32 *at, u32 value) {
    u32 old;
    asm volatile("atom.acq_rel.sys.global.or.b32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");
    return old;
}
// Counts to `last` and begins again.
DEV u32 count_to(u64 at, u32 last) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(last) : "memory");
    return old;
}
DEV u32 swap32(u64 at, u32 compare, u32 value) {
    u32 old;
    asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(at), "r"(compare), "r"(value) : "memory");
    return old;
}
DEV u64 swap64(u64 at, u64 compare, u64 value) {
    u64 old;
    asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(at), "l"(compare), "l"(value) : "memory");
    return old;
}
DEV void red_f64(u64 at, double value) {
    asm volatile("red.relaxed.sys.global.add.f64 [%0], %1;" ::"l"(at), "d"(value) : "memory");
}
DEV void red_f32(u64 at, float value) {
    asm volatile("red.relaxed.sys.global.add.f32 [%0], %1;" ::"l"(at), "f"(value) : "memory");
}
DEV void red_u64(u64 at, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV void red_u32(u64 at, u32 value) {
    asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
DEV void pause(u32 nanoseconds) {
    asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds));
}
// The next batch of the stream may take its place, and wait there until this one is over; and this one goes on when what stands before it is over. (Only a launch that
// asks for it has a next one so early; to others both are nothing.)
DEV void let_next_come() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
DEV void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// A team's barrier.
DEV void block_barrier() {
    asm volatile("bar.sync 0;" ::: "memory");
}
DEV void warp_barrier() {
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}
// Moves data; never cached in L1, where what another GPU writes is not seen.
DEV void fetch(V16 &value, u64 at) {
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(at) : "memory");
}
DEV void fetch(u64 &value, u64 at) {
    asm volatile("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
}
DEV void fetch(u32 &value, u64 at) {
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
}
DEV void fetch(u16 &value, u64 at) {
    asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=h"(value) : "l"(at) : "memory");
}
DEV void fetch(u8 &value, u64 at) {
    u16 wide;
    asm volatile("ld.global.L1::no_allocate.u8 %0, [%1];" : "=h"(wide) : "l"(at) : "memory");
    value = (u8)wide;
}
DEV void put(u64 at, V16 value) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}
DEV void put(u64 at, u64 value) {
    asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV void put(u64 at, u32 value) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
DEV void put(u64 at, u16 value) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"(value) : "memory");
}
DEV void put(u64 at, u8 value) {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "h"((u16)value) : "memory");
}
#endif

// ---- Teams ----

// The threads that carry out one lane together.
struct Warp {
    static const bool bulk = false;
    static const u32 size = WARP;
    DEV u32 rank() const { return threadIdx.x % WARP; }
    DEV void barrier() const { warp_barrier(); }
};
struct Block {
    static const bool bulk = false;
    static const u32 size = THREADS;
    DEV u32 rank() const { return threadIdx.x; }
    DEV void barrier() const { block_barrier(); }
};
// A block that can use the bulk engine.
struct BulkBlock : Block {
    static const bool bulk = true;
};

// How a team stands after a wait: shared by its threads. There are two, for waits by turns: who comes last out of a wait's barrier reads this one
// while the thread that waits for all is at the next wait.
struct Stand {
    u64 epoch;   // the number of the last wait's epoch
    u32 failed;
};

// ---- Waits ----

DEV void record_fault(const Launch &launch, Fault fault) {
    if (or_fetch32(&launch.state->stop, 1) & 1) return;  // another team was first
    launch.state->fault = fault;
    or_fetch32(&launch.state->stop, 2);
    launch.mirror->fault = fault;
    store_release32(&launch.mirror->failed, 1);
}

// Whether the stream has failed, or been ended, or is to fail because one that it follows has.
APART bool has_failed(const Launch &launch) {
    u32 stop = load_relaxed32(&launch.state->stop);
    for (int i = 0; i < 2; i++) {
        State *other = launch.follow[i];
        u32 theirs = other ? load_relaxed32(&other->stop) : 0;
        if (theirs && !stop) {
            Fault fault = {FAULT_ABORTED, 0, 0, 0, 0};
            if (theirs & 1) {
                // The team that has failed there is about to say why.
                while (!(or_fetch32(&other->stop, 0) & 2)) pause(50);
                fault = other->fault;
            }
            record_fault(launch, fault);
            stop = 1;
        }
    }
    if (stop && !(stop & 1)) {
        Fault fault = {FAULT_ABORTED, 0, 0, 0, 0};
        record_fault(launch, fault);
    }
    return stop != 0;
}

DEV bool reached(u64 value, u64 from, u64 quantum) {
    return (i64)((value & ~POISON) - from) >= (i64)quantum;
}

// What a wait that takes longer than an instant does. Not inlined: it is no concern of those that do not.
APART bool wait_long(const Launch &launch, const WaitStep *wait, u64 from, bool reports) {
    Blocked *blocked = &launch.mirror->blocked[wait->slot];
    bool reported = false, ok = false;
    for (u32 looks = 0;; looks++) {
        u64 value = load_acquire(wait->word);
        if (reached(value, from, wait->quantum)) {
            ok = true;
            break;
        }
        u64 epoch = from >> QUANTUM_BITS;
        // A ticket's operand has been advanced already by the epoch that it stands for.
        if (wait->quantum == 0 && epoch) epoch--;
        if (value & POISON) {
            Fault fault = {FAULT_WAIT, wait->window, wait->peer, wait->awaited, epoch};
            record_fault(launch, fault);
            break;
        }
        if (looks % 16 == 0 && has_failed(launch)) break;
        if (reports && !reported && looks == 4096) {
            blocked->window = wait->window;
            blocked->peer = wait->peer;
            blocked->awaited = wait->awaited;
            blocked->epoch = epoch;
            store_release32(&blocked->active, 1);
            reported = true;
        }
        if (looks > 256) pause(looks > 8192 ? 1000 : 50);
    }
    if (reported) store_release32(&blocked->active, 0);
    return ok;
}

// One thread's wait. `count` blocks carry out the lane, and this is number `index`. The first wait of a lane also looks how the stream stands: all three loads
// are on their way together.
DEV bool wait_for(const Launch &launch, const WaitStep *wait, u32 index, u32 count, bool first, u64 &epoch) {
    u64 from = load_relaxed(wait->operand);
    u32 stop = first ? load_relaxed32(&launch.state->stop) : 0;
    u64 value = load_acquire(wait->word);
    // Whoever reads the operand last advances it: no block may find it advanced already. The answer is not needed until later.
    u32 before = 0;
    // Bit 63 is not set; that the count depends on it keeps it from being counted before the operand has been read.
    if (wait->arrivals) before = count_to(wait->arrivals, count - 1 + (u32)(from >> 63));
    bool ok = false;
    if (!(first && (stop || launch.follow[0]) && has_failed(launch))) {
        // Short waits end here.
#pragma unroll 1
        for (int looks = 0; looks < 64 && !(ok = reached(value, from, wait->quantum)); looks++) value = load_acquire(wait->word);
        if (!ok) ok = wait_long(launch, wait, from, index == 0);
    }
    if (before == count - 1 || !wait->arrivals) {
        if (ok && wait->quantum) store_relaxed(wait->operand, from + wait->quantum);
    }
    epoch = ((from + wait->quantum) >> QUANTUM_BITS) - 1;
    return ok;
}

// ---- Moves ----

// Which element of a region or slot element `i` of a shape is.
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

// One side of a move, ready to be asked for addresses.
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

#define DEPTH 4

// Copies units `first, first + stride, ...`, of which there are some DEPTH at a time on their way.
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

// As `copy`, between sides of any shape.
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

#if __CUDA_ARCH__ >= 900
#define HAS_BULK 1
// Large copies go by the bulk engine of the multiprocessor, whose packets fill the links better than stores of 16 bytes do: one thread brings pieces into shared memory and
// sends them on, some on their way at a time.
#define PIECE 12288
#define PIECES 3

DEV u32 shared_address(const void *at) {
    return (u32)__cvta_generic_to_shared(at);
}

struct alignas(128) Pieces {
    u8 data[PIECES][PIECE];
    u64 arrived[PIECES];
};

DEV void bulk_fetch(Pieces &pieces, u32 stage, u64 from, u32 bytes) {
    u32 barrier = shared_address(&pieces.arrived[stage]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(pieces.data[stage])), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}

DEV void bulk_send(Pieces &pieces, u32 stage, u32 parity, u64 to, u32 bytes) {
    u32 barrier = shared_address(&pieces.arrived[stage]), done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(pieces.data[stage])), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// This block's share of a copy; returns when what it sent has arrived, as far as the thread that releases it is concerned.
APART void bulk_copy(u64 to, u64 from, u64 bytes, u32 index, u32 count) {
    __shared__ Pieces pieces;
    if (threadIdx.x != 0) return;
    for (u32 stage = 0; stage < PIECES; stage++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&pieces.arrived[stage])) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    u64 all = (bytes + PIECE - 1) / PIECE;
    u64 mine = all > index ? (all - index + count - 1) / count : 0;
    auto place = [=](u64 k) { return (index + k * count) * PIECE; };
    auto length = [=](u64 k) { u64 left = bytes - place(k); return (u32)(left < PIECE ? left : PIECE); };
    for (u64 k = 0; k < mine + PIECES - 1; k++) {
        if (k < mine) {
            // The piece that was here has been read when no more than the later ones are on their way.
            if (k >= PIECES) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            bulk_fetch(pieces, k % PIECES, from + place(k), length(k));
        }
        if (k + 1 >= PIECES) {
            u64 ready = k + 1 - PIECES;
            if (ready < mine) bulk_send(pieces, ready % PIECES, (ready / PIECES) & 1, to + place(ready), length(ready));
        }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    for (u32 stage = 0; stage < PIECES; stage++)
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(&pieces.arrived[stage])) : "memory");
}
#endif

template <typename T>
DEV T applied(u32 op, T a, T b) {
    switch (op) {
        case OP_SUM: return a + b;
        case OP_PROD: return a * b;
        // For floats a NaN loses.
        case OP_MIN: return (b != b || a < b) ? a : b;
        case OP_MAX: return (b != b || a > b) ? a : b;
        case OP_REPLACE: return b;
        default: return a;
    }
}
template <typename T>
DEV T applied_bits(u32 op, T a, T b) {
    switch (op) {
        case OP_AND: return a & b;
        case OP_OR: return a | b;
        case OP_XOR: return a ^ b;
        default: return applied<T>(op, a, b);
    }
}

// The bits of `op(a, b)`.
DEV u64 combined(u32 scalar, u32 op, u64 a, u64 b) {
    switch (scalar) {
        case S_I8: return (u8)applied_bits<signed char>(op, (signed char)a, (signed char)b);
        case S_I16: return (u16)applied_bits<short>(op, (short)a, (short)b);
        case S_I32: return (u32)applied_bits<int>(op, (int)a, (int)b);
        case S_I64: return (u64)applied_bits<i64>(op, (i64)a, (i64)b);
        case S_U8: return (u8)applied_bits<u8>(op, (u8)a, (u8)b);
        case S_U16: return (u16)applied_bits<u16>(op, (u16)a, (u16)b);
        case S_U32: return (u32)applied_bits<u32>(op, (u32)a, (u32)b);
        case S_U64: return applied_bits<u64>(op, a, b);
        case S_F32: return __float_as_uint(applied<float>(op, __uint_as_float((u32)a), __uint_as_float((u32)b)));
        default: return (u64)__double_as_longlong(applied<double>(op, __longlong_as_double((i64)a), __longlong_as_double((i64)b)));
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

// Replaces an element by what `next` makes of it, atomically; returns what it was. Smaller elements are part of a word of 32 bits.
template <typename Next>
DEV u64 update(u64 at, u32 bytes, Next next) {
    if (bytes == 8) {
        u64 old = load_relaxed(at), seen;
        while ((seen = swap64(at, old, next(old))) != old) old = seen;
        return old;
    }
    u64 word = at & ~3ull;
    u32 shift = (u32)(at & 3) * 8;
    u32 mask = bytes == 4 ? 0xffffffffu : ((1u << (8 * bytes)) - 1) << shift;
    u32 old = load_relaxed32((const u32 *)word), seen;
    for (;;) {
        u32 element = (old & mask) >> shift;
        u32 value = (old & ~mask) | (((u32)next(element) << shift) & mask);
        if ((seen = swap32(word, old, value)) == old) return element;
        old = seen;
    }
}

// Arithmetic: element by element, always atomic (the next move of the lane may be at work on the same element in another block).
APART void compute(const MoveStep *move, bool odd, u64 first, u64 stride) {
    Side src, dst;
    sides(move, odd, src, dst);
    u32 bytes = 1u << move->unit, op = move->op, scalar = move->scalar;
    for (u64 i = first; i < move->count; i += stride) {
        u64 at = dst.at(i);
        u64 value = fetch_bits(src.at(i), bytes);
        if (move->action == ACTION_ACCUMULATE && op == OP_SUM && bytes >= 4) {
            if (scalar == S_F64) red_f64(at, __longlong_as_double((i64)value));
            else if (scalar == S_F32) red_f32(at, __uint_as_float((u32)value));
            else if (bytes == 8) red_u64(at, value);
            else red_u32(at, (u32)value);
            continue;
        }
        u64 old;
        if (move->action == ACTION_SWAP) {
            u64 compare = fetch_bits(move->compare + (i << move->unit), bytes);
            old = update(at, bytes, [=](u64 was) { return was == compare ? value : was; });
        } else {
            old = update(at, bytes, [=](u64 was) { return combined(scalar, op, was, value); });
        }
        if (move->action != ACTION_ACCUMULATE) put_bits(move->result + (i << move->unit), bytes, old);
    }
}

DEV bool is_odd(const MoveStep *move, u64 epoch) {
    if (move->step.flags & MOVE_LAST_PARITY) return epoch & 1;
    return move->parity && (((load_relaxed(move->parity) >> QUANTUM_BITS) - 1) & 1);
}

template <typename Team>
APART void carry(Team team, const MoveStep *move, u64 epoch, u32 index, u32 count) {
    bool odd = is_odd(move, epoch);
#ifdef HAS_BULK
    if (Team::bulk && (move->step.flags & MOVE_BULK)) {
        bulk_copy(move->dst + (odd ? move->dst_flip : 0), move->src + (odd ? move->src_flip : 0), 16 * move->count, index, count);
        return;
    }
#endif
    u64 first = (u64)index * Team::size + team.rank(), stride = (u64)count * Team::size;
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

// ---- Lanes ----

DEV void poison_rest(const u8 *steps) {
    for (;;) {
        const Step *step = (const Step *)steps;
        if (step->kind == STEP_END) return;
        if (step->kind == STEP_ADD && (step->flags & ADD_HAS_WAITER)) or_release(((const AddStep *)step)->word, POISON);
        steps += step->length * 16;
    }
}

// Waits as a team; whether it came. One thread waits for all.
template <typename Team>
DEV bool wait_together(const Launch &launch, Team team, Stand *stand, const WaitStep *wait, u32 index, u32 count, bool first) {
    if (team.rank() == 0) {
        u64 epoch;
        stand->failed = !wait_for(launch, wait, index, count, first, epoch);
        stand->epoch = epoch;
    }
    team.barrier();
    return !stand->failed;
}

// A wait, and the copy behind it: what is copied is fetched while the thread that waits does.
template <typename Team, typename Unit>
APART bool wait_and_copy(const Launch &launch, Team team, Stand *stand, const WaitStep *wait, const MoveStep *move, u32 index, u32 count, bool is_first) {
    u64 first = (u64)index * Team::size + team.rank(), stride = (u64)count * Team::size;
    Side src, dst;
    sides(move, false, src, dst);
    Unit early[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
        if (first + k * stride < move->count) fetch(early[k], src.at(first + k * stride));
    if (!wait_together(launch, team, stand, wait, index, count, is_first)) return false;
    if (is_odd(move, stand->epoch)) dst.base += move->dst_flip;
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
        if (first + k * stride < move->count) put(dst.at(first + k * stride), early[k]);
    copy_sides<Unit>(src, dst, first + DEPTH * stride, stride, move->count);
    return true;
}

// Carries out a lane, whose steps the whole team can read.
template <typename Team>
DEV void run_lane(const Launch &launch, Team team, Stand *stands, const u8 *steps, u32 index, u32 count) {
    Stand *stand = stands;  // after the last wait
    // A lane that begins with a wait looks there how the stream stands.
    bool first = ((const Step *)steps)->kind == STEP_WAIT;
    if (!first) {
        if (team.rank() == 0) stand->failed = has_failed(launch);
        team.barrier();
        if (stand->failed) {
            if (team.rank() == 0) poison_rest(steps);
            return;
        }
    }
    for (;;) {
        const Step *step = (const Step *)steps;
        const u8 *next = steps + step->length * 16;
        switch (step->kind) {
            case STEP_END: return;
            case STEP_WAIT: {
                const WaitStep *wait = (const WaitStep *)step;
                const MoveStep *move = (const MoveStep *)next;
                bool ok;
                stand = stand == stands ? stands + 1 : stands;
                bool early = Team::size > 1 && move->step.kind == STEP_MOVE && (move->step.flags & MOVE_EARLY) && move->action == ACTION_COPY && !(Team::bulk && (move->step.flags & MOVE_BULK));
                if (early && move->unit == 4) {
                    ok = wait_and_copy<Team, V16>(launch, team, stand, wait, move, index, count, first);
                    next += move->step.length * 16;
                } else if (early && move->unit == 3) {
                    ok = wait_and_copy<Team, u64>(launch, team, stand, wait, move, index, count, first);
                    next += move->step.length * 16;
                } else {
                    ok = wait_together(launch, team, stand, wait, index, count, first);
                }
                first = false;
                if (!ok) {
                    if (team.rank() == 0) poison_rest(next);
                    return;
                }
                break;
            }
            case STEP_MOVE: {
                carry(team, (const MoveStep *)step, stand->epoch, index, count);
                break;
            }
            default: {
                const AddStep *add = (const AddStep *)step;
                team.barrier();
                if (team.rank() == 0) {
                    // All parts together are the value; the first block's is what the others leave.
                    add_release(add->word, index == 0 ? add->value - (count - 1) : 1);
                }
                break;
            }
        }
        steps = next;
    }
}

// ---- Lanes in short ----

#define STEPS_WINDOW 512

// All steps of a lane, one after the other: for those that are not in short, and for what fails.
template <typename Team>
APART void run_steps(const Launch &launch, Team team, Stand *stands, const Lane *lane, u32 index, u32 count) {
    // Steps are looked at again and again, the loops of a shape for each element.
    __shared__ alignas(16) u8 windows[THREADS / Team::size][STEPS_WINDOW];
    u8 *window = windows[threadIdx.x / Team::size];
    const u8 *steps = launch.program + 16ull * lane->steps;
    u64 length = lane->count;
    if (length <= STEPS_WINDOW) {
        for (u32 i = 16 * team.rank(); i < length; i += 16 * Team::size) {
            V16 part;
            fetch(part, (u64)steps + i);
            *(V16 *)(window + i) = part;
        }
        team.barrier();
        steps = window;
    }
    run_lane(launch, team, stands, steps, index, count);
}
APART void give_up(const Launch &launch, u32 steps, bool after_wait) {
    const u8 *at = launch.program + 16ull * steps;
    poison_rest(after_wait ? at + 16 * ((const Step *)at)->length : at);
}

// How a short lane's wait went: it came; it did not at once, or the stream may have failed.
enum { SHORT_REACHED = 0, SHORT_NOT_YET = 1 };

// What comes after the wait of a short lane.
template <typename Team>
DEV void end_short(Team team, const Lane &lane, u64 from, u32 before, u32 index, u32 count) {
    if (lane.kind & LANE_ADDS) {
        team.barrier();
        // All parts together are the value; the first block's is what the others leave.
        if (team.rank() == 0) add_release(lane.out, index == 0 ? lane.value - (count - 1) : 1);
    }
    // Nobody waits for this.
    if (team.rank() == 0 && (lane.kind & LANE_WAITS) && lane.quantum && (before == count - 1 || !lane.arrivals)) store_relaxed(lane.operand, from + lane.quantum);
}

// Goes on with a short lane whose wait takes long. What has been fetched is fetched again: to keep it would cost those that do not wait.
template <typename Team, typename Unit>
APART void run_late(const Launch &launch, Team team, Stand *stand, const Lane *at, u64 from, u32 before, u32 index, u32 count) {
    const Lane lane = *at;
    if (team.rank() == 0) {
        bool ok = !has_failed(launch);
        if (ok && (lane.kind & LANE_WAITS)) ok = wait_long(launch, (const WaitStep *)(launch.program + 16ull * lane.steps), from, index == 0);
        stand[1].failed = !ok;
    }
    team.barrier();
    if (stand[1].failed) {
        if (team.rank() == 0) give_up(launch, lane.steps, lane.kind & LANE_WAITS);
        return;
    }
    u64 first = (u64)index * Team::size + team.rank(), stride = (u64)count * Team::size;
    u64 src = lane.src, dst = lane.dst + (stand->epoch & 1 ? lane.flip : 0);
    copy<Unit>([=](u64 i) { return src + i * sizeof(Unit); }, [=](u64 i) { return dst + i * sizeof(Unit); }, first, stride, lane.count);
    u64 end = lane.count * sizeof(Unit) + first;
    if (first < lane.tail) {
        u8 byte;
        fetch(byte, src + end);
        put(dst + end, byte);
    }
    end_short(team, lane, from, before, index, count);
}

// Straight on: where the next instruction is costs as much as where the next word is, so nothing is called that is not needed, and nothing is kept over a call.
template <typename Team, typename Unit>
DEV void run_short(const Launch &launch, Team team, Stand *stand, const Lane *at, u32 index, u32 count) {
    const Lane lane = *at;
    wait_for_previous();
    if (launch.flags & LAUNCH_NEXT) let_next_come();
    u64 first = (u64)index * Team::size + team.rank(), stride = (u64)count * Team::size;
    // What is sent is fetched while the exposure is looked at.
    Unit early[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
        if (first + k * stride < lane.count) fetch(early[k], lane.src + (first + k * stride) * sizeof(Unit));
    // What is no whole unit goes by bytes: a store of 8 bytes to a peer takes much longer than 8 of one byte, which become one on their way (measured).
    u8 tail;
    u64 end = lane.count * sizeof(Unit) + first;
    if (first < lane.tail) fetch(tail, lane.src + end);
    u64 from = 0;
    u32 before = 0;
    if (team.rank() == 0) {
        bool ok = true;
        u32 stop = load_relaxed32(&launch.state->stop);
        if (lane.kind & LANE_WAITS) {
            from = load_relaxed(lane.operand);
            u64 value = load_acquire(lane.word);
            // As in `wait_for`.
            if (lane.arrivals) before = count_to(lane.arrivals, count - 1 + (u32)(from >> 63));
            ok = false;
#pragma unroll 1
            for (int looks = 0; looks < 64 && !(ok = reached(value, from, lane.quantum)); looks++) value = load_acquire(lane.word);
        }
        stand->failed = stop || launch.follow[0] || !ok ? SHORT_NOT_YET : SHORT_REACHED;
        stand->epoch = ((from + lane.quantum) >> QUANTUM_BITS) - 1;
    }
    team.barrier();
    if (stand->failed == SHORT_NOT_YET) {
        run_late<Team, Unit>(launch, team, stand, at, from, before, index, count);
        return;
    }
    u64 dst = lane.dst + (stand->epoch & 1 ? lane.flip : 0);
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
        if (first + k * stride < lane.count) put(dst + (first + k * stride) * sizeof(Unit), early[k]);
    if (first < lane.tail) put(dst + end, tail);
    if (first + DEPTH * stride < lane.count) {
        u64 src = lane.src;
        copy<Unit>([=](u64 i) { return src + i * sizeof(Unit); }, [=](u64 i) { return dst + i * sizeof(Unit); }, first + DEPTH * stride, stride, lane.count);
    }
    end_short(team, lane, from, before, index, count);
}

// A lane that only adds: a post. Nobody has anything to wait for, but what stands before this batch must have been seen: the fence is on its way while the stream's
// state is looked at.
DEV void run_post(const Launch &launch, const Lane *at) {
    u64 out = at->out, value = at->value;
    u32 steps = at->steps;
    wait_for_previous();
    if (launch.flags & LAUNCH_NEXT) let_next_come();
    u32 stop = load_relaxed32(&launch.state->stop);
    fence();
    if ((stop || launch.follow[0]) && has_failed(launch)) give_up(launch, steps, false);
    else add_relaxed(out, value);
}

// A lane that only waits, mostly for what a peer puts: one thread has it to itself, and when the word comes there is nothing left to do but to advance the operand and to end.
DEV void run_wait(const Launch &launch, const Lane *at) {
    u64 word = at->word, operand = at->operand, quantum = at->quantum;
    wait_for_previous();
    if (launch.flags & LAUNCH_NEXT) let_next_come();
    u64 from = load_relaxed(operand);
    u32 stop = load_relaxed32(&launch.state->stop);
    u64 value = load_acquire(word);
    bool ok = false;
    if (!stop && !launch.follow[0]) {
        // As in `wait_for`.
#pragma unroll 1
        for (int looks = 0; looks < 64 && !(ok = reached(value, from, quantum)); looks++) value = load_acquire(word);
    }
    if (!ok) {
        const WaitStep *wait = (const WaitStep *)(launch.program + 16ull * at->steps);
        if (has_failed(launch) || !wait_long(launch, wait, from, true)) return;
    }
    if (quantum) store_relaxed(operand, from + quantum);
}

template <typename Large>
DEV void run_batch(const Launch &launch) {
    __shared__ Stand stands[WARPS][2];
    // No kernel writes the program: it can be read before what stands before this one is over.
    const u8 *own = launch.program + (u64)blockIdx.x * launch.stride;
    const Record record = *(const Record *)own;
    u32 member = record.team == TEAM_BLOCKS ? 0 : threadIdx.x / WARP;
    if (member >= record.lanes) return;
    const Lane *lane = (const Lane *)(own + sizeof(Record)) + member;
    u32 kind = lane->kind;
    if (record.team == TEAM_BLOCKS) {
        if (!(kind & LANE_STEPS)) {
            run_short<Large, V16>(launch, Large(), stands[0], lane, record.index, record.count);
            return;
        }
    } else if (kind == LANE_ADDS) {
        if (threadIdx.x % WARP == 0) run_post(launch, lane);
        return;
    } else if (kind == LANE_WAITS) {
        if (threadIdx.x % WARP == 0) run_wait(launch, lane);
        return;
    } else if (!(kind & LANE_STEPS)) {
        run_short<Warp, V16>(launch, Warp(), stands[member], lane, 0, 1);
        return;
    }
    wait_for_previous();
    if (launch.flags & LAUNCH_NEXT) let_next_come();
    if (record.team == TEAM_BLOCKS) run_steps(launch, Large(), stands[0], lane, record.index, record.count);
    else run_steps(launch, Warp(), stands[member], lane, 0, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) tidegate_batch(const __grid_constant__ Launch launch) {
    run_batch<Block>(launch);
}

#ifdef HAS_BULK
// For batches with large copies: they take shared memory that the others must not ask for.
extern "C" __global__ void __launch_bounds__(THREADS, 2) tidegate_batch_bulk(const __grid_constant__ Launch launch) {
    run_batch<BulkBlock>(launch);
}
#endif
