// Sums over all ranks, of vectors of doubles: the part that is the same for all libraries.
//
// A library describes each of its ways as a Sum; `sum_rows` then does the same with all of them as `measure_exchange` does with
// exchanges: proves on changing data, with ranks made late on purpose, that every sum is right; times; and proves it again on
// what the timed run left. The numbers are whole and small, so that a sum is exact in whatever order it is made.
#pragma once

#include "harness.cuh"

// One way to sum up.
struct Sum {
    std::string row;
    std::string note;
    int launches = 0;     // kernels of a sum, where known
    bool graphs = true;   // whether it can be captured
    double* from = nullptr;
    double* to = nullptr;
    // Sum number k: when this rank's stream gets past it, `to` has the sums, and `from` may be written again.
    std::function<void(cudaStream_t)> enqueue;
};

// The number that a rank adds at a place in sum number `epoch`: at most a million.
__host__ __device__ inline double addend(unsigned rank, unsigned long long index, unsigned long long epoch) {
    return static_cast<double>(pattern(rank, 0, index, epoch) >> 44);
}

static __global__ void fill_addends(double* to, size_t count, unsigned rank, unsigned long long epoch) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) to[i] = addend(rank, i, epoch);
}

// counts[0] += wrong, counts[1] += compared.
static __global__ void check_sums(const double* at, size_t count, unsigned ranks, unsigned long long epoch,
                                  unsigned long long* counts) {
    unsigned long long wrong = 0, compared = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        double sum = 0;
        for (unsigned rank = 0; rank < ranks; ++rank) sum += addend(rank, i, epoch);
        wrong += at[i] != sum;
        compared += 1;
    }
    if (wrong != 0) atomicAdd(counts, wrong);
    atomicAdd(counts + 1, compared);
}

inline Row measure_sum(Job& job, const Options& options, cudaStream_t stream, const Sum& sum, size_t count, int in_graph) {
    unsigned long long* counts = nullptr;
    CUDA(cudaMalloc(&counts, 16));
    CUDA(cudaMemset(counts, 0, 16));
    CUDA(cudaDeviceSynchronize());
    unsigned long long epoch = 1, expected = 0;
    const auto fill = [&] {
        ++epoch;
        fill_addends<<<64, 256, 0, stream>>>(sum.from, count, static_cast<unsigned>(job.rank), epoch);
        CUDA(cudaGetLastError());
    };
    const auto check = [&] {
        check_sums<<<64, 256, 0, stream>>>(sum.to, count, static_cast<unsigned>(job.size), epoch, counts);
        CUDA(cudaGetLastError());
        expected += count;
    };
    const auto clean = [&] {
        unsigned long long seen[2];
        CUDA(cudaMemcpyAsync(seen, counts, 16, cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        return seen[0] == 0 && seen[1] == expected;
    };
    std::unique_ptr<Graph> graph;
    if (in_graph > 0) {
        graph = std::make_unique<Graph>(stream, [&] {
            for (int k = 0; k < in_graph; ++k) sum.enqueue(stream);
        });
        job.barrier();
    }
    Timed timed;
    timed.per_unit = in_graph > 0 ? in_graph : 1;
    timed.units = round_up(options.iterations, timed.per_unit) / timed.per_unit;
    timed.unit = [&] {
        if (graph) {
            graph->launch(stream);
        } else {
            sum.enqueue(stream);
        }
    };
    bool right = true;
    for (int turn = 0; turn < 24; ++turn) {
        const bool late = (turn * 5 + job.rank * 3) % 4 == 0, slow = (turn + job.rank) % 3 == 0;
        if (late) idle<<<1, 1, 0, stream>>>(60'000);
        fill();
        timed.unit();
        if (slow) idle<<<1, 1, 0, stream>>>(60'000);
        check();
    }
    right = clean();
    timed.prepare = [&] {
        fill();
        CUDA(cudaMemsetAsync(sum.to, 0, count * sizeof(double), stream));
    };
    timed.check = [&] {
        check();
        return clean();
    };
    Row row = time_rounds(job, options, stream, timed);
    row.verified = row.verified && job.sum(right ? 0 : 1) == 0;
    row.launches = sum.launches;
    row.note = sum.note;
    row.more = {{"bytes", static_cast<double>(count * sizeof(double))}, {"in_graph", static_cast<double>(in_graph)}};
    if (graph) row.more.emplace_back("nodes", static_cast<double>(graph->nodes) / in_graph);
    CUDA(cudaFree(counts));
    return row;
}

// The sizes that sums are measured in.
static const std::vector<size_t> sum_sizes = {8, 64, 512, 4096, 32768, 262144, 1048576};

// All rows of one way for vectors of `bytes`.
inline void sum_rows(Job& job, const Options& options, cudaStream_t stream, Report& report, const Sum& sum, size_t bytes) {
    std::vector<int> graphs = {0};
    graphs.insert(graphs.end(), options.unroll.begin(), options.unroll.end());
    for (int in_graph : graphs) {
        const std::string kind = in_graph == 0 ? "" : in_graph == 1 ? ", graph" : ", graph of " + std::to_string(in_graph);
        const std::string name = sum.row + kind + options.tag;
        if (!options.wants(name) || (in_graph > 0 && !sum.graphs)) continue;
        try {
            Row row = measure_sum(job, options, stream, sum, bytes / sizeof(double), in_graph);
            row.row = name;
            report.add(row);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "rank %d: %s: %s\n", job.rank, name.c_str(), error.what());
            report.fail(name, error.what());
            throw;
        }
    }
}
