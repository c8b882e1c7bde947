// ptx: compute_80
//
// The kernels of the examples on GPUs (`examples/*_gpu.rs`), as a user would write them.
//
// # Model
//
// tidegate.cuh explains the types of parameters, and slots. All kernels work in any grid: each thread takes elements at
// a constant stride. (Kernels that leave sums need blocks of 128 threads, and no more blocks than sums.)
//
// # Failure
//
// There is none: indices stay within the lengths.

#include "tidegate.cuh"

using tidegate::Slot;
using tidegate::current;

typedef unsigned long long u64;

#define EACH(i, len) u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x, step_##i = (u64)gridDim.x * blockDim.x; i < (len); i += step_##i

// --- ring ---

// x += 1
extern "C" __global__ void increment(double *x, u64 len) {
    for (EACH(i, len)) x[i] += 1;
}

// Counts the elements of all slots that differ from `src`.
extern "C" __global__ void compare(const Slot *slots, u64 count, const double *src, u64 len, u64 *errors, u64 counters) {
    if (!counters) return;
    for (u64 k = 0; k < count; k++) {
        const double *came = current<double>(slots[k]);
        for (EACH(i, len))
            if (i >= slots[k].len || came[i] != src[i]) atomicAdd(errors, 1ull);
    }
}

// --- halo2d ---

// Where a neighbour's data belongs: the first ghost cell, and the distance from each to the next.
struct Ghosts {
    u64 first, stride;
};

// Fills the ghosts of `u` from the slots: slot k belongs to ghosts k.
extern "C" __global__ void fill_ghosts(const Slot *slots, u64 count, const Ghosts *ghosts, u64 sides, double *u, u64 len) {
    for (u64 k = 0; k < count && k < sides; k++) {
        const double *came = current<double>(slots[k]);
        for (EACH(i, slots[k].len)) {
            u64 at = ghosts[k].first + i * ghosts[k].stride;
            if (at < len) u[at] = came[i];
        }
    }
}

// Sets each unknown of `to` to the average of its neighbours in `from`. A row has `width` unknowns, between two ghosts.
extern "C" __global__ void sweep(const double *from, u64 len, double *to, u64 room, u64 width, u64 height) {
    u64 row = width + 2;
    if (row * (height + 2) > len || len > room) return;
    for (EACH(i, width * height)) {
        u64 at = (i / width + 1) * row + i % width + 1;
        to[at] = (from[at - 1] + from[at + 1] + from[at - row] + from[at + row]) / 4;
    }
}

// --- jacobi ---

// A side of the block with a neighbour: the first of the outermost unknowns and the first ghost beyond them, how many
// there are of each, and the distance from each to the next. Side k belongs to slot k, each way.
struct Side {
    u64 edge, ghosts, count, stride;
};

// The place of a cell in a row of cells, or `count` if it is not in it.
__device__ u64 place_in(u64 first, u64 count, u64 stride, u64 at) {
    u64 place = (at - first) / stride;
    return at >= first && (at - first) % stride == 0 && place < count ? place : count;
}

// The value of a cell: of a ghost, what the neighbour has put.
__device__ double cell(const Slot *slots, u64 count, const Side *sides, u64 number, const double *u, u64 at) {
    for (u64 k = 0; k < number && k < count; k++) {
        u64 place = place_in(sides[k].ghosts, sides[k].count, sides[k].stride, at);
        if (place < sides[k].count && place < slots[k].len) return current<double>(slots[k])[place];
    }
    return u[at];
}

// Puts an unknown to all neighbours that need it.
__device__ void send(const tidegate::OutSlots<double> &out, const Side *sides, u64 number, u64 at, double value) {
    for (u64 k = 0; k < number; k++) {
        u64 place = place_in(sides[k].edge, sides[k].count, sides[k].stride, at);
        if (place < sides[k].count) out.put_value(tidegate::Out<double>{(unsigned)k}, place, value);
    }
}

// Puts the outermost unknowns.
extern "C" __global__ void send_edges(const double *u, u64 len, u64 width, u64 height, const Side *sides, u64 number, tidegate::OutSlots<double> out) {
    for (EACH(i, width * height)) {
        u64 at = (i / width + 1) * (width + 2) + i % width + 1;
        if (at < len) send(out, sides, number, at, u[at]);
    }
}

// Sets each unknown of `to` to the average of its neighbours in `from`, and puts the outermost ones at once. So there is
// one kernel for a sweep, which sends its own halo.
extern "C" __global__ void sweep_and_send(const Slot *slots, u64 count, const double *from, u64 len, double *to, u64 room, u64 width, u64 height,
                                          const Side *sides, u64 number, tidegate::OutSlots<double> out) {
    u64 row = width + 2;
    if (row * (height + 2) > len || len > room) return;
    for (EACH(i, width * height)) {
        u64 x = i % width + 1, y = i / width + 1, at = y * row + x;
        if (x > 1 && x < width && y > 1 && y < height) {
            to[at] = (from[at - 1] + from[at + 1] + from[at - row] + from[at + row]) / 4;
            continue;
        }
        double west = cell(slots, count, sides, number, from, at - 1), east = cell(slots, count, sides, number, from, at + 1);
        double south = cell(slots, count, sides, number, from, at - row), north = cell(slots, count, sides, number, from, at + row);
        double average = (west + east + south + north) / 4;
        to[at] = average;
        send(out, sides, number, at, average);
    }
}

// The value of a cell, as `cell` finds it, for a kernel that owns the inbox.
template <class Inbox> __device__ double cell_of(const Inbox &halo, const Side *sides, u64 number, const double *u, u64 at) {
    for (u64 k = 0; k < number; k++) {
        u64 place = place_in(sides[k].ghosts, sides[k].count, sides[k].stride, at);
        if (place < sides[k].count) return halo.read((unsigned)k)[place];
    }
    return u[at];
}

// The largest distance of an unknown from the answer, found by one block.
__device__ double error_of(const double *u, const double *answer, u64 width, u64 height) {
    __shared__ double largest[1024];
    double error = 0;
    for (u64 i = threadIdx.x; i < width * height; i += blockDim.x) {
        const u64 at = (i / width + 1) * (width + 2) + i % width + 1;
        const double off = u[at] > answer[at] ? u[at] - answer[at] : answer[at] - u[at];
        if (off > error) error = off;
    }
    largest[threadIdx.x] = error;
    __syncthreads();
    for (unsigned k = 0; k < blockDim.x; k++)
        if (largest[k] > error) error = largest[k];
    __syncthreads();
    return error;
}

// The whole solver: sweeps until no rank's error is too large. `result` is then the number of sweeps, and the largest
// error. By the second window the ranks tell each other their errors.
extern "C" __global__ void solve(double *u, u64 len, double *v, u64 room, const double *answer, u64 known, u64 width, u64 height, const Side *sides, u64 number,
                                 tidegate::KernelInbox<double> halo_in, tidegate::KernelOutbox<double> halo_out, tidegate::KernelInbox<double> errors_in,
                                 tidegate::KernelOutbox<double> errors_out, double *result, u64 results, unsigned most, double tolerance) {
    const u64 row = width + 2;
    const bool fits = row * (height + 2) <= len && len <= room && len <= known && results >= 2;
    const tidegate::Grid grid;
    auto inbox = halo_in.own(grid);
    auto outbox = halo_out.own(grid);
    auto errors = errors_in.own(grid);
    auto told = errors_out.own(grid);
    unsigned sweeps = 0;
    double worst = tolerance;
    while (fits && sweeps < most && !(worst < tolerance) && !errors.failed()) {
        for (unsigned sweep = 0; sweep < 200 && !inbox.failed(); sweep++) {
            double *from = sweep % 2 ? v : u, *to = sweep % 2 ? u : v;
            auto exposed = tidegate::move(inbox).post();
            auto epoch = tidegate::move(outbox).start();
            // The other blocks have written what this one sends, and have read what it writes.
            exposed.await_team();
            for (u64 k = 0; k < number; k++)
                for (EACH(i, sides[k].count)) epoch.put_value(tidegate::Out<double>{(unsigned)k}, i, from[sides[k].edge + i * sides[k].stride]);
            outbox = tidegate::move(epoch).complete();
            for (EACH(i, width * height)) {
                const u64 x = i % width + 1, y = i / width + 1, at = y * row + x;
                if (x > 1 && x < width && y > 1 && y < height) to[at] = (from[at - 1] + from[at + 1] + from[at - row] + from[at + row]) / 4;
            }
            inbox = tidegate::move(exposed).wait();
            for (EACH(j, width * height)) {
                const u64 x = j % width + 1, y = j / width + 1, at = y * row + x;
                if (x > 1 && x < width && y > 1 && y < height) continue;
                const double west = cell_of(inbox, sides, number, from, at - 1), east = cell_of(inbox, sides, number, from, at + 1);
                const double south = cell_of(inbox, sides, number, from, at - row), north = cell_of(inbox, sides, number, from, at + row);
                to[at] = (west + east + south + north) / 4;
            }
        }
        sweeps += 200;
        auto exposed = tidegate::move(errors).post();
        auto epoch = tidegate::move(told).start();
        exposed.await_team();
        if (blockIdx.x == 0) {
            const double mine = error_of(u, answer, width, height);
            for (u64 k = threadIdx.x; k < epoch.count(); k += blockDim.x) epoch.put_value(tidegate::Out<double>{(unsigned)k}, 0, mine);
            if (threadIdx.x == 0) result[1] = mine;
        }
        told = tidegate::move(epoch).complete();
        errors = tidegate::move(exposed).wait();
        errors.barrier();
        worst = result[1];
        for (u64 k = 0; k < errors.count(); k++) {
            const double theirs = errors.read((unsigned)k)[0];
            if (theirs > worst) worst = theirs;
        }
    }
    errors.barrier();
    if (grid.rank() == 0 && fits) result[0] = sweeps, result[1] = worst;
    tidegate::move(inbox).close();
    tidegate::move(outbox).close();
    tidegate::move(errors).close();
    tidegate::move(told).close();
}

// --- pipeline ---

// x[i] = value
extern "C" __global__ void fill(u64 *x, u64 len, u64 value) {
    for (EACH(i, len)) x[i] = value;
}

// sum[0] += the products of the elements of slot `from` and `mine`
extern "C" __global__ void multiply(const Slot *slots, u64 count, unsigned from, const u64 *mine, u64 len, u64 *sum, u64 sums) {
    if (from >= count || !sums) return;
    const u64 *came = current<u64>(slots[from]);
    u64 products = 0;
    for (EACH(i, len))
        if (i < slots[from].len) products += came[i] * mine[i];
    if (products) atomicAdd(sum, products);
}

// --- cg ---

// The threads of a block, which sum up together. (Blocks of another size leave no sum.)
#define BLOCK 128

// A sum over all elements is left as one number for each block. The ranks add up the numbers, one by one, and a kernel
// that needs the sum adds up those. So no block waits for another, and the order is always the same.
__device__ double sum_of(const double *parts, u64 count) {
    double sum = 0;
    for (u64 k = 0; k < count; k++) sum += parts[k];
    return sum;
}

// Stores the sum over the block's threads as the block's number in `parts`.
__device__ void leave_sum(double own, double *parts, u64 count) {
    __shared__ double sums[BLOCK];
    if (blockDim.x != BLOCK) return;
    sums[threadIdx.x] = own;
    __syncthreads();
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0 && blockIdx.x < count) parts[blockIdx.x] = sums[0];
    // The numbers of blocks that do not exist.
    for (u64 k = gridDim.x + threadIdx.x; blockIdx.x == 0 && k < count; k += BLOCK) parts[k] = 0;
}

// Once the exact solution is found, an iteration changes nothing.
__device__ double ratio(double a, double b) { return b == 0 ? 0 : a / b; }

// Copies the slots, one after the other, to `p`, after this rank's `own` elements.
extern "C" __global__ void take_foreign(const Slot *slots, u64 count, double *p, u64 len, u64 own) {
    u64 place = own;
    for (u64 k = 0; k < count; k++) {
        const double *came = current<double>(slots[k]);
        for (EACH(i, slots[k].len))
            if (place + i < len) p[place + i] = came[i];
        place += slots[k].len;
    }
}

// q = A p, for rows in compressed form; leaves parts of p q. And the residual of *now* becomes the one of *before*.
extern "C" __global__ void multiply_rows(const u64 *start, u64 starts, const u64 *columns, u64 entries, const double *values, u64 numbers,
                                         const double *p, u64 len, const double *now, u64 nows, double *q, u64 own, double *p_q, u64 parts,
                                         double *before, u64 befores) {
    double sum = 0;
    for (EACH(i, own)) {
        if (i + 1 >= starts || i >= len) break;
        double product = 0;
        for (u64 k = start[i]; k < start[i + 1] && k < entries && k < numbers; k++)
            if (columns[k] < len) product += values[k] * p[columns[k]];
        q[i] = product;
        sum += product * p[i];
    }
    leave_sum(sum, p_q, parts);
    for (EACH(k, befores))
        if (k < nows) before[k] = now[k];
}

// Takes a step along `p`, to where the residual is least; leaves parts of its square.
extern "C" __global__ void step_along(const double *p, u64 len, const double *q, u64 own, const double *p_q, u64 parts, const double *before, u64 befores,
                                      double *x, u64 room, double *r, u64 rest, double *now, u64 nows) {
    double alpha = ratio(sum_of(before, befores), sum_of(p_q, parts)), sum = 0;
    for (EACH(i, own)) {
        if (i >= len || i >= room || i >= rest) break;
        x[i] += alpha * p[i];
        r[i] -= alpha * q[i];
        sum += r[i] * r[i];
    }
    leave_sum(sum, now, nows);
}

// Computes the next direction.
extern "C" __global__ void turn(const double *r, u64 own, const double *now, u64 nows, const double *before, u64 befores, double *p, u64 len) {
    double beta = ratio(sum_of(now, nows), sum_of(before, befores));
    for (EACH(i, own))
        if (i < len) p[i] = r[i] + beta * p[i];
}

// --- heat3d ---

// The sides of a block, with a layer of ghosts around it.
struct Sides {
    u64 n[3];
};

// Whether an element is in this layer. Layer 0 is the ghosts.
__device__ bool is_in_layer(Sides sides, u64 layer, u64 at) {
    u64 z = at % sides.n[2], y = at / sides.n[2] % sides.n[1], x = at / sides.n[2] / sides.n[1];
    return x == layer || y == layer || z == layer || x + layer + 1 == sides.n[0] || y + layer + 1 == sides.n[1] || z + layer + 1 == sides.n[2];
}

// The value of an element. A ghost has the value that a neighbour has put.
__device__ double value(const double *ghosts, const double *u, Sides sides, u64 at) { return ghosts && is_in_layer(sides, 0, at) ? ghosts[at] : u[at]; }

// The next value of one element. The order of sums is that of the host. RATE is a power of 2, so no product is rounded.
__device__ double heated(const double *ghosts, const double *u, Sides sides, u64 at) {
    const double RATE = 1.0 / 8;
    u64 strides[3] = {sides.n[1] * sides.n[2], sides.n[2], 1};
    double here = u[at], sum = 0;
    for (int k = 0; k < 3; k++) {
        sum += value(ghosts, u, sides, at - strides[k]) - here;
        sum += value(ghosts, u, sides, at + strides[k]) - here;
    }
    return here + RATE * sum;
}

// A step of all elements without a ghost beside them.
extern "C" __global__ void heat_inner(const double *u, u64 len, double *next, u64 room, Sides sides) {
    if (sides.n[0] * sides.n[1] * sides.n[2] > len || len > room) return;
    for (EACH(at, len))
        if (!is_in_layer(sides, 0, at) && !is_in_layer(sides, 1, at)) next[at] = heated(0, u, sides, at);
}

// A step of all elements with a ghost beside them.
extern "C" __global__ void heat_outer(const double *ghosts, u64 there, const double *u, u64 len, double *next, u64 room, Sides sides) {
    if (sides.n[0] * sides.n[1] * sides.n[2] > len || len > room || len > there) return;
    for (EACH(at, len))
        if (!is_in_layer(sides, 0, at) && is_in_layer(sides, 1, at)) next[at] = heated(ghosts, u, sides, at);
}

// The largest difference of two arrays: one number for each block of 128 threads.
extern "C" __global__ void largest_change(const double *u, u64 len, const double *before, u64 room, double *parts, u64 count) {
    __shared__ double largest[BLOCK];
    if (blockDim.x != BLOCK) return;
    double own = 0;
    for (EACH(at, len)) {
        if (at >= room) break;
        double change = u[at] < before[at] ? before[at] - u[at] : u[at] - before[at];
        if (change > own) own = change;
    }
    largest[threadIdx.x] = own;
    __syncthreads();
    for (unsigned half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && largest[threadIdx.x + half] > largest[threadIdx.x]) largest[threadIdx.x] = largest[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0 && blockIdx.x < count) parts[blockIdx.x] = largest[0];
    for (u64 k = gridDim.x + threadIdx.x; blockIdx.x == 0 && k < count; k += BLOCK) parts[k] = 0;
}

// --- particles ---

// A particle, or the header of a list. The `id` of a header is the number of particles after it.
struct Particle {
    double x, v;
    u64 id;
};

// Adds a particle to a list. If there is no room, it is counted all the same, so that the loss is noticed.
__device__ void append(Particle *list, u64 room, Particle particle) {
    u64 place = 1 + atomicAdd(&list[0].id, 1ull);
    if (place < room) list[place] = particle;
}

// How many particles a list has.
__device__ u64 content(const Particle *list, u64 room) {
    if (!room) return 0;
    return list[0].id < room - 1 ? list[0].id : room - 1;
}

// Empties three lists.
extern "C" __global__ void clear_lists(Particle *a, u64 a_room, Particle *b, u64 b_room, Particle *c, u64 c_room) {
    if (blockIdx.x || threadIdx.x) return;
    if (a_room) a[0].id = 0;
    if (b_room) b[0].id = 0;
    if (c_room) c[0].id = 0;
}

// Moves all particles of a list, each to the list of those that stay, or to one of the lists of those that leave.
extern "C" __global__ void move_particles(const Particle *from, u64 len, Particle *stay, u64 room, Particle *left, u64 left_room, Particle *right,
                                          u64 right_room) {
    if (!room || !left_room || !right_room) return;
    for (EACH(i, content(from, len))) {
        Particle particle = from[1 + i];
        particle.x += particle.v;
        if (particle.x < 0) {
            particle.x += 1;
            append(left, left_room, particle);
        } else if (particle.x >= 1) {
            particle.x -= 1;
            append(right, right_room, particle);
        } else {
            append(stay, room, particle);
        }
    }
}

// Writes the lengths of the two lists that are put, with their headers.
extern "C" __global__ void list_lengths(const Particle *left, u64 left_room, const Particle *right, u64 right_room, u64 *lengths, u64 count) {
    if (blockIdx.x || threadIdx.x || count < 2) return;
    lengths[0] = 1 + content(left, left_room);
    lengths[1] = 1 + content(right, right_room);
}

// Takes over the particles of all slots.
extern "C" __global__ void take_particles(const Slot *slots, u64 count, Particle *own, u64 room) {
    if (!room) return;
    for (u64 k = 0; k < count; k++) {
        const Particle *came = current<Particle>(slots[k]);
        for (EACH(i, content(came, slots[k].len))) append(own, room, came[1 + i]);
    }
}

// sums[0] = how many particles there are, sums[1] = the sum of their numbers; one block.
extern "C" __global__ void count_particles(const Particle *own, u64 len, u64 *sums, u64 count) {
    if (blockIdx.x || count < 2 || !len) return;
    if (threadIdx.x == 0) {
        sums[0] = own[0].id;
        sums[1] = 0;
    }
    __syncthreads();
    for (u64 i = threadIdx.x; i < content(own, len); i += blockDim.x) atomicAdd(&sums[1], own[1 + i].id);
}

// --- solvers_tokio ---

// Fills the ghosts of a rod of `cells` cells, one at each end, from the first two slots. Then lets the heat of all
// cells flow from `from` to `to`.
extern "C" __global__ void flow_along(const Slot *slots, u64 count, unsigned left, unsigned right, const double *from, u64 len, double *to, u64 room,
                                      double flow) {
    if (left >= count || right >= count || len < 2 || len > room) return;
    double before = current<double>(slots[left])[0], behind = current<double>(slots[right])[0];
    for (EACH(i, len)) {
        double here = from[i], l = i ? from[i - 1] : before, r = i + 1 < len ? from[i + 1] : behind;
        to[i] = here + flow * (l - 2 * here + r);
    }
}

// --- moe ---

// The numbers of a token, and how many experts it goes to.
#define WIDTH 8
#define CHOSEN 2

struct Token {
    float x[WIDTH];
};

// A token on its way to an expert, which has this number on its rank.
struct Row {
    unsigned expert;
    Token token;
};

// Where the rows of a token are.
struct Places {
    unsigned row[CHOSEN];
};

// What a number counts for an expert. All factors are powers of 2, so no product is rounded.
__device__ float factor(unsigned expert, unsigned at) {
    unsigned mixed = (expert + 1) * 0x9e3779b1u ^ (at + 1) * 0x85ebca6bu;
    mixed = mixed * 0x27d4eb2fu >> 16;
    float size = mixed % 4 == 0 ? 1.0f : mixed % 4 == 1 ? 0.5f : mixed % 4 == 2 ? 0.25f : 0.125f;
    return mixed & 4 ? -size : size;
}

__device__ float score(unsigned expert, const Token *token) {
    float sum = 0;
    for (unsigned i = 0; i < WIDTH; i++) sum += token->x[i] * factor(expert, i);
    return sum;
}

// Sets the numbers of rows to 0.
extern "C" __global__ void clear_counts(u64 *counts, u64 ranks) {
    for (EACH(i, ranks)) counts[i] = 0;
}

// Chooses the experts for each token: those with the highest scores, and of equals the first. Writes a row for each, in
// the block of the expert's rank, and counts the rows. If there is no room, a row is counted all the same, so that the
// loss is noticed.
extern "C" __global__ void route_tokens(const Token *tokens, u64 len, Row *rows, u64 room, Places *places, u64 places_len, u64 *counts, u64 ranks,
                                        unsigned experts) {
    if (!ranks || len > places_len) return;
    u64 most = room / ranks;
    for (EACH(i, len)) {
        unsigned best[CHOSEN] = {0, 0};
        float scores[CHOSEN] = {-1e30f, -1e30f};
        for (unsigned expert = 0; expert < experts * ranks; expert++) {
            float its = score(expert, &tokens[i]);
            if (its > scores[0]) {
                scores[1] = scores[0], best[1] = best[0];
                scores[0] = its, best[0] = expert;
            } else if (its > scores[1]) {
                scores[1] = its, best[1] = expert;
            }
        }
        for (unsigned k = 0; k < CHOSEN; k++) {
            u64 to = best[k] / experts, place = atomicAdd(&counts[to], 1ull);
            if (place >= most) continue;
            rows[to * most + place] = {best[k] % experts, tokens[i]};
            places[i].row[k] = to * most + place;
        }
    }
}

// Applies this rank's experts, from number `first` on, to the rows that came.
extern "C" __global__ void apply_experts(const Row *came, u64 len, const u64 *received, u64 ranks, Token *results, u64 room, unsigned first) {
    if (!ranks || len > room) return;
    u64 most = len / ranks;
    for (EACH(i, most * ranks)) {
        if (i % most >= received[i / most]) continue;
        Row row = came[i];
        for (unsigned k = 0; k < WIDTH; k++) {
            float y = 2 * row.token.x[k] + row.token.x[(k + 1) % WIDTH] * factor(first + row.expert, k);
            results[i].x[k] = y > 1 ? y - 2 : y < -1 ? y + 2 : y;
        }
    }
}

// Makes the next token: a quarter of the last one, half of what its first expert has made, and a quarter of the second's.
extern "C" __global__ void mix_tokens(const Token *back, u64 len, const Places *places, u64 places_len, Token *tokens, u64 room) {
    for (EACH(i, room)) {
        if (i >= places_len || places[i].row[0] >= len || places[i].row[1] >= len) continue;
        const Token *first = &back[places[i].row[0]], *second = &back[places[i].row[1]];
        for (unsigned k = 0; k < WIDTH; k++) tokens[i].x[k] = (0.25f * tokens[i].x[k] + 0.5f * first->x[k]) + 0.25f * second->x[k];
    }
}

// --- fft ---

// As in `fft/square.rs`.
#define SIDE 32

struct Complex {
    double re, im;
};

// Transforms rows: a thread takes a row, puts its values where their reversed numbers say, and joins neighbours.
extern "C" __global__ void transform_rows(const Complex *from, u64 len, Complex *to, u64 room, const Complex *factors, u64 factors_len) {
    if (len > room || factors_len < SIDE) return;
    for (EACH(row, len / SIDE)) {
        const Complex *in = from + row * SIDE;
        Complex *out = to + row * SIDE;
        for (unsigned k = 0; k < SIDE; k++) {
            unsigned reversed = 0;
            for (unsigned bit = 1; bit < SIDE; bit *= 2) reversed = reversed * 2 + (k & bit ? 1 : 0);
            out[reversed] = in[k];
        }
        for (unsigned half = 1; half < SIDE; half *= 2)
            for (unsigned first = 0; first < SIDE; first += 2 * half)
                for (unsigned k = first; k < first + half; k++) {
                    Complex a = out[k], b = out[k + half], f = factors[(k - first) * (SIDE / (2 * half))];
                    Complex turned = {f.re * b.re - f.im * b.im, f.re * b.im + f.im * b.re};
                    out[k] = {a.re + turned.re, a.im + turned.im};
                    out[k + half] = {a.re - turned.re, a.im - turned.im};
                }
    }
}

// Writes rows column by column: a column is a row of the rank that gets it.
extern "C" __global__ void turn_rows(const Complex *from, u64 len, Complex *to, u64 room) {
    u64 rows = len / SIDE;
    if (len > room) return;
    for (EACH(i, rows * SIDE)) to[i % SIDE * rows + i / SIDE] = from[i];
}

// Joins blocks, one from each rank, to rows. A block has a part of every row, one behind the other.
extern "C" __global__ void join_blocks(const Complex *from, u64 len, Complex *to, u64 room, unsigned ranks) {
    u64 rows = len / SIDE;
    if (len > room) return;
    for (EACH(i, rows * SIDE)) {
        u64 column = i % SIDE, rank = ((column + 1) * ranks - 1) / SIDE;
        u64 first = rank * SIDE / ranks, part = (rank + 1) * SIDE / ranks - first;
        to[i] = from[first * rows + i / SIDE * part + (column - first)];
    }
}
