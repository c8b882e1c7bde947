// A part of batch.cu: stamps, which say when a lane did what. They are in stamped.cu only: elsewhere, what stands in STAMP
// is not compiled.
//
// # Model
//
// The first thread of a team notes times in shared memory (`Marks`). At the end of each leg of its lane it writes them to
// a ring in pinned memory, from which the host takes them (`crates/gpu/src/stamps.rs`). `crates/hal/src/stamps.rs` says
// what a leg is. The end of the first leg is written before the second one's wait, which hides the time that this takes.
//
// A team claims a position of the ring only if the host has taken what was there before. So no position is left empty,
// and nothing is overwritten. If there is none, the team counts the leg as dropped, and goes on.
//
// A team that fails writes nothing. Of several blocks that carry out a lane, the first one writes.

// (A program may have both kernels.)
#undef STAMP
#ifndef STAMPED
#define STAMP(...)
#else
#define STAMP(...) __VA_ARGS__

// Where the host and the kernel exchange positions: in pinned memory, in front of the stamps.
struct Ring {
    u64 taken;  // how many stamps the host has taken
    u64 unused[15];
    u64 dropped;  // how many stamps there was no room for
    u64 unused2[15];
};

// A stamp in the ring. Its `number` is its position plus 1, and is stored last.
struct alignas(16) Stamp {
    u64 batch, leg;  // the lane's number, and the leg's above it
    u64 epoch, begun, satisfied, moved;
    u64 ended, number;
};

// Counts a stamp that there is no room for, and tells the host. If several threads count, one of them tells for all,
// since the host must not see an older count last.
DEV void drop_stamp(State *state, Ring *ring) {
    add_fetch((u64)&state->dropped, 1);
    if (add_fetch((u64)&state->telling, 1)) return;
    for (u64 told = 1;;) {
        store_relaxed((u64)&ring->dropped, load_relaxed((u64)&state->dropped));
        u64 all = add_fetch((u64)&state->telling, 0 - told);
        if (all == told) return;
        told = all - told;
    }
}

// Claims a position of the ring. Returns whether there is one.
DEV bool claim_stamp(State *state, Ring *ring, u64 &position) {
    u64 taken = load_relaxed((u64)&state->taken);
    u64 head = load_relaxed((u64)&state->head);
    for (;;) {
        if ((i64)(head - taken) >= (i64)state->slots) {
            // A look over the bus takes long, so the last result is kept. (What is written to the ring depends on it, and
            // no store is made before that is decided.)
            taken = load_relaxed((u64)&ring->taken);
            if ((i64)(head - taken) >= (i64)state->slots) return false;
            store_relaxed((u64)&state->taken, taken);
        }
        position = head;
        head = swap64((u64)&state->head, position, position + 1);
        if (head == position) return true;
    }
}

// What the first thread of a team notes about the leg that it is at.
struct Marks {
    State *state;
    u64 batch;  // 0: nothing is to be written
    u64 epoch, begun, satisfied, moved, ended;
    u32 lane, leg;
    bool used;   // the leg has done something
    bool moving; // it has made a move after its last add

    DEV void begin(u64 now) {
        epoch = 0;
        begun = satisfied = moved = ended = now;
        used = moving = false;
    }

    // The wait of the leg is over.
    DEV void waited(u64 from, u64 quantum) {
        epoch = from >> QUANTUM_BITS;
        // A ticket's operand already counts the epoch that the ticket is for.
        if (quantum == 0 && epoch) epoch--;
        satisfied = moved = ended = global_timer();
        used = true;
    }

    DEV void moves() { used = moving = true; }

    // An add is about to be made.
    DEV void adds() {
        if (moving) moved = global_timer();
        moving = false;
    }

    DEV void added() {
        ended = global_timer();
        used = true;
    }
};

DEV Marks &marks() {
    __shared__ Marks all[WARPS];
    return all[threadIdx.x / WARP];
}

// The names of a lane follow the lanes of its record.
DEV void open_lane(const Launch &launch, const Record &record, const Lane *lanes, u32 member) {
    if (threadIdx.x % WARP) return;
    const u32 name = ((const u32 *)(lanes + record.lanes))[member];
    Marks &at = marks();
    at.state = launch.state;
    at.batch = record.index == 0 ? record.batch : 0;
    at.lane = name & 0xffff;
    at.leg = name >> 16;
}

// The team's turn has come. (In a block, other threads do so, too, and nobody reads their marks.)
DEV void begin_lane() {
    if (threadIdx.x % WARP == 0) marks().begin(global_timer());
}

// The leg is over.
APART void end_leg() {
    Marks &at = marks();
    if (at.moving) at.moved = at.ended = global_timer();
    State *state = at.state;
    u64 position;
    if (!at.batch || !state->ring) return;
    Ring *ring = (Ring *)state->ring;
    if (!claim_stamp(state, ring, position)) {
        drop_stamp(state, ring);
        return;
    }
    const u64 to = state->ring + sizeof(Ring) + position % state->slots * sizeof(Stamp);
    store_both(to, at.batch, (u64)at.leg << 32 | at.lane);
    store_both(to + 16, at.epoch, at.begun);
    store_both(to + 32, at.satisfied, at.moved);
    store_relaxed(to + 48, at.ended);
    store_release(to + 56, position + 1);
}

// Whether a wait is for a courier, which makes the copies of a leg. It is no leg of its own.
DEV bool is_for_courier(const WaitStep *wait) { return (wait->awaited & 0xff) == AWAITED_EVENT; }

// A wait is about to begin. If the leg has done something, it ends here.
DEV void begin_wait(const WaitStep *wait) {
    Marks &at = marks();
    if (!at.used || is_for_courier(wait)) return;
    end_leg();
    at.leg++;
    at.begin(at.ended);
}

// The wait is over.
DEV void end_wait(const WaitStep *wait, u64 from) {
    Marks &at = marks();
    if (is_for_courier(wait)) at.moves(), at.adds();
    else at.waited(from, wait->quantum);
}

// The next leg of a fold, whose wait was over at this time.
DEV void stamp_leg(const Launch &launch, const Lane *lane, const Vector &vector, u64 when) {
    begin_wait((const WaitStep *)(launch.program + 16ull * (lane->steps + vector.wait)));
    Marks &at = marks();
    at.waited(vector.from, QUANTUM);
    at.satisfied = at.moved = at.ended = when;
}

#endif
