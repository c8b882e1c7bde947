// Puts, gets and signals by NCCL's device interface, for scopes.cuh: stores and loads through a window of all ranks, which is
// what the interface has between GPUs of a host.
#pragma once

#include "nccl_device.cuh"
#include "scopes.cuh"

// Addresses of other ranks are there for the host since 2.29.
#ifdef PEER_NCCL_PUTS
#define PEER_NCCL_SCOPES 1
struct NcclApi {
    // From an address of this rank to the other's: all symmetric memory is one window.
    ptrdiff_t there;

    template <Scope S>
    __device__ void put(char* to, const char* from, size_t bytes) const {
        Unit<S>::copy(to + there, from, bytes);
    }
    template <Scope S>
    __device__ void put_signal(char* to, const char* from, size_t bytes, uint64_t* word, uint64_t value) const {
        put<S>(to, from, bytes);
        Unit<S>::meet();
        if (Unit<S>::lane() == 0) release_store(of_other(word), value);
    }
    template <Scope S>
    __device__ void get(char* to, const char* from, size_t bytes) const {
        // Not by the first cache, which would answer the second time.
        const auto* in = reinterpret_cast<const int4*>(from + there);
        auto* out = reinterpret_cast<int4*>(to);
        const size_t step = Unit<S>::threads(), count = bytes / 16;
        size_t i = Unit<S>::lane();
        for (; i + 3 * step < count; i += 4 * step) {
            const int4 a = __ldcg(in + i), b = __ldcg(in + i + step), c = __ldcg(in + i + 2 * step), d = __ldcg(in + i + 3 * step);
            out[i] = a;
            out[i + step] = b;
            out[i + 2 * step] = c;
            out[i + 3 * step] = d;
        }
        for (; i < count; i += step) out[i] = __ldcg(in + i);
        if (bytes % 16 != 0 && Unit<S>::lane() == 0) {
            reinterpret_cast<double*>(to)[bytes / 8 - 1] = __ldcg(reinterpret_cast<const double*>(from + there) + bytes / 8 - 1);
        }
    }
    __device__ void p(uint64_t* to, uint64_t value) const {
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(of_other(to)), "l"(value) : "memory");
    }
    __device__ void quiet() const { __threadfence_system(); }
    __device__ void wait(uint64_t* word, uint64_t value) const { acquire_at_least(word, value); }

  private:
    __device__ uint64_t* of_other(uint64_t* here) const {
        return reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(here) + there);
    }
};

// Barriers of all ranks, one after the other.
static __global__ void barriers(const __grid_constant__ ncclDevComm comm, int turns) {
    ncclLsaBarrierSession<ncclCoopCta> barrier{ncclCoopCta(), comm, ncclTeamTagLsa(), blockIdx.x};
    for (int turn = 0; turn < turns; ++turn) barrier.sync(ncclCoopCta(), cuda::memory_order_acq_rel);
}

static void scope_rows(Job& job, const Options& options, ncclComm_t comm, cudaStream_t stream, Report& report) {
    using These = Scopes<NcclApi>;
    const size_t bytes = These::source + These::most + 128;
    NcclMemory all(comm, bytes, false);
    ncclWindow_t window = nullptr;
    NCCL(ncclCommWindowRegister(comm, all.values(), bytes, &window, NCCL_WIN_COLL_SYMMETRIC));
    if (window == nullptr) throw std::runtime_error("NCCL has no symmetric windows here");
    void* other = nullptr;
    NCCL(ncclGetLsaDevicePointer(window, 0, 1 - job.rank, &other));
    if (other == nullptr) throw std::runtime_error("the memory of the other rank is not mapped");
    const ptrdiff_t there = static_cast<char*>(other) - reinterpret_cast<char*>(all.values());
    double *out = all.values(), *in = out + These::source / sizeof(double), *word = in + These::most / sizeof(double);
    These(job, options, stream, report, NcclApi{there}, out, in, reinterpret_cast<uint64_t*>(word)).run();

    ncclDevComm device = device_comm(comm, 1);
    Timed timed;
    timed.per_unit = 2000;
    timed.prepare = [] {};
    timed.check = [] { return true; };
    timed.unit = [&] {
        barriers<<<1, These::block, 0, stream>>>(device, timed.per_unit);
        CUDA(cudaGetLastError());
    };
    Row row = time_rounds(job, options, stream, timed);
    row.row = "barrier, block, 1 block";
    row.scope = "block";
    row.more = {{"bytes", 0}, {"sms", 1}};
    report.add(row);
    ncclDevCommDestroy(comm, &device);
    ncclCommWindowDeregister(comm, window);
}
#endif
