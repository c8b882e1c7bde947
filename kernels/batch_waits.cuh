// A part of batch.cu: teams, and the waits that one of their threads makes for all.

// ---- Teams ----

// The threads that carry out one lane together.
struct Warp {
    static const u32 size = WARP;
    DEV u32 rank() const { return threadIdx.x % WARP; }
    DEV void barrier() const { warp_barrier(); }
};
struct Block {
    static const u32 size = THREADS;
    DEV u32 rank() const { return threadIdx.x; }
    DEV void barrier() const { block_barrier(); }
};
// The result of a wait, which a team's threads share. There are two, which successive waits use in turn: a slow thread
// may still read one after the barrier of its wait, while the waiting thread is already in the next wait.
struct Stand {
    u64 epoch;   // the number of the last wait's epoch
    u32 failed;
};

// The share of a lane that a team carries out: number `index` of `count`. And whether its block has nothing else to do.
struct Part {
    u32 index, count;
    bool alone;
};

// ---- Turns ----

// How many teams of this block may still wait for a peer, if there are several.
DEV u32 *waiting() {
    __shared__ u32 teams;
    return &teams;
}

// Begins the count, if the block has several teams.
DEV void count_teams(u32 teams) {
    if (BEGINS_EARLY && teams > 1) {
        if (threadIdx.x == 0) *waiting() = teams;
        block_barrier();
    }
}

// Notes that a team waits for no peer any more; `first` is set in one of its threads. If the team is alone in its
// block, the next kernel may now begin. Until now it was kept away, because it could take the room that an awaited
// kernel needs. If there are several teams, the last one lets it begin; each team passes once. (Teams that go step by
// step do not pass: for them, the end of the block does it.)
DEV void pass_block(bool alone, bool first) {
    if (BEGINS_EARLY && (alone || (first && count_down(waiting()) == 1))) let_next_come();
}

// The fields of its launch that a lane needs when its turn comes. In a function that is not inlined, the launch is
// behind a pointer, and each read takes a trip to memory. So the fields are read before.
struct Turn {
    State *state, *follow;
    bool lets_next_come, alone;

    DEV Turn(const Launch &launch, Part part)
        : state(launch.state), follow(launch.follow[0]), lets_next_come(launch.flags & LAUNCH_NEXT), alone(part.alone) {}

    DEV void await() const {
        wait_for_previous();
        if (lets_next_come) let_next_come();
        STAMP(begin_lane();)
    }

    DEV void pass(bool first) const { pass_block(alone, first); }
};

// ---- Waits ----

DEV void record_fault(const Launch &launch, Fault fault) {
    if (or_fetch32(&launch.state->stop, 1) & 1) return;  // another team was first
    launch.state->fault = fault;
    or_fetch32(&launch.state->stop, 2);
    launch.mirror->fault = fault;
    store_release32(&launch.mirror->failed, 1);
}

// Fails the stream because of a poisoned word. `epoch` is what the wait was for.
DEV void fail_wait(const Launch &launch, const WaitStep *wait, u64 epoch) {
    Fault fault = {FAULT_WAIT, wait->window, wait->peer, wait->awaited, epoch};
    record_fault(launch, fault);
}

// Reports that a wait takes long, to the host that watches. Who reports sets `active` to 0 when the wait is over.
DEV void report(Blocked *blocked, const WaitStep *wait, u64 epoch) {
    blocked->window = wait->window;
    blocked->peer = wait->peer;
    blocked->awaited = wait->awaited;
    blocked->epoch = epoch;
    store_release32(&blocked->active, 1);
}

// Whether the stream has failed, was ended, or must fail because a stream that it follows has failed.
APART bool has_failed(const Launch &launch) {
    u32 stop = load_relaxed32(&launch.state->stop);
    for (int i = 0; i < 2; i++) {
        State *other = launch.follow[i];
        u32 theirs = other ? load_relaxed32(&other->stop) : 0;
        if (theirs && !stop) {
            Fault fault = {FAULT_ABORTED, 0, 0, 0, 0};
            if (theirs & 1) {
                // The failed team of that stream is about to record the cause.
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

// Whether everything that is awaited has been promised: at most 1 per block is missing.
DEV bool promised(u64 value, u64 from, u64 quantum) {
    return quantum == QUANTUM && (i64)((value & ~POISON) - from) >= (i64)(QUANTUM - MOST_BLOCKS);
}

// The rest of a wait that takes longer than an instant. It is not inlined, because shorter waits do not need it.
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
        // A ticket's operand already counts the epoch that the ticket is for.
        if (wait->quantum == 0 && epoch) epoch--;
        if (value & POISON) {
            fail_wait(launch, wait, epoch);
            break;
        }
        if (looks % 16 == 0 && has_failed(launch)) break;
        // The waits of a large batch share one place for reports, in turn. A team that finds it free takes it. A team
        // that was overwritten takes it again later.
        if (reports && looks >= 4096 && looks % 1024 == 0 && !load_relaxed32(&blocked->active)) {
            report(blocked, wait, epoch);
            reported = true;
        }
        if (looks > 256) pause(looks > 8192 ? 1000 : 50);
    }
    if (reported) store_release32(&blocked->active, 0);
    return ok;
}

// One thread's wait. `count` blocks carry out the lane, and this is number `index`. The first wait of a lane also
// checks whether the stream has failed. All three loads are in flight together.
DEV bool wait_for(const Launch &launch, const WaitStep *wait, u32 index, u32 count, bool first, u64 &epoch) {
    u64 from = load_relaxed(wait->operand);
    u32 stop = first ? load_relaxed32(&launch.state->stop) : 0;
    u64 value = load_acquire(wait->word);
    // The last block to read the operand advances it, because no block may find it advanced already. The answer is not
    // needed until later.
    u32 before = 0;
    // Bit 63 is never set. But the dependence on it keeps the count from being made before the operand has been read.
    if (wait->arrivals) before = count_to(wait->arrivals, count - 1 + (u32)(from >> 63));
    bool ok = false;
    if (!(first && (stop || launch.follow[0]) && has_failed(launch))) {
        // Short waits end here.
#pragma unroll 1
        for (int looks = 0; looks < 64 && !(ok = reached(value, from, wait->quantum)); looks++) value = load_acquire(wait->word);
        if (!ok) ok = wait_long(launch, wait, from, index == 0);
    }
    STAMP(if (ok) end_wait(wait, from);)
    if (before == count - 1 || !wait->arrivals) {
        if (ok && wait->quantum) store_relaxed(wait->operand, from + wait->quantum);
    }
    epoch = ((from + wait->quantum) >> QUANTUM_BITS) - 1;
    return ok;
}
