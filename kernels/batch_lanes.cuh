// A part of batch.cu: lanes, step by step.

// The part of a value that one of several blocks adds. All parts together are the value. The first block adds what the
// others leave.
DEV u64 part_of(u64 value, u32 index, u32 count) { return index == 0 ? value - PART * (count - 1) : PART; }

// Adds to a word of the host. Not every bus can do that, so the sum is counted here, and then stored there. If there
// are several blocks, the last one stores: the word is never seen between two quanta. Returns whether this was the last
// one.
DEV bool ring(const AddStep *add, u64 part, u32 parts) {
    u64 count = add_fetch(add->count, part) + part;
    if (parts == 1 || !(count & (QUANTUM - 1))) {
        store_release(add->word, count);
        return true;
    }
    return false;
}

// Stores to a register, after everything that this thread has seen or done. That includes the word that it has rung,
// and the puts of all blocks of the lane.
DEV void strike(const StoreStep *store) {
    fence();
    store_register(store->to, store->value);
}

DEV void poison_rest(const u8 *steps) {
    for (;;) {
        const Step *step = (const Step *)steps;
        if (step->kind == STEP_END) return;
        if (step->kind == STEP_ADD && (step->flags & ADD_HAS_WAITER)) {
            const AddStep *add = (const AddStep *)step;
            if (add->count) store_release(add->word, or_fetch(add->count, POISON) | POISON);
            else or_release(add->word, POISON);
        }
        steps += step->length * 16;
    }
}

// Whether a number that an earlier kernel has written is not too great. If it is, the stream has failed.
DEV bool check(const Launch &launch, const CheckStep *check) {
    u64 count;
    fetch(count, check->count);
    if (count <= check->most) return true;
    Fault fault = {FAULT_COUNT, check->window, check->peer, check->awaited, count};
    record_fault(launch, fault);
    return false;
}

// Waits as a team. Returns whether the count has been reached. One thread waits for all.
template <typename Team>
DEV bool wait_together(const Launch &launch, Team team, Stand *stand, const WaitStep *wait, u32 index, u32 count, bool first) {
    if (team.rank() == 0) {
        u64 epoch;
        STAMP(begin_wait(wait);)
        stand->failed = !wait_for(launch, wait, index, count, first, epoch);
        stand->epoch = epoch;
    }
    team.barrier();
    return !stand->failed;
}

// Carries out a wait and the linear copy after it. The other threads fetch the data while one waits.
template <typename Team, typename Unit>
APART bool wait_and_copy(const Launch &launch, Team team, Stand *stand, const WaitStep *wait, const MoveStep *move, u32 index, u32 count, bool is_first) {
    u64 first = (u64)index * Team::size + team.rank(), stride = (u64)count * Team::size;
    u64 src = move->src, units = move->count;
    Unit early[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
        if (first + k * stride < units) fetch(early[k], src + (first + k * stride) * sizeof(Unit));
    if (!wait_together(launch, team, stand, wait, index, count, is_first)) return false;
    u64 dst = move->dst + (is_odd(move, stand->epoch) ? move->dst_flip : 0);
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
        if (first + k * stride < units) put(dst + (first + k * stride) * sizeof(Unit), early[k]);
    copy<Unit>([=](u64 i) { return src + i * sizeof(Unit); }, [=](u64 i) { return dst + i * sizeof(Unit); }, first + DEPTH * stride, stride, units);
    return true;
}

// Carries out a row of copies, which are dealt to the warps of all blocks. One after another, each copy would wait for
// its fetches. Returns the step after them.
template <typename Team>
DEV const u8 *carry_row(Team team, const MoveStep *first, u64 epoch, u32 index, u32 count) {
    const u32 moves = first->row, length = 16 * first->step.length;
    const u32 warps = count * (Team::size / WARP), warp = index * (Team::size / WARP) + team.rank() / WARP;
    // Each copy gets `each` warps. If there are fewer warps than copies, each warp has several copies.
    const u32 each = warps > moves ? warps / moves : 1, groups = warps / each;
    if (warp < groups * each)
        for (u32 number = warp / each; number < moves; number += groups)
            carry((const MoveStep *)((const u8 *)first + number * length), epoch, warp % each * WARP + team.rank() % WARP, each * WARP);
    return (const u8 *)first + moves * length;
}

// Carries out a lane, whose steps the whole team can read. `REDUCES`: it may have reductions.
template <bool REDUCES, typename Team>
DEV void run_lane(const Launch &launch, Team team, Stand *stands, const u8 *steps, u32 index, u32 count) {
    Stand *stand = stands;  // after the last wait
    bool rang = true;       // of several blocks, this one: known to the thread that adds
    // A lane that begins with a wait checks in that wait whether the stream has failed.
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
            case STEP_END:
                STAMP(if (team.rank() == 0) end_leg();)
                return;
            case STEP_WAIT: {
                const WaitStep *wait = (const WaitStep *)step;
                const MoveStep *move = (const MoveStep *)next;
                bool ok;
                stand = stand == stands ? stands + 1 : stands;
                bool early = move->step.kind == STEP_MOVE && !(Team::size > WARP && move->row) && (move->step.flags & MOVE_EARLY) && move->action == ACTION_COPY;
                early = early && move->src_shape == SHAPE_LINEAR && move->dst_shape == SHAPE_LINEAR;
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
                STAMP(if (early && team.rank() == 0) marks().moves();)
                break;
            }
            case STEP_CHECK: {
                // The other threads may still read the result of the last wait, whose epoch stays that of the moves.
                Stand *last = stand;
                stand = stand == stands ? stands + 1 : stands;
                if (team.rank() == 0) {
                    stand->failed = !check(launch, (const CheckStep *)step);
                    stand->epoch = last->epoch;
                }
                team.barrier();
                if (stand->failed) {
                    if (team.rank() == 0) poison_rest(next);
                    return;
                }
                break;
            }
            case STEP_MOVE: {
                const MoveStep *move = (const MoveStep *)step;
                // Another thread may have worked on its elements before.
                if (move->step.flags & MOVE_BEHIND) team.barrier();
                if (REDUCES && move->action == ACTION_REDUCE) reduce(move, stand->epoch, index * Team::size + team.rank(), count * Team::size);
                else if (Team::size > WARP && move->row) next = carry_row(team, move, stand->epoch, index, count);
                else carry(move, stand->epoch, index * Team::size + team.rank(), count * Team::size);
                STAMP(if (team.rank() == 0) marks().moves();)
                break;
            }
            case STEP_STORE: {
                team.barrier();
                if (team.rank() == 0 && rang) strike((const StoreStep *)step);
                break;
            }
            default: {
                const AddStep *add = (const AddStep *)step;
                team.barrier();
                if (team.rank() == 0) {
                    u64 part = part_of(add->value, index, count);
                    STAMP(marks().adds();)
                    if (add->count) rang = ring(add, part, count);
                    else add_release(add->word, part);
                    STAMP(marks().added();)
                }
                break;
            }
        }
        steps = next;
    }
}

// Bytes of steps that a warp keeps at hand. Its lane has few of them. (Where lanes reduce, the vectors of a fold need
// room, too.) A block of one team has the room of all its warps.
template <bool REDUCES>
struct Windows {
    static constexpr u32 WARP_ROOM = REDUCES ? 256 : 512, ALL = WARPS * WARP_ROOM;

    DEV static u8 *get() {
        __shared__ alignas(16) u8 all[ALL];
        return all;
    }
};

// Carries out all steps of a lane, one after the other. This is for lanes that are not in short, and for those that
// fail.
template <bool REDUCES, typename Team>
APART void run_steps(const Launch &launch, Team team, Stand *stands, const Lane *lane, Part part) {
    // Steps are read many times; the loops of a shape, for each element. Also, no kernel writes them. So all steps for
    // which there is room are brought here before the work before this batch is over.
    const u32 room = Team::size > WARP ? Windows<REDUCES>::ALL : Windows<REDUCES>::WARP_ROOM;
    u8 *window = Windows<REDUCES>::get() + threadIdx.x / Team::size * room;
    const Turn turn(launch, part);
    const u8 *steps = launch.program + 16ull * lane->steps;
    u64 length = lane->count;
    if (length <= room) {
        for (u32 i = 16 * team.rank(); i < length; i += 16 * Team::size) {
            V16 part;
            fetch(part, (u64)steps + i);
            *(V16 *)(window + i) = part;
        }
        team.barrier();
        steps = window;
    }
    turn.await();
    run_lane<REDUCES>(launch, team, stands, steps, part.index, part.count);
}
APART void give_up(const Launch &launch, u32 steps, bool after_wait) {
    const u8 *at = launch.program + 16ull * steps;
    poison_rest(after_wait ? at + 16 * ((const Step *)at)->length : at);
}
