// Puts, gets and signals from inside kernels, by a thread, a warp or a block, between two GPUs (`--mode device`): what the
// performance tests of NVSHMEM measure.
//
// A library is an Api, which kernels get by value. It has
//
//     put<Scope>(to, from, bytes)                       all threads of the unit call it; the bytes are under way
//     put_signal<Scope>(to, from, bytes, word, value)   the same, and the other's word is set behind the bytes
//     get<Scope>(to, from, bytes)                       the bytes have come when it returns
//     p(to, value)                                      one thread puts 8 bytes
//     quiet()                                           one thread: all that its unit has put has left, once the unit has met
//     wait(word, value)                                 one thread: until this rank's word is at least the value
//
// `to` of a put and `from` of a get are the caller's own addresses of symmetric memory, and mean the other rank's.
//
// Each launch does the same many times over, so that no launch is measured. Only one thread, or warp, or block does a latency;
// a bandwidth is by all units of a grid, each of which has an equal part of the bytes.
#pragma once

#include <array>

#include "harness.cuh"

enum class Scope { Thread, Warp, Block };
inline const char* name_of(Scope scope) {
    return scope == Scope::Thread ? "thread" : scope == Scope::Warp ? "warp" : "block";
}

// The threads that do something together.
template <Scope S>
struct Unit {
    static __device__ unsigned threads() { return S == Scope::Thread ? 1 : S == Scope::Warp ? 32 : blockDim.x; }
    static __device__ unsigned lane() { return S == Scope::Thread ? 0 : S == Scope::Warp ? threadIdx.x % 32 : threadIdx.x; }
    static __device__ unsigned number() { return (blockIdx.x * blockDim.x + threadIdx.x) / threads(); }
    static __device__ unsigned count() { return gridDim.x * blockDim.x / threads(); }
    static __device__ void meet() {
        if (S == Scope::Warp) __syncwarp();
        if (S == Scope::Block) __syncthreads();
    }
    // Copies with all threads of the unit, 16 bytes at a time, four of them under way in each.
    static __device__ void copy(void* to, const void* from, size_t bytes) {
        copy_by(to, from, bytes, lane(), threads());
    }
};

// The part of a unit: whole 16 bytes, if there are as many.
struct Part {
    size_t begin, bytes;
    template <class U>
    static __device__ Part of(U, size_t bytes) {
        const size_t each = ((bytes + U::count() - 1) / U::count() + 15) / 16 * 16;
        const size_t begin = min(each * U::number(), bytes);
        return {begin, min(each, bytes - begin)};
    }
};

// The first unit puts the bytes again and again, and each time waits until they have left.
template <class Api, Scope S>
static __global__ void __launch_bounds__(1024) put_latency(Api api, char* to, const char* from, size_t bytes, int turns) {
    using U = Unit<S>;
    for (int turn = 0; turn < turns; ++turn) {
        api.template put<S>(to, from, bytes);
        U::meet();
        if (U::lane() == 0) api.quiet();
        U::meet();
    }
}

// Each unit puts its part again and again.
template <class Api, Scope S>
static __global__ void __launch_bounds__(1024) put_bandwidth(Api api, char* to, const char* from, size_t bytes, int turns) {
    const Part part = Part::of(Unit<S>{}, bytes);
    for (int turn = 0; turn < turns; ++turn) {
        if (part.bytes != 0) api.template put<S>(to + part.begin, from + part.begin, part.bytes);
    }
    __syncthreads();
    if (threadIdx.x == 0) api.quiet();
}

// There and back: the bytes with a signal, and a wait for the other's.
template <class Api, Scope S>
static __global__ void __launch_bounds__(1024)
    put_signal_wait(Api api, char* to, const char* from, size_t bytes, uint64_t* word, uint64_t done, int me, int turns) {
    using U = Unit<S>;
    for (int turn = 1; turn <= turns; ++turn) {
        if (me == 0) api.template put_signal<S>(to, from, bytes, word, done + turn);
        if (U::lane() == 0) api.wait(word, done + turn);
        U::meet();
        if (me == 1) api.template put_signal<S>(to, from, bytes, word, done + turn);
    }
}

// Where a get begins. Each turn has bytes of its own, since a multiprocessor's cache answers for those that it has just read. The
// last turn reads the first bytes, which have data.
constexpr size_t rest = 64 << 20;
static __device__ const char* source_of(const char* from, size_t bytes, int turn, int turns) {
    const size_t each = max(bytes, static_cast<size_t>(4096));
    return from + static_cast<size_t>(turns - 1 - turn) % (rest / each) * each;
}

template <class Api, Scope S>
static __global__ void __launch_bounds__(1024) get_latency(Api api, char* to, const char* from, size_t bytes, int turns) {
    for (int turn = 0; turn < turns; ++turn) {
        api.template get<S>(to, source_of(from, bytes, turn, turns), bytes);
        Unit<S>::meet();
    }
}

template <class Api, Scope S>
static __global__ void __launch_bounds__(1024) get_bandwidth(Api api, char* to, const char* from, size_t bytes, int turns) {
    const Part part = Part::of(Unit<S>{}, bytes);
    for (int turn = 0; turn < turns; ++turn) {
        const char* const at = source_of(from, bytes, turn, turns) + part.begin;
        if (part.bytes != 0) api.template get<S>(to + part.begin, at, part.bytes);
    }
}

// Each thread puts words, one after the other.
template <class Api>
static __global__ void __launch_bounds__(1024) p_bandwidth(Api api, uint64_t* to, const uint64_t* from, size_t words, int turns) {
    const size_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (int turn = 0; turn < turns; ++turn) {
        for (size_t i = first; i < words; i += step) api.p(to + i, from[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) api.quiet();
}

// There and back: a word that is its own signal.
template <class Api>
static __global__ void p_wait(Api api, uint64_t* word, uint64_t done, int me, int turns) {
    for (int turn = 1; turn <= turns; ++turn) {
        if (me == 0) api.p(word, done + turn);
        api.wait(word, done + turn);
        if (me == 1) api.p(word, done + turn);
    }
}

template <class Api>
class Scopes {
  public:
    static constexpr size_t most = 4 << 20;
    static constexpr size_t source = rest;  // bytes of `out`
    static constexpr int block = 512;

    // `in` and `word` are symmetric, and zero; so is `out`, because gets read it.
    Scopes(Job& job, const Options& options, cudaStream_t stream, Report& report, Api api, double* out, double* in, uint64_t* word)
        : job_(job), options_(options), stream_(stream), report_(report), api_(api), out_(reinterpret_cast<char*>(out)),
          in_(reinterpret_cast<char*>(in)), word_(word) {
        CUDA(cudaMalloc(&wrong_, 8));
        CUDA(cudaMemset(wrong_, 0, 8));
    }
    Scopes(const Scopes&) = delete;
    ~Scopes() { cudaFree(wrong_); }

    void run() {
        for (size_t bytes : {8ul, 64ul, 512ul, 4096ul, 32768ul, 262144ul, 1048576ul, 4194304ul}) {
            size<Scope::Thread>(bytes);
            size<Scope::Warp>(bytes);
            size<Scope::Block>(bytes);
            for (int blocks : grids) {
                add("p", "thread", bytes, blocks, 1, turns(bytes), true, [&, blocks](int turns) {
                    if (job_.rank != 0) return;
                    p_bandwidth<<<blocks, block, 0, stream_>>>(api_, reinterpret_cast<uint64_t*>(in_),
                                                               reinterpret_cast<const uint64_t*>(out_), bytes / 8, turns);
                });
            }
        }
        // The word is no data that could be compared: a value that did not come would never have been waited for.
        add("p and wait, one way", "thread", 8, 1, 2, turns(8), false, [&](int turns) {
            p_wait<<<1, 1, 0, stream_>>>(api_, word_, done_, job_.rank, turns);
            done_ += static_cast<uint64_t>(turns);
        });
    }

  private:
    static constexpr std::array<int, 3> grids = {1, 8, 32};
    enum class Lands { Here, There, Both };

    Job& job_;
    const Options& options_;
    cudaStream_t stream_;
    Report& report_;
    Api api_;
    char *out_, *in_;
    uint64_t* word_;
    uint64_t done_ = 0;
    unsigned long long* wrong_ = nullptr;
    unsigned long long seed_ = 0;

    // So many that a launch counts for little, and that the slowest takes milliseconds.
    static int turns(size_t bytes) { return static_cast<int>(std::clamp<size_t>((16ul << 20) / bytes, 8, 2000)); }

    template <Scope S>
    void size(size_t bytes) {
        const int threads = S == Scope::Thread ? 1 : S == Scope::Warp ? 32 : block;
        const char* scope = name_of(S);
        // By one thread, long messages are slow.
        const int few = S == Scope::Thread ? std::clamp(turns(bytes), 2, bytes <= 4096 ? 2000 : 16) : turns(bytes);
        add("put, quiet", scope, bytes, 1, 1, few, true, [&](int turns) {
            if (job_.rank == 0) put_latency<Api, S><<<1, threads, 0, stream_>>>(api_, in_, out_, bytes, turns);
        });
        add("put with signal and wait, one way", scope, bytes, 1, 2, few, true, [&](int turns) {
            put_signal_wait<Api, S><<<1, threads, 0, stream_>>>(api_, in_, out_, bytes, word_, done_, job_.rank, turns);
            done_ += static_cast<uint64_t>(turns);
        }, Lands::Both);
        add("get", scope, bytes, 1, 1, few, true, [&](int turns) {
            if (job_.rank == 0) get_latency<Api, S><<<1, threads, 0, stream_>>>(api_, in_, out_, bytes, turns);
        }, Lands::Here);
        for (int blocks : grids) {
            add("put after put", scope, bytes, blocks, 1, turns(bytes), true, [&, blocks](int turns) {
                if (job_.rank == 0) put_bandwidth<Api, S><<<blocks, block, 0, stream_>>>(api_, in_, out_, bytes, turns);
            });
            add("get after get", scope, bytes, blocks, 1, turns(bytes), true, [&, blocks](int turns) {
                if (job_.rank == 0) get_bandwidth<Api, S><<<blocks, block, 0, stream_>>>(api_, in_, out_, bytes, turns);
            }, Lands::Here);
        }
    }

    // A row. `launch` enqueues so many turns, each of which is `ways` times what is measured.
    void add(const std::string& what, const char* scope, size_t bytes, int blocks, int ways, int turns, bool data,
             const std::function<void(int)>& launch, Lands lands = Lands::There) {
        const std::string name = what + ", " + scope + ", " + std::to_string(blocks) + (blocks == 1 ? " block" : " blocks");
        if (!options_.wants(name)) return;
        Timed timed;
        timed.per_unit = turns;
        timed.prepare = [&] {
            // The data of the two ranks differs, so that a get that reads this rank's own memory is found.
            ++seed_;
            write_words<<<64, 256, 0, stream_>>>(reinterpret_cast<uint64_t*>(out_), bytes / 8, 2 * seed_ + job_.rank);
            CUDA(cudaMemsetAsync(in_, 0, bytes, stream_));
            CUDA(cudaStreamSynchronize(stream_));
            job_.barrier();
        };
        timed.unit = [&] {
            launch(turns);
            CUDA(cudaGetLastError());
        };
        timed.check = [&] {
            const bool mine = lands == Lands::Both || (job_.rank == 0) == (lands == Lands::Here);
            if (data && mine) {
                check_words<<<64, 256, 0, stream_>>>(reinterpret_cast<const uint64_t*>(in_), bytes / 8, 2 * seed_ + 1 - job_.rank,
                                                     wrong_);
            }
            unsigned long long bad = 0;
            CUDA(cudaMemcpyAsync(&bad, wrong_, 8, cudaMemcpyDeviceToHost, stream_));
            CUDA(cudaStreamSynchronize(stream_));
            return bad == 0;
        };
        Row row = time_rounds(job_, options_, stream_, timed);
        row.row = name;
        row.scope = scope;
        for (double* t : {&row.us, &row.least, &row.most}) *t /= ways;
        row.more = {{"bytes", static_cast<double>(bytes)},
                    {"gbps", static_cast<double>(bytes) / row.us * 1e-3},
                    {"sms", static_cast<double>(blocks)}};
        report_.add(row);
    }
};
