// NVSHMEM between two GPUs: how long a put with its signal takes until the other side has seen it, and how fast puts are.
#pragma once

#include "nvshmem_device.cuh"

// `turns` times there and back, in one launch. All blocks wait for the whole message before they answer with their part.
static __global__ void __launch_bounds__(1024) ping_pong(char* to, const char* from, size_t bytes, size_t each, uint64_t* word,
                                                         int me, uint64_t done, int turns) {
    const size_t start = blockIdx.x * each;
    const size_t mine = min(each, bytes - start);
    for (int turn = 1; turn <= turns; ++turn) {
        const uint64_t goal = (done + turn) * gridDim.x;
        if (me == 0) nvshmemx_putmem_signal_nbi_block(to + start, from + start, mine, word, 1, NVSHMEM_SIGNAL_ADD, 1);
        if (threadIdx.x == 0) nvshmem_signal_wait_until(word, NVSHMEM_CMP_GE, goal);
        __syncthreads();
        if (me == 1) nvshmemx_putmem_signal_nbi_block(to + start, from + start, mine, word, 1, NVSHMEM_SIGNAL_ADD, 0);
    }
}

static __global__ void __launch_bounds__(1024) put_blocks(char* to, const char* from, size_t bytes, size_t each, int pe) {
    const size_t start = blockIdx.x * each;
    nvshmemx_putmem_nbi_block(to + start, from + start, min(each, bytes - start), pe);
}

class Pair {
  public:
    Pair(Job& job, const Options& options, cudaStream_t stream, Report& report)
        : job_(job), options_(options), stream_(stream), report_(report), out_(most), in_(most), word_(128) {
        CUDA(cudaMalloc(&wrong_, 8));
        CUDA(cudaMemset(wrong_, 0, 8));
    }
    Pair(const Pair&) = delete;
    ~Pair() { cudaFree(wrong_); }

    void size(size_t bytes) {
        const int blocks = static_cast<int>(
            std::min<size_t>((bytes + 8191) / 8192, options_.blocks ? static_cast<size_t>(options_.blocks) : 64));
        const size_t each = ((bytes + blocks - 1) / blocks + 127) / 128 * 128;
        const int grid = static_cast<int>((bytes + each - 1) / each);
        const int threads = bytes <= 512 ? 32 : options_.threads_or(512);
        const int repeats = bytes <= 262144 ? 100 : 10, other = 1 - job_.rank;
        auto* to = reinterpret_cast<char*>(in_.values());
        const auto* from = reinterpret_cast<const char*>(out_.values());

        // In a kernel: the whole ping-pong is one launch, so that none is measured.
        Timed ping;
        ping.per_unit = repeats;
        ping.prepare = [&] { fresh(bytes); };
        ping.unit = [&] {
            ping_pong<<<grid, threads, 0, stream_>>>(to, from, bytes, each, word_.words(), job_.rank, turns_, repeats);
            CUDA(cudaGetLastError());
            turns_ += repeats;
        };
        ping.check = [&] { return right(bytes, true); };
        add("device: put_signal_nbi_block, one way", ping, bytes, 2, std::to_string(grid) + " blocks");

        Timed stream_ping;
        stream_ping.units = repeats;
        stream_ping.prepare = [&] { fresh(bytes); };
        stream_ping.unit = [&] {
            ++turns_;
            const auto put = [&] {
                nvshmemx_putmem_signal_on_stream(to, from, bytes, word_.words(), turns_, NVSHMEM_SIGNAL_SET, other, stream_);
            };
            if (job_.rank == 0) put();
            nvshmemx_signal_wait_until_on_stream(word_.words(), NVSHMEM_CMP_GE, turns_, stream_);
            if (job_.rank == 1) put();
        };
        stream_ping.check = [&] { return right(bytes, true); };
        add("on-stream: put_signal, one way", stream_ping, bytes, 2, "");

        Timed puts;
        puts.units = repeats;
        puts.prepare = [&] { fresh(bytes); };
        puts.unit = [&] {
            if (job_.rank == 0) put_blocks<<<grid, threads, 0, stream_>>>(to, from, bytes, each, other);
            CUDA(cudaGetLastError());
        };
        puts.check = [&] { return right(bytes, job_.rank == 1); };
        add("device: put_nbi_block after put", puts, bytes, 1, std::to_string(grid) + " blocks");

        puts.unit = [&] {
            if (job_.rank == 0) nvshmemx_putmem_nbi_on_stream(to, from, bytes, other, stream_);
        };
        add("on-stream: put_nbi after put", puts, bytes, 1, "");
    }

    static constexpr size_t most = 64 << 20;

  private:
    Job& job_;
    const Options& options_;
    cudaStream_t stream_;
    Report& report_;
    Symmetric out_, in_, word_;
    unsigned long long* wrong_ = nullptr;
    unsigned long long seed_ = 0;
    uint64_t turns_ = 0;

    void fresh(size_t bytes) {
        ++seed_;
        write_words<<<64, 256, 0, stream_>>>(out_.words(), bytes / 8, seed_);
        CUDA(cudaMemsetAsync(in_.values(), 0, bytes, stream_));
    }
    bool right(size_t bytes, bool received) {
        if (received) check_words<<<64, 256, 0, stream_>>>(in_.words(), bytes / 8, seed_, wrong_);
        unsigned long long bad = 0;
        CUDA(cudaMemcpyAsync(&bad, wrong_, 8, cudaMemcpyDeviceToHost, stream_));
        CUDA(cudaStreamSynchronize(stream_));
        return bad == 0;
    }
    void add(const char* name, const Timed& timed, size_t bytes, int ways, const std::string& note) {
        if (!options_.wants(name)) return;
        // The device form adds to the word and the other sets it: each begins at zero.
        CUDA(cudaDeviceSynchronize());
        nvshmem_barrier_all();
        CUDA(cudaMemset(word_.words(), 0, 8));
        CUDA(cudaDeviceSynchronize());
        turns_ = 0;
        nvshmem_barrier_all();
        Row row = time_rounds(job_, options_, stream_, timed);
        row.row = name;
        row.note = note;
        for (double* t : {&row.us, &row.least, &row.most}) *t /= ways;
        row.more = {{"bytes", static_cast<double>(bytes)}, {"gbps", static_cast<double>(bytes) / row.us * 1e-3}};
        report_.add(row);
    }
};

static void pair_rows(Job& job, const Options& options, cudaStream_t stream, Report& report) {
    Pair pair(job, options, stream, report);
    for (size_t bytes : {8ul, 64ul, 512ul, 4096ul, 32768ul, 262144ul, 2097152ul, 16777216ul, 67108864ul}) pair.size(bytes);
}
