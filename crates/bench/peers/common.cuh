// The device side of all peers: error checks, the places of a rank's messages, and kernels that write and check data. The data
// tells its sender, the direction, and the exchange.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>

// The machine is first, so that `faces.cu` and the header of puts find one and the same.
#include "machine.cuh"

#include "faces.cuh"

inline void cuda_check(cudaError_t code, const char* what, const char* file, int line) {
    if (code == cudaSuccess) return;
    char text[512];
    std::snprintf(text, sizeof text, "%s:%d: %s: %s", file, line, what, cudaGetErrorString(code));
    throw std::runtime_error(text);
}
#define CUDA(call) cuda_check((call), #call, __FILE__, __LINE__)

// A grid of ranks, and the size of each rank's block.
struct Problem {
    int grid[3] = {2, 2, 2};
    unsigned m[3] = {15, 14, 13};
    unsigned n = 12;

    int ranks() const { return grid[0] * grid[1] * grid[2]; }
};

// A message of this rank: to the neighbour at `direction`, and from there. Both have the same length. What is received is in
// slot `direction` here, and what is sent lands in slot `there` of the neighbour, which is the opposite direction.
struct Message {
    int direction;
    int there;
    int rank;
    size_t values;
    size_t begin;        // of slot `direction`, in values; in the packed source as well
    size_t begin_there;  // of slot `there`
    size_t bytes() const { return values * sizeof(double); }
};

struct Layout {
    Problem problem;
    int rank = 0;
    FacesGeometry geometry{};
    FacesGrids grids{};
    std::vector<Message> messages;

    Layout(const Problem& p, int rank, unsigned sms) : problem(p), rank(rank) {
        if (!faces_geometry_fits(p.n, p.m)) throw std::runtime_error("this block cannot be addressed");
        const int at[3] = {rank % p.grid[0], rank / p.grid[0] % p.grid[1], rank / (p.grid[0] * p.grid[1])};
        unsigned neighbours = 0;
        for (int k = 0; k < 26; ++k) {
            if (neighbour(at, k) >= 0) neighbours |= 1u << k;
        }
        unsigned long long offset[3];
        for (int d = 0; d < 3; ++d) offset[d] = static_cast<unsigned long long>(at[d]) * p.m[d];
        geometry = faces_geometry(p.n, p.m, neighbours, offset);
        grids = faces_grids(&geometry, sms);
        for (int k = 0; k < 26; ++k) {
            if (!(neighbours >> k & 1u)) continue;
            size_t values = 1;
            for (int d = 0; d < 3; ++d) {
                if (side(k, d) == 0) values *= static_cast<size_t>(p.n) * p.m[d];
            }
            messages.push_back({k, 25 - k, neighbour(at, k), values, geometry.slot[k], geometry.slot[25 - k]});
        }
    }

    size_t packed() const { return geometry.packed; }
    size_t packed_bytes() const { return packed() * sizeof(double); }
    size_t sent_bytes() const {
        size_t all = 0;
        for (const auto& message : messages) all += message.bytes();
        return all;
    }

    // -1, 0 or 1: where direction k points in dimension d.
    static int side(int k, int d) {
        const int c = k < 13 ? k : k + 1;
        const int power[3] = {1, 3, 9};
        return c / power[d] % 3 - 1;
    }

  private:
    int neighbour(const int at[3], int k) const {
        int to[3];
        for (int d = 0; d < 3; ++d) {
            to[d] = at[d] + side(k, d);
            if (to[d] < 0 || to[d] >= problem.grid[d]) return -1;
        }
        return (to[2] * problem.grid[1] + to[1]) * problem.grid[0] + to[0];
    }
};

// The same, for a kernel.
struct DeviceMessages {
    int count;
    struct {
        unsigned long long begin;
        unsigned long long values;
        int mine;    // direction, as this rank sees it
        int theirs;  // direction, as the other rank sees it
        int rank;
    } m[26];
};

inline DeviceMessages for_device(const Layout& layout) {
    DeviceMessages all{};
    for (const auto& message : layout.messages) {
        auto& one = all.m[all.count++];
        one.begin = message.begin;
        one.values = message.values;
        one.mine = message.direction;
        one.theirs = message.there;
        one.rank = message.rank;
    }
    return all;
}

// A value that no other (sender, direction, index, epoch) has, but for chance: a bit pattern, never computed with.
__host__ __device__ inline unsigned long long pattern(unsigned sender, unsigned direction, unsigned long long index,
                                                      unsigned long long epoch) {
    unsigned long long x = (epoch << 40) ^ (index << 12) ^ (static_cast<unsigned long long>(sender) << 5) ^ direction;
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    x ^= x >> 33;
    return x;
}

// One block row a message: the data that this rank sends in `epoch`.
static __global__ void fill_source(DeviceMessages all, int rank, double* source, unsigned long long epoch) {
    const auto& m = all.m[blockIdx.y];
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < m.values; i += gridDim.x * blockDim.x) {
        source[m.begin + i] = __longlong_as_double(static_cast<long long>(pattern(rank, m.mine, i, epoch)));
    }
}

// Counts the values that differ from those that the others sent in `epoch`; counts[0] += wrong, counts[1] += compared.
static __global__ void check_slots(DeviceMessages all, const double* slots, unsigned long long epoch,
                                   unsigned long long* counts) {
    const auto& m = all.m[blockIdx.y];
    unsigned long long wrong = 0, compared = 0;
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < m.values; i += gridDim.x * blockDim.x) {
        const auto got = static_cast<unsigned long long>(__double_as_longlong(slots[m.begin + i]));
        wrong += got != pattern(m.rank, m.theirs, i, epoch);
        compared += 1;
    }
    if (wrong != 0) atomicAdd(counts, wrong);
    atomicAdd(counts + 1, compared);
}

// Words that tell their place and the seed, and a count of those that differ.
static __global__ void write_words(uint64_t* to, size_t count, unsigned long long seed) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) to[i] = pattern(0, 0, i, seed);
}
static __global__ void check_words(const uint64_t* at, size_t count, unsigned long long seed, unsigned long long* wrong) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        if (at[i] != pattern(0, 0, i, seed)) atomicAdd(wrong, 1ull);
    }
}

// Lets this rank be late.
static __global__ void idle(long long ns) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(200);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < static_cast<unsigned long long>(ns));
}

// Copies with so many threads, of which this is number `own`, four loads under way in each. Both pointers must be aligned to 8
// bytes; 16 is better.
__device__ inline void copy_by(void* to, const void* from, size_t bytes, size_t own, size_t step) {
    if (((reinterpret_cast<size_t>(to) | reinterpret_cast<size_t>(from)) & 15) == 0) {
        auto* out = static_cast<int4*>(to);
        const auto* in = static_cast<const int4*>(from);
        const size_t count = bytes / 16;
        size_t i = own;
        for (; i + 3 * step < count; i += 4 * step) {
            const int4 a = in[i], b = in[i + step], c = in[i + 2 * step], d = in[i + 3 * step];
            out[i] = a;
            out[i + step] = b;
            out[i + 2 * step] = c;
            out[i + 3 * step] = d;
        }
        for (; i < count; i += step) out[i] = in[i];
        bytes -= count * 16;
        to = out + count;
        from = in + count;
    }
    auto* out = static_cast<double*>(to);
    const auto* in = static_cast<const double*>(from);
    for (size_t i = own; i < bytes / 8; i += step) out[i] = in[i];
}
__device__ inline void block_copy(void* to, const void* from, size_t bytes) { copy_by(to, from, bytes, threadIdx.x, blockDim.x); }

// Words lie 128 bytes apart: neighbours write them at the same time.
constexpr int word_stride = 16;

// Adds to a word of any GPU; all that the block stored before its last __syncthreads is seen by whoever acquires the sum.
__device__ inline void release_add(uint64_t* word, uint64_t value) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ inline void release_store(uint64_t* word, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ inline uint64_t acquire_load(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
__device__ inline void acquire_at_least(const uint64_t* word, uint64_t value) {
    while (acquire_load(word) < value) {
    }
}

// From compute capability 9.0 on a kernel that is launched `early` takes its place while the one before it on the stream is
// still at work; it waits here for the end of that one, and then lets the next one come: so one of them stands there early, and
// no row of them, which would fill the GPU (where two ranks share it, with what the other one waits for still to come). To any
// other launch both are nothing. (The kernels of faces.cu, which wait for no other rank, let the next one come first.)
__device__ inline void begin_early() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
}

// Launches a kernel. The operation before an early one on the stream must be a kernel.
template <class... Wanted, class... Given>
void launch(void (*kernel)(Wanted...), dim3 grid, unsigned threads, cudaStream_t stream, bool early, Given&&... given) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Wanted>(given)...));
}

// Copies `from[list[i]]` with all threads of the block to where `ready` says, four units of two values under way in each. What
// the first units come from is looked up before `ready` is called, since nobody changes a list.
template <class Ready>
__device__ inline void block_gather(const double* from, const unsigned* list, unsigned values, Ready ready) {
    const unsigned step = blockDim.x;
    const unsigned pairs = reinterpret_cast<size_t>(list) % 8 == 0 ? values / 2 : 0;
    const auto* in = reinterpret_cast<const uint2*>(list);
    uint2 at[4];
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
        const unsigned i = threadIdx.x + j * step;
        if (i < pairs) at[j] = in[i];
    }
    double* const to = ready();
    const bool aligned = reinterpret_cast<size_t>(to) % 16 == 0;
    for (unsigned first = threadIdx.x; first < pairs; first += 4 * step) {
        double2 value[4];
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
            if (first + j * step < pairs) value[j] = make_double2(from[at[j].x], from[at[j].y]);
        }
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
            const unsigned i = first + j * step, next = i + 4 * step;
            if (i < pairs && aligned) reinterpret_cast<double2*>(to)[i] = value[j];
            if (i < pairs && !aligned) to[2 * i] = value[j].x, to[2 * i + 1] = value[j].y;
            if (next < pairs) at[j] = in[next];
        }
    }
    for (unsigned i = 2 * pairs + threadIdx.x; i < values; i += step) to[i] = from[list[i]];
}

// How messages are cut into pieces, one thread block each. The cut of a message depends on its length and the limit alone, so
// that both ends know how many pieces it has.
struct Pieces {
    static constexpr int most = 512;
    struct Route {
        int rank;
        int here, there;              // slot numbers
        unsigned begin, begin_there;  // of the slots, in values
        unsigned values;
        unsigned pieces, first;
        unsigned each;  // values of a piece, the last one's excepted
    };
    int count;   // messages
    int blocks;  // pieces
    Route route[26];
    unsigned char of_block[most];

    Pieces() = default;
    Pieces(const Layout& layout, int limit) : count(0), blocks(0), route{}, of_block{} {
        for (const auto& message : layout.messages) {
            auto& r = route[count];
            // Below 8 KB a piece, more blocks only add signals.
            const size_t wanted = (message.bytes() + 8191) / 8192;
            const size_t pieces = std::min<size_t>(std::max<size_t>(wanted, 1), static_cast<size_t>(limit));
            r.rank = message.rank;
            r.here = message.direction;
            r.there = message.there;
            r.begin = static_cast<unsigned>(message.begin);
            r.begin_there = static_cast<unsigned>(message.begin_there);
            r.values = static_cast<unsigned>(message.values);
            r.each = static_cast<unsigned>(((message.values + pieces - 1) / pieces + 15) / 16 * 16);
            r.pieces = (r.values + r.each - 1) / r.each;
            r.first = static_cast<unsigned>(blocks);
            if (blocks + static_cast<int>(r.pieces) > most) throw std::runtime_error("too many pieces");
            for (unsigned i = 0; i < r.pieces; ++i) of_block[blocks++] = static_cast<unsigned char>(count);
            ++count;
        }
    }
};

// Those of the exchange that is measured: no launch has to carry them.
static __constant__ Pieces pieces;

inline void use(const Pieces& these) {
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpyToSymbol(pieces, &these, sizeof these));
}

// The part that one block of the pieces moves.
struct Piece {
    const Pieces::Route* route;
    unsigned from, to;  // offsets in values: in the source, and in the receiver's slots
    unsigned values;
    __device__ explicit Piece(unsigned block) {
        route = &pieces.route[pieces.of_block[block]];
        const unsigned start = (block - route->first) * route->each;
        from = route->begin + start;
        to = route->begin_there + start;
        values = min(route->each, route->values - start);
    }
};
