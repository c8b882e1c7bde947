// NVSHMEM's sums over all ranks: on the stream, inside a kernel, and as a kernel written for it.
#pragma once

#include "nvshmem_device.cuh"
#include "reduce.cuh"

// The library's own, in a kernel of one block.
static __global__ void __launch_bounds__(1024) reduce_block(double* to, const double* from, size_t count) {
    nvshmemx_double_sum_reduce_block(NVSHMEM_TEAM_WORLD, to, from, count);
}

// What an expert would write for vectors that are not long: each block has a part of the vector, stores it to every rank, says
// so by a word there, waits for the words of all, and adds up in the order of the ranks. Each rank has a slot and a word for
// each rank and block, and two buffers in turn: who has got everybody's sum number k + 1 knows that all have read number k.
// The number lies on the device, one a block, so that a graph replays the kernel as it is.
struct DirectArguments {
    double* slots;            // [2][rank][most]
    uint64_t* words;          // [rank][block], word_stride apart
    unsigned long long* sums;  // [block]
    size_t most;              // values of a slot
    int ranks, me;
};

static __global__ void __launch_bounds__(1024) reduce_direct(DirectArguments a, double* to, const double* from, unsigned count,
                                                             unsigned each) {
    begin_early();
    const unsigned start = blockIdx.x * each, end = min(start + each, count);
    const unsigned long long number = a.sums[blockIdx.x] + 1;
    double* const slots = a.slots + (number & 1) * a.ranks * a.most;
    for (int turn = 0; turn < a.ranks; ++turn) {
        const int pe = (a.me + turn) % a.ranks;
        auto* there = static_cast<double*>(nvshmem_ptr(slots + a.me * a.most, pe));
        for (unsigned i = start + threadIdx.x; i < end; i += blockDim.x) there[i] = from[i];
    }
    __syncthreads();
    for (unsigned pe = threadIdx.x; pe < static_cast<unsigned>(a.ranks); pe += blockDim.x) {
        uint64_t* const word = a.words + (a.me * gridDim.x + blockIdx.x) * word_stride;
        release_store(static_cast<uint64_t*>(nvshmem_ptr(word, static_cast<int>(pe))), number);
        acquire_at_least(a.words + (pe * gridDim.x + blockIdx.x) * word_stride, number);
    }
    if (threadIdx.x == 0) a.sums[blockIdx.x] = number;
    __syncthreads();
    for (unsigned i = start + threadIdx.x; i < end; i += blockDim.x) {
        double sum = slots[i];
        for (int rank = 1; rank < a.ranks; ++rank) sum += slots[rank * a.most + i];
        to[i] = sum;
    }
}

class DirectSum {
  public:
    DirectSum(const Job& job, size_t most, int blocks, int threads)
        : slots_(2 * static_cast<size_t>(job.size) * most * sizeof(double)),
          words_(static_cast<size_t>(job.size) * static_cast<size_t>(blocks) * word_stride * sizeof(uint64_t)), blocks_(blocks),
          threads_(threads) {
        CUDA(cudaMalloc(&sums_, static_cast<size_t>(blocks) * sizeof *sums_));
        CUDA(cudaMemset(sums_, 0, static_cast<size_t>(blocks) * sizeof *sums_));
        CUDA(cudaDeviceSynchronize());
        nvshmem_barrier_all();
        arguments_ = {slots_.values(), words_.words(), sums_, most, job.size, job.rank};
    }
    DirectSum(const DirectSum&) = delete;
    ~DirectSum() {
        cudaDeviceSynchronize();
        nvshmem_barrier_all();
        cudaFree(sums_);
    }
    void enqueue(cudaStream_t stream, double* to, const double* from, size_t count) const {
        const auto each = static_cast<unsigned>((count + static_cast<size_t>(blocks_) - 1) / static_cast<size_t>(blocks_));
        launch(reduce_direct, static_cast<unsigned>(blocks_), static_cast<unsigned>(threads_), stream, true, arguments_, to, from,
               static_cast<unsigned>(count), each);
    }

  private:
    Symmetric slots_, words_;
    int blocks_, threads_;
    unsigned long long* sums_ = nullptr;
    DirectArguments arguments_{};
};

static void reduce_rows(Job& job, const Options& options, cudaStream_t stream, Report& report) {
    const size_t most = sum_sizes.back();
    Symmetric out(most), in(most);
    for (size_t bytes : sum_sizes) {
        const size_t count = bytes / sizeof(double);
        Sum sum;
        sum.from = out.values();
        sum.to = in.values();

        sum.row = "on-stream: double_sum_reduce";
        sum.enqueue = [&](cudaStream_t s) {
            if (nvshmemx_double_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, in.values(), out.values(), count, s) != 0) {
                throw std::runtime_error("nvshmemx_double_sum_reduce_on_stream failed");
            }
        };
        // Where ranks share a GPU the library refuses what it would do on the stream.
        if (!shared_gpus) sum_rows(job, options, stream, report, sum, bytes);

        sum.launches = 1;
        for (int threads : {128, 512, 1024}) {
            sum.row = "device: double_sum_reduce_block, " + std::to_string(threads) + " threads";
            sum.enqueue = [&, threads](cudaStream_t s) {
                reduce_block<<<1, static_cast<unsigned>(threads), 0, s>>>(in.values(), out.values(), count);
                CUDA(cudaGetLastError());
            };
            sum_rows(job, options, stream, report, sum, bytes);
        }
        for (int blocks : {1, 8, 32}) {
            if (static_cast<size_t>(blocks) * 64 > std::max<size_t>(count, 64)) continue;
            const int threads = bytes <= 512 ? 64 : 512;
            const DirectSum direct(job, count, blocks, threads);
            sum.row = "device: nvshmem_ptr stores, own words, " + std::to_string(blocks) + " blocks of " + std::to_string(threads) + ", early";
            sum.enqueue = [&](cudaStream_t s) { direct.enqueue(s, in.values(), out.values(), count); };
            sum_rows(job, options, stream, report, sum, bytes);
        }
    }
}
