// NVSHMEM's puts, gets and signals, for scopes.cuh.
#pragma once

#include "nvshmem_device.cuh"
#include "scopes.cuh"

struct NvshmemApi {
    int other;

    template <Scope S>
    __device__ void put(char* to, const char* from, size_t bytes) const {
        if (S == Scope::Thread) nvshmem_putmem_nbi(to, from, bytes, other);
        if (S == Scope::Warp) nvshmemx_putmem_nbi_warp(to, from, bytes, other);
        if (S == Scope::Block) nvshmemx_putmem_nbi_block(to, from, bytes, other);
    }
    template <Scope S>
    __device__ void put_signal(char* to, const char* from, size_t bytes, uint64_t* word, uint64_t value) const {
        if (S == Scope::Thread) nvshmem_putmem_signal_nbi(to, from, bytes, word, value, NVSHMEM_SIGNAL_SET, other);
        if (S == Scope::Warp) nvshmemx_putmem_signal_nbi_warp(to, from, bytes, word, value, NVSHMEM_SIGNAL_SET, other);
        if (S == Scope::Block) nvshmemx_putmem_signal_nbi_block(to, from, bytes, word, value, NVSHMEM_SIGNAL_SET, other);
    }
    template <Scope S>
    __device__ void get(char* to, const char* from, size_t bytes) const {
        if (S == Scope::Thread) nvshmem_getmem(to, from, bytes, other);
        if (S == Scope::Warp) nvshmemx_getmem_warp(to, from, bytes, other);
        if (S == Scope::Block) nvshmemx_getmem_block(to, from, bytes, other);
    }
    __device__ void p(uint64_t* to, uint64_t value) const { nvshmem_uint64_p(to, value, other); }
    __device__ void quiet() const { nvshmem_quiet(); }
    __device__ void wait(uint64_t* word, uint64_t value) const { nvshmem_signal_wait_until(word, NVSHMEM_CMP_GE, value); }
};

static void scope_rows(Job& job, const Options& options, cudaStream_t stream, Report& report) {
    using These = Scopes<NvshmemApi>;
    Symmetric out(These::source), in(These::most), word(128);
    These(job, options, stream, report, NvshmemApi{1 - job.rank}, out.values(), in.values(), word.words()).run();
}
