// A part of batch.cu: the data layout that the host and the kernel share.
//
// `crates/gpu/src/lower/layout.rs` mirrors it, and its tests compare the sizes and offsets.

// An emulation may use smaller teams. (WARP is the machine's.)
#ifndef THREADS
#define THREADS 512
#endif
#define WARPS (THREADS / WARP)
static_assert(WARP >= 16, "the bytes that follow the units have a thread each");
#define POISON (1ull << 62)
#define QUANTUM_BITS 20
#define QUANTUM (1ull << QUANTUM_BITS)
// The part of a value that each of several blocks adds. The first one adds what the others leave. In a lane in short,
// the last 1 of such a part says that the block has put its share; the rest is a *promise*.
#define PART 1024ull
#define MOST_BLOCKS 255ull
static_assert(PART > MOST_BLOCKS && PART * MOST_BLOCKS <= QUANTUM, "a part that is not promised is more than 1 of each block");

enum { TEAM_WARPS = 0, TEAM_BLOCKS = 1 };
enum { STEP_END = 0, STEP_WAIT = 1, STEP_MOVE = 2, STEP_ADD = 3, STEP_STORE = 4, STEP_CHECK = 5 };
// LANE_GATHERS, with LANE_LISTED: the list says where the units come from, and they go to whole lines of 16 bytes.
// LANE_BEHIND: the copy reads what the wait is for, so nothing is fetched before the wait is over.
// LANE_CHECKS: a kernel has completed the target, and only what it must not have done is left to be looked for.
enum { LANE_STEPS = 1, LANE_WAITS = 2, LANE_COPIES = 4, LANE_ADDS = 8, LANE_LANDS = 16, LANE_LISTED = 32, LANE_GATHERS = 64, LANE_COUNTED = 128, LANE_REDUCES = 256, LANE_BEHIND = 512, LANE_CHECKS = 1024 };
enum { ADD_HAS_WAITER = 1 };
// MOVE_BEHIND: the team meets at a barrier before it. MOVE_ALONE: elements of less than four bytes that no other thread
// updates, here or elsewhere; the bytes beside them belong to others.
enum { MOVE_EARLY = 1, MOVE_LAST_PARITY = 2, MOVE_BEHIND = 4, MOVE_ALONE = 8 };
enum { SHAPE_LINEAR = 0, SHAPE_STRIDED = 1, SHAPE_INDEXED = 2 };
enum { ACTION_COPY = 0, ACTION_ACCUMULATE = 1, ACTION_FETCH = 2, ACTION_SWAP = 3, ACTION_COUNTED = 4, ACTION_REDUCE = 5 };
enum { OP_SUM, OP_PROD, OP_MIN, OP_MAX, OP_AND, OP_OR, OP_XOR, OP_REPLACE, OP_KEEP, OP_MIN_BEFORE, OP_MAX_BEFORE };
enum { S_I8, S_I16, S_I32, S_I64, S_U8, S_U16, S_U32, S_U64, S_F32, S_F64, S_F16, S_BF16 };
enum { FAULT_WAIT = 1, FAULT_ABORTED = 2, FAULT_COUNT = 3 };
// The kind of a wait that is for a courier, in the lowest byte of `awaited`.
enum { AWAITED_EVENT = 4 };

// The work of one block: the head of its record. All records of a program have the same length, so that a block finds
// its own without a look at anything else. After the head come its lanes.
struct Record {
    u8 team;
    u8 lanes;
    u16 unused;
    u16 index;  // blocks: which of them this is
    u16 count;  // blocks: how many carry out the lane
    u64 batch;  // its number, for stamps; 0: nothing is stamped
    // The lanes follow, and then a u32 for each: the number of the lane, and above it that of its first leg.
};

// A lane in short. Nearly every lane consists of some of these: a wait, a copy, an add. Then all of it is in this
// struct, and the steps are read only if something goes wrong. For other lanes, LANE_STEPS says that the steps must be
// carried out.
struct alignas(16) Lane {
    u16 kind;
    u8 unit;  // LANE_LISTED, LANE_COUNTED: how large a unit is, as a power of two: 2, 3 or 4 (16 bytes, as in every other lane)
    u8 unused;
    u32 steps;  // where they are, in units of 16 bytes from the beginning of the program
    u64 word, operand, quantum;
    u64 arrivals;  // counts the blocks that have read the operand; 0 if one team carries out the lane
    u64 src, dst;
    u64 flip;   // what is added to `dst` in epochs of odd number; LANE_BEHIND: to `src`
    u64 count;  // units (LANE_STEPS, LANE_CHECKS: bytes of the steps)
    u64 out, value;
    u64 tail;   // so many bytes follow the units, fewer than 16
    // LANE_LANDS: the landing of a put, or of a wait, whose slot is `dst` with its flip. Then `count` is in bytes, and
    // there is no tail. A wait whose lane copies the slot does so to `out`; for any other wait, that is 0.
    // LANE_LANDS with LANE_REDUCES: `from` vectors to put, and `to` terms. They are in a list, `tail` units of 16 bytes
    // behind the beginning of the steps. The result goes to `dst`, `value` is the type of its elements (with 1 above its 32
    // bits, if floats are summed), and `unit` their size. Before the result, `src` is copied to `out`, unless that is 0.
    u64 landing, landing_flip;
    // LANE_LISTED: lists of the units' places on either side. An entry has four bytes, and counts in units from `src`
    // or from `dst`; 0 if the units are contiguous. LANE_COUNTED: `from` is the address of the number of elements,
    // `count` the most of them, `to` the bytes of one.
    u64 from, to;
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
    u64 word, value;
    u64 count;  // a word in device memory that counts for one of the host's, which is stored to; 0: the word itself is added to
};

struct StoreStep {
    Step step;
    u64 to, value;  // of several blocks, only behind an add with a `count`: who has stored that stores this
};

// Fails the stream if the number at `count` is greater than `most`.
struct CheckStep {
    Step step;
    u64 count, most;
    u32 window, peer, awaited, unused;
};

struct MoveStep {
    Step step;
    u64 count;  // units
    u64 src, dst;
    u64 src_flip, dst_flip;
    u64 parity;  // a word, unless MOVE_LAST_PARITY
    // ACTION_COUNTED: `compare` is where the number of elements stands, `result` its flip, and `count` the most of them.
    // ACTION_REDUCE: `count` is in whole lines of 16 bytes, behind which come `result` elements. On all sides the lines are
    // aligned. If `op` is a sum, so are all terms, of elements of 4 or 8 bytes. Otherwise there are no lines.
    u64 result, compare;
    u32 size;  // bytes of an element
    u32 sub;   // units of an element; ACTION_REDUCE: how many terms stand behind the step, instead of shapes
    u8 action, op, scalar, unit;  // unit: bytes that are moved at a time, as a power of two
    u8 src_shape, dst_shape;
    u16 row;  // so many copies stand here, this one first, that warps make beside each other; 0: it is not the first of such
    // Then comes a `Shape` for each side that is not linear: first the source's.
};

struct Shape {
    u64 table;
    u32 rank;
    u32 count[5];
    int stride[5];
    u32 unused;
};

// A value that ACTION_REDUCE combines with an element, one after the other.
struct alignas(16) Term {
    u64 src, flip;
    u64 parity;  // as a move's
    u32 op, last;  // `last`: the parity is that of the last wait's epoch
};

// LANE_LANDS with LANE_REDUCES: a vector that the lane puts, or combines with the others. `wait` says where its wait is,
// in units of 16 bytes from the lane's steps. A vector of this rank that is only combined has no wait: `operand` is 0.
struct alignas(16) Vector {
    u64 word, operand;
    u64 src, flip;  // put: the vector itself; term: the vector, or the slot
    u64 landing, landing_flip;
    u16 op, wait;
    // The rest is the kernel's: the vector has come by the word; it has not come, and will not; the operand's value.
    u16 by_word, lacks;
    u64 from;
};
#define MOST_VECTORS 66

struct Fault {
    u32 kind, window, peer, awaited;
    u64 epoch;  // FAULT_COUNT: the number that is too great
};

// A stream's state in device memory.
struct State {
    u32 stop;  // bit 0: a team has failed; bit 1: `fault` says why; bits 8-15: the host has ended it
    u32 unused;
    Fault fault;
    // Of a stream that is stamped: the ring, how many stamps it holds, and how many were claimed. The others are explained
    // in batch_stamps.cuh.
    u64 ring, slots, head, taken, dropped, telling;
};

struct Blocked {
    u32 active, window, peer, awaited;
    u64 epoch, unused;
};

#define MAX_BLOCKED 64

// The part of a stream's state that the host may read at any time, in pinned memory.
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

// LAUNCH_NEXT: the next grid of the stream may begin while this one waits. Otherwise it may begin only when no block of
// this one waits any more.
enum { LAUNCH_NEXT = 1 };
